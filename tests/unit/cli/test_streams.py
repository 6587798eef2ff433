"""The streams of the program, with the programs and the shell that people use."""

import os
import shlex
import subprocess
import sys

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.confirmation import confirmed

_PLUGIN = (
    f"{shlex.quote(sys.executable)} -c 'import sys; from fluxqueue.cli.plugin import main; sys.exit(main())'"
)


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``plugin`` is the program, with buffered output as people have it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | environment
    text = f'set -o pipefail; plugin() {{ {_PLUGIN} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", text], env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", ["completion bash", "--help"])
def test_a_reader_that_has_ended_is_no_error(command: str) -> None:
    done = shell(f"{{ sleep 1; plugin {command}; }} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_sentence() -> None:
    done = shell("plugin completion bash > /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "error: the output cannot be written (No space left on device): write it elsewhere\n",
    )


def test_closed_streams_are_no_crash() -> None:
    assert shell("plugin completion bash >&-").returncode == 0
    assert shell("plugin completion bash <&- 2>&-").returncode == 0


def test_a_closed_standard_input_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ClusterError, match="nobody can be asked here"):
        confirmed("cancel", ["a", "b"], yes=False)


def test_what_the_encoding_does_not_have_is_replaced() -> None:
    command = [
        sys.executable,
        "-c",
        "from fluxqueue.cli.streams import ready_streams; ready_streams(); print('gr\\xfcn')",
    ]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    assert (
        subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
        == "gr?n\n"
    )
