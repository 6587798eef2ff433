"""One whole fluxqueue for all end-to-end tests, and a managed namespace for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.local.inprocess import InProcessPlane

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def whole_plane(service_folder: Path) -> Iterator[InProcessPlane]:
    """Eight nodes of 8 cpu and 32 GiB, Postgres, webhook, queue and fluxion."""
    plane = InProcessPlane(service_folder / "e2e")
    plane.start()
    yield plane
    plane.destroy()


@pytest.fixture
def stage(whole_plane: InProcessPlane) -> Iterator[Stage]:
    """A managed namespace; whatever the test leaves is deleted, and then nothing may be left in Fluxion."""
    name = f"e2e-{next(_numbers)}"
    client = whole_plane.control_plane.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {names.MANAGED_LABEL: "true"}}})
    stage = Stage(whole_plane, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    stage.until("the default service account is there", lambda: client.find(account) is not None)
    yield stage
    stage.clear()
    client.request("DELETE", f"/api/v1/namespaces/{name}")
