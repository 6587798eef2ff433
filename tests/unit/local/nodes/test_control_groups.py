"""Control groups in folders that look like a mounted hierarchy."""

from __future__ import annotations

from pathlib import Path

from fluxqueue.local.nodes.control_groups import find_hierarchies, make_groups, remove_groups
from fluxqueue.local.nodes.layout import CONTROL_GROUP


def version_1(mount: Path) -> Path:
    for controller in ("cpu", "memory", "unified"):
        (mount / controller).mkdir(parents=True)
        (mount / controller / "cgroup.procs").touch()
    return mount


def version_2(mount: Path) -> Path:
    """A hierarchy whose groups that exist already have the kernel's files."""
    for group in (mount, mount / CONTROL_GROUP, mount / CONTROL_GROUP / "n1"):
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
        (group / "cgroup.subtree_control").write_text("")
    return mount


def test_with_version_1_each_controller_has_a_group_per_machine(tmp_path: Path) -> None:
    mount = version_1(tmp_path / "cgroup")
    assert find_hierarchies(mount) == [mount / "cpu", mount / "memory"]
    make_groups("n1", mount)
    make_groups("n2", mount)
    assert {path.name for path in (mount / "cpu" / CONTROL_GROUP).iterdir()} == {"n1", "n2"}
    assert remove_groups(mount) == []
    assert not (mount / "memory" / CONTROL_GROUP).exists()


def test_an_empty_cpuset_is_filled_from_its_parent(tmp_path: Path) -> None:
    mount = version_1(tmp_path / "cgroup")
    # the kernel makes these files; the values are ours
    for group in ("", CONTROL_GROUP, f"{CONTROL_GROUP}/n1"):
        (mount / "cpu" / group).mkdir(exist_ok=True)
        for name, value in (("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")):
            (mount / "cpu" / group / name).write_text(value if not group else "\n")
    make_groups("n1", mount)
    assert (mount / "cpu" / CONTROL_GROUP / "n1" / "cpuset.cpus").read_text() == "0-1\n"


def test_with_version_2_every_group_passes_its_controllers_on(tmp_path: Path) -> None:
    mount = version_2(tmp_path / "cgroup")
    assert find_hierarchies(mount) == [mount]
    make_groups("n1", mount)
    for group in (mount, mount / CONTROL_GROUP, mount / CONTROL_GROUP / "n1"):
        assert (group / "cgroup.subtree_control").read_text() == "+cpuset +cpu +io +memory +pids"


def test_a_group_that_runc_made_in_the_hierarchy_of_version_2_is_removed(tmp_path: Path) -> None:
    mount = version_1(tmp_path / "cgroup")
    (mount / "unified" / CONTROL_GROUP / "n1").mkdir(parents=True)
    assert remove_groups(mount) == []
    assert not (mount / "unified" / CONTROL_GROUP).exists()


def test_without_hierarchies_there_are_none(tmp_path: Path) -> None:
    assert find_hierarchies(tmp_path / "missing") == []
    assert remove_groups(tmp_path / "missing") == []


def test_a_group_with_something_in_it_is_reported(tmp_path: Path) -> None:
    mount = version_1(tmp_path / "cgroup")
    make_groups("n1", mount)
    (mount / "cpu" / CONTROL_GROUP / "n1" / "busy").touch()
    assert remove_groups(mount) == [str(mount / "cpu" / CONTROL_GROUP)]
