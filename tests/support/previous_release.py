"""The previous release: its code and chart out of git, and a local cluster that runs them.

There is no tag yet, so `PREVIOUS_RELEASE` names a commit; a release moves it to the tag before it. The
commit's files are extracted, and an environment is made whose only fluxqueue they are: its path has the
folder of the old code first, then the libraries of the environment that runs the tests. So every program of
the old cluster runs old code, with the libraries that are installed now.
"""

from __future__ import annotations

import io
import os
import subprocess
import sysconfig
import tarfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxqueue.local.unpacking import unpack

__all__ = ["PREVIOUS_RELEASE", "OldCluster", "extract"]

PREVIOUS_RELEASE = "d8719bd0a44b08ac818824c866b841e4fbdc9fb6"
_ROOT = Path(__file__).parents[2]


def extract(folder: Path) -> bool:
    """Extract the previous release; return false if this clone does not have its commit (a shallow clone, or
    no clone).
    """
    done = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", PREVIOUS_RELEASE], capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        return False
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        unpack(archive, folder)
    return True


@dataclass(frozen=True)
class OldCluster:
    """A local cluster of the previous release, in a folder that the present release can go on with.

    Attributes
    ----------
    code
        Where the release was extracted.
    folder
        Of the cluster.
    """

    code: Path
    folder: Path

    def start(self, *options: str) -> None:
        """Start it and wait until it is ready."""
        environment = self.code / "environment"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
        site = Path(
            sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
        )
        paths = (self.code, sysconfig.get_path("purelib"))
        (site / "previous_release.pth").write_text("".join(f"{path}\n" for path in paths))
        script = self._program()
        script.write_text(
            f"#!{environment / 'bin' / 'python'}\n"
            "import sys\n"
            "from fluxqueue.cli.main import main\n"
            "sys.exit(main())\n"
        )
        script.chmod(0o755)
        self._run("up", *options)

    def stop(self) -> None:
        """Stop all its programs; its data stays."""
        self._run("down")

    def settings(self) -> Mapping[str, str]:
        """Return the variables with which kubectl finds it."""
        lines = self._run("env").splitlines()
        pairs = (line.removeprefix("export ").partition("=") for line in lines if line.startswith("export "))
        return {
            **os.environ,
            **{name: value.strip("'\"") for name, _, value in pairs if name == "KUBECONFIG"},
        }

    def run_python(self, code: str, *arguments: str) -> str:
        """Run Python code with the modules of the release, and return what it prints, also of an error."""
        words = [str(self.code / "environment" / "bin" / "python"), "-c", code, *arguments]
        clean = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=60, check=False, env=clean, cwd=self.code
        )
        return done.stdout + done.stderr

    def _program(self) -> Path:
        return self.code / "environment" / "bin" / "fluxqueue"

    def _run(self, command: str, *options: str) -> str:
        words = [str(self._program()), "local", command, "--dir", str(self.folder), *options]
        clean = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=300, check=False, env=clean, cwd=self.code
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout
