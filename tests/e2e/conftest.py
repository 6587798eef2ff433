"""One whole fluxqueue for all end-to-end tests, and a managed namespace for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end import Stage, managed_namespace

from fluxqueue.local.inprocess import InProcessPlane


@pytest.fixture(scope="session")
def whole_plane(service_folder: Path) -> Iterator[InProcessPlane]:
    """Eight nodes of 8 cpu and 32 GiB, Postgres, webhook, queue and fluxion."""
    plane = InProcessPlane(service_folder / "e2e")
    plane.start()
    yield plane
    plane.destroy()


@pytest.fixture
def stage(whole_plane: InProcessPlane) -> Iterator[Stage]:
    """A managed namespace; whatever the test leaves is deleted, and then nothing may be left in Fluxion."""
    with managed_namespace(whole_plane) as stage:
        yield stage
