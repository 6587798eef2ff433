from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from fluxqueue.client.calls import packed
from fluxqueue.client.frames import from_log, opened
from fluxqueue.client.worker import Outcome, outcome_of


def run(
    folder: Path,
    function: Any,
    *calls: tuple[Any, ...],
    settings: dict[str, Any] | None = None,
    size: int = 1 << 20,
) -> list[Outcome]:
    """Pack calls, run the packed program as a pod would, and return the outcomes that it signed."""
    content = packed(function, [[(args, {}) for args in calls]], size)
    for name, data in content.data.items():
        (folder / name).write_bytes(data)
    if settings:
        (folder / "settings.json").write_text(
            json.dumps({**json.loads(content.data["settings.json"]), **settings})
        )
    message = folder / "message"
    command = [sys.executable, "-I", "-S", str(folder / "worker.pyz"), str(message)]
    done = subprocess.run(
        command, env={"JOB_COMPLETION_INDEX": "0"}, capture_output=True, text=True, timeout=60, check=True
    )
    text = (
        message.read_text() if message.exists() else from_log(done.stdout.splitlines(), f"{content.task}.0")
    )
    return list(pickle.loads(opened(text, content.key, f"{content.task}.0", size)))


def test_a_small_result_is_the_message_and_a_large_one_in_the_log(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    assert [pickle.loads(value) for _, value, _ in run(small, lambda n: n + 1, (1,), (2,))] == [2, 3]
    assert (small / "message").exists()
    ((how, value, _),) = run(large, lambda: __import__("os").urandom(50_000), ())
    assert (how, len(pickle.loads(value))) == ("returned", 50_000)
    assert not (large / "message").exists()


def test_the_program_needs_only_python_and_what_it_brings(tmp_path: Path) -> None:
    def modules() -> list[str]:
        import sys

        return sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))

    ((_, value, _),) = run(tmp_path, modules, ())
    assert set(pickle.loads(value)) <= {"__main__", "__mp_main__", "cloudpickle", "frames", "sitecustomize"}


def test_another_python_is_refused_before_the_call(tmp_path: Path) -> None:
    ((how, _, text),) = run(tmp_path, lambda: 1, (), settings={"python": "2.7"})
    assert how == "unloadable"
    assert "and the client 2.7: use an image with the same minor version" in text


def test_a_result_that_is_too_large_is_refused_with_both_figures(tmp_path: Path) -> None:
    ((how, _, text),) = run(tmp_path, lambda: bytes(9_000), (), size=5_000)
    assert how == "refused"
    assert "at most 5000 are returned" in text


def test_an_exit_inside_the_call_is_an_exception_of_it() -> None:
    how, pickled, text = outcome_of(sys.exit, (3,), {})
    assert how == "raised"
    assert isinstance(pickle.loads(pickled), SystemExit)
    assert "SystemExit: 3" in text


class Halved(Exception):
    """It can be pickled, and not be read again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)
        self.two = two


def test_an_exception_that_cannot_be_read_again_comes_as_text() -> None:
    def raises() -> None:
        raise Halved("one", "two")

    how, pickled, text = outcome_of(raises, (), {})
    assert (how, pickled) == ("unpicklable", b"")
    assert text.rstrip().endswith("Halved: one")


def test_what_cannot_be_pickled_is_not_returned() -> None:
    how, _, text = outcome_of(lambda: (n for n in range(0)), (), {})
    assert how == "unreturnable"
    assert "returned a generator that cannot be pickled" in text


@pytest.mark.parametrize("value", [None, 3, "text", {"a": [1]}])
def test_plain_values_are_returned(value: Any) -> None:
    assert outcome_of(lambda: value, (), {}) == ("returned", cloudpickle.dumps(value), "")


def test_nothing_of_the_environment_is_needed(tmp_path: Path) -> None:
    assert "JOB_COMPLETION_INDEX" not in os.environ
    ((how, _, _),) = run(tmp_path, lambda: 1, ())
    assert how == "returned"
