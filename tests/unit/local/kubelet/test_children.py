"""Processes are awaited in one place, and what they started ends with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from fluxqueue.local.kubelet.children import MARK, kill_marked
from fluxqueue.local.processes import wait_until

_SCRIPT = """
import asyncio, os, sys
from fluxqueue.local.kubelet.children import MARK, Children, Entry, StartFailed, kill_descendants, kill_marked
folder, *words = sys.argv[1:]
async def main():
    children = Children()
    children.watch()
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        marked = {**os.environ, MARK: folder + ";"}
        child = await children.start(Entry(words, folder), marked, nothing, nothing, nothing)
        print(await child.ended, kill_marked(folder))
    except StartFailed as failed:
        print(failed)
    kill_descendants()
asyncio.run(main())
"""
_GIVEN_UP = """
import asyncio, os, sys
from fluxqueue.local.kubelet.children import Children, Entry
async def main():
    children = Children()
    children.watch()
    nothing = os.open(os.devnull, os.O_RDWR)
    entry = Entry(["sleep", "600"], sys.argv[1])
    started = asyncio.create_task(children.start(entry, {**os.environ}, nothing, nothing, nothing))
    await asyncio.sleep(0)  # it is forked now
    (child,) = children._children.values()
    started.cancel()
    await asyncio.wait([child.ended], timeout=60)
    print([child.ended.done()])
asyncio.run(main())
"""


async def run(folder: Path, *words: str) -> str:
    """Run a command by an agent of its own, which reaps everything below it."""
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SCRIPT, str(folder), *words, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(agent.communicate(), 120)
    return output.decode().strip()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
async def test_an_exit_code_is_that_of_the_program_or_its_signal(
    tmp_path: Path, script: str, code: int
) -> None:
    assert await run(tmp_path, "sh", "-c", script) == f"{code} 0"


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert (
        await run(tmp_path, "no-such-program")
        == 'exec: "no-such-program": executable file not found in $PATH'
    )


async def test_many_arguments_arrive(tmp_path: Path) -> None:
    words = [f"{number:060}" for number in range(4000)]
    assert await run(tmp_path, "sh", "-c", f"exit $(($# - {len(words)} + 9))", "sh", *words) == "9 0"


async def test_no_signal_is_ignored_in_a_program(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    own_of_libc = "0{7}[01][08]0{7}"  # the signals 32 and 33 cannot be set, and GNU make leaves them ignored
    try:
        assert (
            await run(tmp_path, "sh", "-c", f"grep -qE '^SigIgn:\\s{own_of_libc}$' /proc/self/status")
            == "0 0"
        )
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_what_left_its_session_is_found_by_its_mark(tmp_path: Path) -> None:
    assert await run(tmp_path, "sh", "-c", "setsid sleep 600 & exit 0") == "0 1"


async def test_what_hides_its_mark_ends_with_the_agent(tmp_path: Path) -> None:
    assert (
        await run(
            tmp_path,
            "sh",
            "-c",
            f"env -i setsid sh -c 'while true; do sleep 600; done; : {tmp_path}' & sleep 0.5",
        )
        == "0 0"
    )
    wait_until(lambda: not commands_with(str(tmp_path)), "nothing of it runs", 60)


async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _GIVEN_UP, str(tmp_path)]
    agent = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(agent.communicate(), 120)
    assert output == b"[True]\n"


def commands_with(text: str) -> list[bytes]:
    """Return the commands of processes that have a text in them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes())
    return [each for each in found if text.encode() in each]


def test_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    assert MARK not in os.environ
    assert kill_marked(str(tmp_path)) == 0
