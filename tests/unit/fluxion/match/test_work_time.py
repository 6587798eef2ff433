"""What counts as work of a thread."""

from __future__ import annotations

import gc
import itertools

import pytest

from fluxqueue.fluxion.match.work_time import work_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second with each look at it.

    What collections took before does not count: its fractions would make the sums inexact.
    """
    seconds = itertools.count()
    monkeypatch.setattr("fluxqueue.fluxion.match.work_time._COLLECTIONS.took_s", 0.0)
    monkeypatch.setattr("fluxqueue.fluxion.match.work_time.thread_time", lambda: float(next(seconds)))


@pytest.mark.usefixtures("clock")
def test_a_full_collection_of_garbage_is_no_work() -> None:
    before = work_time()
    gc.collect()
    assert work_time() - before == 2.0, "the looks at the clock, but for the second of the collection"


@pytest.mark.usefixtures("clock")
def test_a_small_collection_is_not_measured() -> None:
    before = work_time()
    gc.collect(0)
    assert work_time() - before == 1.0
