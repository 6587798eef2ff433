"""A control plane with a real cert-manager, and the chart's webhook with certificates by it.
`make test-cert-manager` builds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cert_manager import VERSION, built_programs, running_cert_manager
from support.issued_webhook import IssuedWebhook, running_issued_webhook

from fluxqueue.local.controlplane import ControlPlane


@pytest.fixture(scope="session")
def issuing_cluster(service_folder: Path) -> Iterator[ControlPlane]:
    """A control plane with cert-manager."""
    programs = built_programs(build=os.environ.get("FLUXQUEUE_CERT_MANAGER") == "build")
    if programs is None:
        pytest.skip(
            f"cert-manager {VERSION} is not built: make test-cert-manager builds it once, "
            "in about 6 minutes on 2 cores"
        )
    plane = ControlPlane(service_folder / "issuing", nodes=1)
    with plane as cluster, running_cert_manager(cluster, programs, service_folder / "cert-manager"):
        yield cluster


@pytest.fixture
def issued(issuing_cluster: ControlPlane, tmp_path: Path) -> Iterator[IssuedWebhook]:
    """The chart's webhook, serving what cert-manager issued."""
    with running_issued_webhook(issuing_cluster, tmp_path) as webhook:
        yield webhook
