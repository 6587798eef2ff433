from pathlib import Path

import pytest

from fluxqueue.local.kubelet.limits import ContainerGroup, ControlGroups, remove_groups


def hierarchy(folder: Path, *files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cgroup.procs", *files):
        (folder / name).touch()


def written(group: ContainerGroup, files: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of a group, which a kernel would have made with its folder."""
    return {
        name: (folder / name).read_text()
        for folder in group.folders
        for name in files
        if (folder / name).exists()
    }


def test_both_versions_of_control_groups_get_their_settings(tmp_path: Path) -> None:
    hierarchy(tmp_path / "2", "cgroup.controllers")
    for name in ("cpu", "memory"):
        hierarchy(tmp_path / "1" / name)
    for version, settings in (
        ("2", {"cpu.max": "150000 100000", "memory.max": "67108864", "memory.swap.max": "0"}),
        (
            "1",
            {
                "cpu.cfs_quota_us": "150000",
                "memory.limit_in_bytes": "67108864",
                "memory.memsw.limit_in_bytes": "67108864",
            },
        ),
    ):
        groups = ControlGroups(tmp_path / "agent", tmp_path / version)
        assert groups.missing == ""
        limits = {"cpu": "1500m", "memory": "64Mi"}
        for folder in groups.make("c", limits).folders:
            for name in settings:
                (folder / name).touch()
        assert written(groups.make("c", limits), tuple(settings)) == settings
        assert groups.make("d", None).folders == groups.make("d", {"nvidia.com/gpu": 1}).folders == ()


def test_without_control_groups_it_is_said_and_there_are_no_limits(tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path / "agent", tmp_path / "none")
    assert "no hierarchy of control groups" in groups.missing
    assert groups.make("c", {"cpu": 1}).folders == ()


def test_groups_of_an_agent_that_was_killed_are_removed(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        hierarchy(tmp_path / name)
    ControlGroups(tmp_path / "agent", tmp_path).make("c", {"memory": "64Mi"})
    remove_groups(tmp_path / "agent", tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["cgroup.procs", "cgroup.procs"]


@pytest.mark.parametrize(
    ("file", "text"),
    [("memory.events", "low 0\noom_kill 1\n"), ("memory.oom_control", "under_oom 0\noom_kill 2\n")],
)
def test_a_kill_for_memory_is_known(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text.replace("1", "0").replace("2", "0"))
    assert not ContainerGroup((tmp_path,)).out_of_memory()
    (tmp_path / file).write_text(text)
    assert ContainerGroup((tmp_path,)).out_of_memory()
