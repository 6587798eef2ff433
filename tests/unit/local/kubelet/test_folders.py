import subprocess
import sys
from pathlib import Path

from fluxqueue.local.kubelet.folders import remove_tree

_SCRIPT = """
import os, tempfile
from pathlib import Path
from fluxqueue.local.kubelet.folders import remove_tree
if os.geteuid() == 0:  # who may do everything
    os.setresuid(65534, 65534, 65534)
with tempfile.TemporaryDirectory() as place:
    pods, other = Path(place, "pods"), Path(place, "other")
    inner = pods / "closed" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    other.mkdir(mode=0o500)
    (pods / "link").symlink_to(other)
    inner.chmod(0o500)
    inner.parent.chmod(0)
    remove_tree(pods)
    print(pods.exists(), oct(other.stat().st_mode & 0o777))
"""


def test_closed_folders_go_as_well_and_what_links_lead_to_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("False 0o500\n", "")


def test_what_does_not_exist_needs_no_removal(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")
