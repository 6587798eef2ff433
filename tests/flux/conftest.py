"""A real Flux for the tests of this folder: `FLUXQUEUE_FLUX` names its command,
or the folder of the installation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.minicluster_pods import Pods, has_hostnames, pods

MakePods = Callable[..., Pods]


@pytest.fixture(scope="session")
def flux() -> Path:
    """The command; the test is skipped where none is named, or no pod could have a host name of its own."""
    named = os.environ.get("FLUXQUEUE_FLUX", "")
    if not named:
        pytest.skip(
            "set FLUXQUEUE_FLUX to the flux command of an installation, or to its folder, "
            "to run these tests with real brokers"
        )
    if not has_hostnames():
        pytest.skip(
            "brokers find their rank by host name, and this user may not set one for a process: "
            "run the tests as root"
        )
    command = Path(named) / "bin" / "flux" if Path(named).is_dir() else Path(named)
    assert os.access(command, os.X_OK), f"FLUXQUEUE_FLUX is {named}, and {command} is no program"
    return command.absolute()


@pytest.fixture
def brokers(flux: Path) -> MakePods:
    """Make pods whose brokers are real; arguments are those of `support.minicluster_pods.pods`."""

    def make(command: str = "", size: int = 3, **spec: Any) -> Pods:
        settings = {"container": {"disable": True}, **spec.pop("flux", {})}
        made = pods(command, size, flux=settings, harness={"flux": flux, **spec.pop("harness", {})}, **spec)
        made.set(fq_patience=60, fq_names_s=30)
        return made

    return make
