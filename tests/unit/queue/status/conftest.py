"""What writers of status write and read in their tests."""

from __future__ import annotations

import pytest
from support.controller_bench import RecordedEvents
from support.recording_ledger import RecordingLedger

from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.model.records import WorkloadId


@pytest.fixture
def ledger() -> RecordingLedger:
    return RecordingLedger()


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def estimates() -> dict[WorkloadId, Estimate]:
    return {}
