"""A local cluster that cannot be started on this machine, and what is left of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.kubelet.children import MARK
from fluxqueue.local.localcluster import ClusterFailed, LocalCluster


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    cluster = LocalCluster(tmp_path / "home" / "local", ClusterOptions())
    with pytest.raises(
        ClusterFailed,
        match=r"cannot be kept in .*/home/local: .*; name another folder with --dir, or set XDG_STATE_HOME",
    ):
        cluster.up(find=lambda: pytest.fail("it builds"))


def test_down_ends_what_pods_of_a_killed_agent_left(tmp_path: Path) -> None:
    cluster, pods = LocalCluster(tmp_path), tmp_path / "controlplane" / "pods"
    pods.mkdir(parents=True)
    with subprocess.Popen(["sleep", "300"], env={**os.environ, MARK: f"{pods};a-pod"}) as left:
        try:
            assert cluster.down()
            assert left.wait(60) == -signal.SIGKILL
        finally:
            left.kill()
    assert not cluster.down()
