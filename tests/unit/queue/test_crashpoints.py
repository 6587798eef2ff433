"""A crash point kills the process only if a test armed it,
and every point is reached somewhere in the code.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fluxqueue.queue import crashpoints
from fluxqueue.queue.crashpoints import VARIABLE, CrashPoint

SCRIPT = (
    "from fluxqueue.queue.crashpoints import CrashPoint, reach\n"
    "for n in range(3):\n"
    "    reach(CrashPoint.GRANTED)\n"
    "    print(n, flush=True)"
)


def _run(environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stdout


def test_a_point_that_is_not_armed_does_nothing(tmp_path: Path) -> None:
    assert _run({}) == (0, "0\n1\n2\n")
    assert _run({VARIABLE: str(tmp_path / "missing")}) == (0, "0\n1\n2\n")


@pytest.mark.parametrize(
    ("said", "lived"),
    [("GRANTED", 0), ("GRANTED 2", 1), ("GRANTED 3", 2), ("GRANTED 4", None), ("MATCHED", None)],
    ids=str,
)
def test_the_process_dies_at_the_point_when_it_is_reached_that_often(
    tmp_path: Path, said: str, lived: int | None
) -> None:
    name, _, number = said.partition(" ")
    file = tmp_path / "armed"
    file.write_text(f"{CrashPoint[name]} {number}")
    code, output = _run({VARIABLE: str(file)})
    if lived is None:
        assert (code, output) == (0, "0\n1\n2\n")
        assert file.exists()
    else:
        assert code == -signal.SIGKILL
        assert output.split() == [str(n) for n in range(lived)]
        assert not file.exists(), "the next life would die again"


def test_every_point_is_reached_somewhere() -> None:
    folder = Path(crashpoints.__file__).parent
    text = "".join(file.read_text() for file in folder.rglob("*.py"))
    assert set(re.findall(r"reach\(CrashPoint\.(\w+)\)", text)) == {point.name for point in CrashPoint}
