"""`make images` with programs in place of docker, podman and buildah that record how they were called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.scripts import script_head

_BUILD = Path(__file__).resolve().parents[3] / "images" / "build.py"
_TOOL = """{head}import json, sys
tool, words = {tool!r}, sys.argv[1:]
with open({record!r}, "a") as record:
    record.write(json.dumps([tool, *words]) + "\\n")
if words[0] == "info":
    sys.exit({broken})
if words[0] == "inspect":
    size = 130_000_000 if words[-1].startswith("python") else 300_000_000
    print("sha256:1234" if "Id" in words[4] or "ID" in words[4] else size)
if words[0] == "images":
    print(json.dumps([{{"size": "130 MB" if words[-1].startswith("python") else "0.3 GB"}}]))
"""


class _Machine:
    """A PATH with chosen container tools, and what was asked of them."""

    def __init__(self, folder: Path, **tools: bool) -> None:
        self.folder = folder
        self._record = folder / "calls.jsonl"
        (folder / "bin").mkdir()
        for tool, works in tools.items():
            path = folder / "bin" / tool
            path.write_text(
                _TOOL.format(head=script_head(), tool=tool, record=str(self._record), broken=int(not works))
            )
            path.chmod(0o755)

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(_BUILD), "--folder", str(self.folder / "out"), *words]
        path = {"PATH": f"{self.folder / 'bin'}:/nowhere"}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=path)

    def calls(self, word: str) -> list[list[str]]:
        calls = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [call for call in calls if call[1] == word]


def test_the_first_tool_that_works_builds_both_images_and_their_lists(tmp_path: Path) -> None:
    machine = _Machine(tmp_path, docker=False, podman=True, buildah=True)
    done = machine.make("--repository", "registry.example.com/hpc/", "--version", "1.2.3")
    assert done.returncode == 0, done.stderr
    builds = machine.calls("build")
    assert {call[0] for call in builds} == {"podman"}
    assert [call[call.index("--tag") + 1] for call in builds if "--tag" in call] == [
        "registry.example.com/hpc/fluxqueue-queue:1.2.3",
        "registry.example.com/hpc/fluxqueue-webhook:1.2.3",
    ]
    assert sum("bill-of-materials" in call for call in builds) == 2
    assert all(any(word.startswith("BASE=python:3.13-slim@sha256:") for word in call) for call in builds)
    assert "registry.example.com/hpc/fluxqueue-queue:1.2.3: 170 MB on a base of 130 MB" in done.stdout


@pytest.mark.parametrize("tool", ["docker", "buildah"])
def test_the_record_has_base_identity_and_size(tmp_path: Path, tool: str) -> None:
    machine = _Machine(tmp_path, docker=True, podman=True, buildah=True)
    done = machine.make(
        "--tool", tool, "--base", "python:mine@sha256:00", "--options", "--pull-never --network host"
    )
    assert done.returncode == 0, done.stderr
    queue, webhook = json.loads((tmp_path / "out" / "images.json").read_text())
    assert queue["base"] == webhook["base"] == "python:mine@sha256:00"
    assert queue["labels"]["org.opencontainers.image.base.digest"] == "sha256:00"
    assert (queue["bytes"], queue["base_bytes"], queue["added_bytes"]) == (
        300_000_000,
        130_000_000,
        170_000_000,
    )
    assert queue["id"] == "sha256:1234"
    assert all(call[2:5] == ["--pull-never", "--network", "host"] for call in machine.calls("build"))


def test_a_machine_without_a_tool_is_told_so(tmp_path: Path) -> None:
    done = _Machine(tmp_path, docker=False).make()
    assert done.returncode == 1
    assert done.stderr == (
        "images: none of docker, podman and buildah works here: install one, "
        "or name it with CONTAINER_TOOL=\n"
    )
