"""What is said about a cluster that cannot be started on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.inprocess import ClusterOptions
from fluxqueue.local.localcluster import ClusterFailed, LocalCluster


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    cluster = LocalCluster(tmp_path / "home" / "local", ClusterOptions())
    with pytest.raises(ClusterFailed, match=r"cannot be kept in .*/home/local: .*; name another folder with --dir, or set XDG_STATE_HOME"):
        cluster.up(find=lambda: pytest.fail("it builds"))
