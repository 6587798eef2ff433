"""Runs kubectl for a local cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["KubectlError", "run_kubectl"]


class KubectlError(RuntimeError):
    """kubectl failed; the message contains its error output."""


def run_kubectl(
    program: Path,
    environment: Mapping[str, str],
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    check: bool = True,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """Run kubectl in an environment.

    Parameters
    ----------
    stdin
        Text for ``-f -``.
    check
        True if an exit code other than 0 raises.
    timeout_s
        Time limit of the command.

    Raises
    ------
    KubectlError
        With kubectl's error output.
    """
    done = subprocess.run(
        [str(program), *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=environment,
    )
    if check and done.returncode != 0:
        raise KubectlError(
            f"kubectl {' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done
