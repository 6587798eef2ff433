"""A container where namespaces are forbidden: paths of mounts become those of the volumes' folders."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

_SCRIPT = """
import asyncio, json, os, sys
from pathlib import Path
import msgspec
from fluxqueue.local.kubelet.children import Children
from fluxqueue.local.kubelet.container_log import LogOptions
from fluxqueue.local.kubelet.container_runner import ContainerFiles, ContainerRunner
from fluxqueue.local.kubelet.pod_status import ContainerRecord
from fluxqueue.local.kubelet.specs import Container

folder, policy, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

async def variables():
    return {"PATH": os.environ["PATH"], "PLACE": "/etc/values/file", "COUNT": "2", **json.loads(sys.argv[5])}

async def main():
    children = Children()
    children.watch()
    (folder / "work").mkdir()
    message = folder / "message"
    mounts = [(str(folder / "volume"), "/etc/values"), (str(message), "/dev/termination-log")]
    fields = {"terminationMessagePolicy": "FallbackToLogsOnError", **json.loads(sys.argv[4])}
    main = {"name": "main", "command": ["sh", "-c"], "args": [script], **fields}
    container = msgspec.convert(main, Container)
    record = ContainerRecord(container)
    runner = ContainerRunner(
        record,
        init=False,
        pod="ns/pod",
        pod_policy=policy,
        mark=f"{folder}/main;",
        hostname="host",
        address="127.0.0.1",
        files=ContainerFiles(folder / "work", folder / "logs", None, mounts, message),
        children=children,
        variables=variables,
        changed=lambda: None,
    )
    code = await runner.run()
    text = b"".join([part async for part in runner.log.read(LogOptions())]).decode()
    print(code, record.restarts, repr(text), repr(record.state.message))

asyncio.run(main())
"""


async def run(
    folder: Path, policy: str, script: str, variables: dict[str, str] | None = None, **fields: Any
) -> str:
    (folder / "volume").mkdir()
    (folder / "volume" / "file").write_text("content")
    words = [
        sys.executable,
        "-c",
        _SCRIPT,
        str(folder),
        policy,
        script,
        json.dumps(fields),
        json.dumps(variables or {}),
    ]
    agent = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(agent.communicate(), 120)
    return output.decode().strip()


async def test_mount_paths_in_commands_and_variables_are_those_of_folders(tmp_path: Path) -> None:
    script = "cat /etc/values/file; cat $PLACE; echo $(COUNT); pwd; echo why > /dev/termination-log"
    said = await run(tmp_path, "Never", script)
    assert said == f"0 0 'contentcontent2\\n{tmp_path}/work\\n' 'why\\n'"


async def test_the_end_of_the_log_explains_a_failure_without_a_message(tmp_path: Path) -> None:
    assert await run(tmp_path, "Never", "echo broken; exit 4") == "4 0 'broken\\n' 'broken\\n'"


async def test_the_first_restart_comes_at_once(tmp_path: Path) -> None:
    assert (
        await run(tmp_path, "OnFailure", "test -e tried || { touch tried; exit 1; }; echo second")
        == "0 1 'second\\n' ''"
    )


async def test_a_terminal_has_a_kind_unless_the_container_says_another(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert await run(tmp_path, "Never", "echo $TERM", tty=True) == r"0 0 'xterm\r\n' ''"
    assert (
        await run(tmp_path / "other", "Never", "echo $TERM", {"TERM": "vt100"}, tty=True)
        == r"0 0 'vt100\r\n' ''"
    )


async def test_a_working_dir_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = await run(tmp_path, "Never", "true", workingDir="/no/such/folder")
    assert said.startswith("128 0 '' 'workingDir /no/such/folder does not exist on this machine: ")


async def test_the_probe_that_has_ended_a_container_is_named(tmp_path: Path) -> None:
    probe = {
        "exec": {"command": ["sh", "-c", "until test -s /dev/termination-log ; do sleep 0.1; done; exit 7"]},
        "timeoutSeconds": 60,
        "failureThreshold": 1,
    }
    said = await run(
        tmp_path, "Never", "echo log; echo own > /dev/termination-log && exec sleep 600", livenessProbe=probe
    )
    assert said.splitlines()[-1].endswith("'liveness probe failed: its command ended with 7\\nown\\n'")
