from __future__ import annotations

import os
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from fluxqueue.client import CallTooLarge, FluxQueueError, InvalidWork
from fluxqueue.client.calls import MAX_TASKS_BYTES, packed, program


def test_a_secret_has_the_program_the_key_and_each_task() -> None:
    calls = packed(len, [[(("a",), {})], [(("b",), {}), (("c",), {})]], 1_000)
    assert set(calls.data) == {"worker.pyz", "key", "settings.json", "task-0", "task-1"}
    assert sum(map(len, calls.data.values())) < 1 << 20
    assert set(calls.encoded()) == set(calls.data)
    assert packed(len, [[]], 1_000).key != calls.key
    assert str(calls.key) not in repr(calls)


def test_the_program_leaves_room_for_the_tasks() -> None:
    assert len(program()) + MAX_TASKS_BYTES < (1 << 20) - 1_000
    assert "cloudpickle/__init__.py" in zipfile.ZipFile(BytesIO(program())).namelist()


def test_what_does_not_fit_or_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CallTooLarge, match=r"len has \d+ bytes with its arguments, and at most \d+ are shipped"
    ):
        packed(len, [[((os.urandom(MAX_TASKS_BYTES),), {})]], 1_000)
    with (
        (tmp_path / "file").open("w") as file,
        pytest.raises(InvalidWork, match="len cannot be shipped with its arguments"),
    ):
        packed(len, [[((file, (n for n in range(0))), {})]], 1_000)


def test_a_missing_cloudpickle_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(FluxQueueError, match=r"pip install 'fluxqueue-hpc\[executor\]'"):
        packed(len, [[]], 1_000)
