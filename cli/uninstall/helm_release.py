"""Removes the record that Helm keeps of a release.

The command deletes the objects itself, because not every installation is Helm's, and because their order
matters. Then Helm's record is all that is left. Only Helm writes it, so `helm uninstall` is run where the
program is installed, and is named to the user where it is not.
"""

from __future__ import annotations

import asyncio
import shutil

from fluxqueue.cli.uninstall.installation import Installation
from fluxqueue.kube.kinds import SECRETS
from fluxqueue.kube.transport import Api

__all__ = ["HelmFailed", "has_record", "helm_command", "run_helm"]

_TIMEOUT_S = 180.0


class HelmFailed(Exception):
    """``helm uninstall`` failed; the message has what it said."""


async def has_record(api: Api, installation: Installation) -> bool:
    """True if Helm lists the release."""
    selector = f"owner=helm,name={installation.release}"
    return bool((await api.page(SECRETS, installation.namespace, label_selector=selector, limit=1)).items)


def helm_command(
    installation: Installation, kubeconfig: str | None = None, context: str | None = None
) -> list[str]:
    """Return the command that removes the record."""
    where = [
        *(["--kubeconfig", kubeconfig] if kubeconfig else ()),
        *(["--kube-context", context] if context else ()),
    ]
    return ["helm", "uninstall", installation.release, "--namespace", installation.namespace, *where]


async def run_helm(command: list[str]) -> bool:
    """Run it; return false if there is no helm.

    Raises
    ------
    HelmFailed
        It failed, or took too long.
    """
    program = shutil.which(command[0])
    if program is None:
        return False
    process = await asyncio.create_subprocess_exec(
        program,
        *command[1:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise HelmFailed(f"'{' '.join(command)}' did not end within {_TIMEOUT_S:g} s: run it again") from None
    if process.returncode:
        raise HelmFailed(f"'{' '.join(command)}' failed: {' '.join(output.decode(errors='replace').split())}")
    return True
