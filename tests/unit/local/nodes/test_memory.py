"""The memory of containers, read from a folder that looks like /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.nodes.memory import ContainerMemory, container_memory

POD = "/fluxqueue-nodes/n1/kubepods/burstable/pod8c7c1a9e-0000-4000-8000-000000000000"
QUEUE, MATCHER = "a" * 64, "b" * 64


def process(proc: Path, pid: int, group: str, pss_kb: int | None) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"4:memory:{group}\n")
    if pss_kb is not None:
        (folder / "smaps_rollup").write_text(f"Rss:  {2 * pss_kb} kB\nPss:  {pss_kb} kB\n")


def test_the_processes_of_a_container_are_added_up(tmp_path: Path) -> None:
    process(tmp_path, 1, f"{POD}/{QUEUE}", 1024)
    process(tmp_path, 2, f"{POD}/{QUEUE}", 512)
    process(tmp_path, 3, f"{POD}/{MATCHER}", 2048)
    process(tmp_path, 4, "/user.slice", 4096)
    process(tmp_path, 5, f"{POD}/{QUEUE}", None)
    assert container_memory(tmp_path) == {QUEUE: ContainerMemory(1.5, 2), MATCHER: ContainerMemory(2, 1)}


@pytest.mark.parametrize(
    "group", ["/fluxqueue-nodes/n1/kubepods/besteffort/podx/y", "/kubepods/pod1/" + QUEUE]
)
def test_other_control_groups_are_no_containers_of_ours(tmp_path: Path, group: str) -> None:
    process(tmp_path, 1, group, 1024)
    assert container_memory(tmp_path) == {}
