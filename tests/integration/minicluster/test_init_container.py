"""The init container that copies Flux into the pod."""

from __future__ import annotations

import os
import stat

import pytest
from support.minicluster_pods import WAIT_S, pods, wait_until

only_root_has_other_users = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can run a container as another user"
)


def test_an_interrupted_init_container_starts_again() -> None:
    with pods("true", size=1) as cluster:
        mount = cluster.make(0) / "mount"
        (mount / ".view" / "bin").mkdir(parents=True)
        (mount / ".view" / "bin" / "half").touch()
        assert cluster.init(0) == 0
        assert (mount / "view" / "bin" / "flux").exists()
        assert not (mount / "view" / "bin" / "half").exists()
        assert (cluster.directory(0) / "software" / "library.so").exists()


@only_root_has_other_users
def test_a_view_is_copied_by_another_user_than_the_owner_of_the_volumes() -> None:
    with pods("true", size=1, harness={"user": 1000}) as cluster:
        assert cluster.init(0) == 0
        pod = cluster.directory(0)
        assert (pod / "mount" / "view" / "bin" / "flux").stat().st_uid == 1000
        assert (pod / "software" / "library.so").exists()
        assert (pod / "software" / "._hidden" / "._file").exists()
        assert all((pod / volume).stat().st_uid == 0 for volume in ("mount", "software"))
        assert cluster.init(0) == 0


@only_root_has_other_users
def test_another_user_also_repeats_an_interrupted_copy_of_folders_that_are_read_only() -> None:
    with pods("true", size=1, harness={"user": 1000}) as cluster:
        package = cluster.root / "image" / "software" / "package"
        package.mkdir()
        (package / "file").write_text("whole")
        package.chmod(0o555)
        assert cluster.init(0) == 0
        pod = cluster.directory(0)
        (pod / "mount" / "flux-operator-done.txt").unlink()
        (pod / "mount" / "view").rename(pod / "mount" / ".view")
        assert cluster.init(0) == 0
        assert (pod / "software" / "package" / "file").read_text() == "whole"
        assert stat.S_IMODE((pod / "software" / "package").stat().st_mode) == 0o555
        assert (pod / "mount" / "view" / "bin" / "flux").exists()


@only_root_has_other_users
def test_a_volume_that_cannot_be_written_is_the_reason_of_the_container() -> None:
    with pods("true", size=1, harness={"user": 1000}) as cluster:
        (cluster.make(0) / "mount").chmod(0o755)
        assert cluster.start_init(0).wait(WAIT_S) != 0
        assert "is it writable for user 1000" in cluster.reason(0)


def test_an_image_without_flux_is_the_reason_of_the_container() -> None:
    with pods("true", size=1) as cluster:
        (cluster.root / "image" / "views").rename(cluster.root / "image" / "others")
        assert cluster.init(0) == 1
        assert "set spec.flux.container.image to a flux-view image" in cluster.reason(0)


def test_an_init_container_that_is_stopped_ends_at_once_and_is_not_done() -> None:
    with pods("true", size=1) as cluster:
        blocked = cluster.make(0) / "bin" / "cp"
        blocked.parent.mkdir()
        blocked.write_text(f"#!/bin/sh\n: >{blocked}.runs\nexec sleep 600\n")
        blocked.chmod(0o755)
        process = cluster.start_init(0, PATH=f"{blocked.parent}:{os.environ['PATH']}")
        wait_until(blocked.with_suffix(".runs").exists, "cp runs")
        process.terminate()
        assert process.wait(WAIT_S) == 143
        assert not (cluster.directory(0) / "mount" / "flux-operator-done.txt").exists()
        assert cluster.init(0) == 0
