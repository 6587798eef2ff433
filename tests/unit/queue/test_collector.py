import gc
from collections.abc import Iterator

import pytest

from fluxqueue.queue import collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_what_a_long_collection_leaves_is_not_scanned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    collector.settle()
    frozen = gc.get_freeze_count()
    kept = [[number] for number in range(10_000)]
    monkeypatch.setattr(collector, "_LONG_S", float("inf"))
    gc.collect()
    assert gc.get_freeze_count() < frozen + len(kept)
    monkeypatch.setattr(collector, "_LONG_S", -1.0)
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_a_collection_of_young_objects_keeps_all_in_reach_of_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector.settle()
    monkeypatch.setattr(collector, "_LONG_S", -1.0)
    frozen = gc.get_freeze_count()
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() == frozen


def test_to_settle_again_adds_nothing() -> None:
    collector.settle()
    before = len(gc.callbacks)
    collector.settle()
    assert len(gc.callbacks) == before
