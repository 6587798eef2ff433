"""The part of the demo in which pods compute: on nodes of processes, eight ranks print one result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from fluxqueue.local.screen import Screen

__all__ = ["COMPUTING", "Kubectl", "compute", "without_flux"]

COMPUTING = Path("processes", "10-pi.yaml")
"""The example that computes, below the folder of the examples."""
_NEEDS_FLUX = ("kind: MiniCluster", "fluxqueue/minicluster")
_WAIT_S = 120


class Kubectl(Protocol):
    """Runs kubectl."""

    def kubectl(self, *arguments: str, timeout_s: float = 90) -> str:
        """Return its output."""


@contextmanager
def without_flux(folder: Path, screen: Screen) -> Iterator[Path]:
    """Yield a folder with the examples that can run here: those of MiniClusters need a Flux on PATH."""
    files = sorted(folder.glob("*.yaml"))
    left_out = [] if shutil.which("flux") else [file for file in files if any(word in file.read_text() for word in _NEEDS_FLUX)]
    if not left_out:
        yield folder
        return
    names = ", ".join(file.name for file in left_out)
    screen.console.out(f"There is no flux on PATH, so these examples are left out: {names}.", highlight=False)
    with tempfile.TemporaryDirectory(prefix="fluxqueue-examples-") as chosen:
        for file in files:
            if file not in left_out:
                shutil.copy(file, chosen)
        yield Path(chosen)


def compute(client: Kubectl, screen: Screen, folder: Path, namespace: str, *, keep: bool) -> None:
    """Run eight ranks that compute, and show what they print."""
    file = str(folder / COMPUTING)
    screen.step("Eight ranks start together and compute; rank 0 prints the result")
    client.kubectl("delete", "-n", namespace, "-f", file, "--ignore-not-found", "--wait=true", "--timeout=60s")
    client.kubectl("apply", "-n", namespace, "-f", file)
    client.kubectl("wait", "-n", namespace, "--for=condition=complete", "job/pi", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S)
    logs = ["logs", "-l", "batch.kubernetes.io/job-completion-index=0,job-name=pi"]
    screen.command(logs, client.kubectl(*logs, "-n", namespace))
    if not keep:
        client.kubectl("delete", "-n", namespace, "-f", file, "--wait=true", "--timeout=60s")
