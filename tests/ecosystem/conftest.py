"""A cluster with the real controller of each test file, which names it as `CONTROLLER`.
`make test-ecosystem` builds the controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ecosystem_controllers import EcosystemController, may_build
from support.end_to_end import Stage, managed_namespace
from support.running_controllers import ecosystem_cluster

from fluxqueue.local.inprocess import InProcessCluster


@pytest.fixture(scope="module")
def controller(request: pytest.FixtureRequest) -> EcosystemController:
    """The controller of the test file."""
    named = request.module.CONTROLLER
    assert isinstance(named, EcosystemController)
    return named


@pytest.fixture(scope="module")
def programs(controller: EcosystemController) -> Path:
    """The folder of its program, its manifests and its examples."""
    return _built(controller)


@pytest.fixture(scope="module")
def cluster(
    service_folder: Path, controller: EcosystemController, programs: Path
) -> Iterator[InProcessCluster]:
    """Four nodes of 4 cpu, the controller, and those that it needs."""
    with ecosystem_cluster(
        service_folder, {each: _built(each) for each in controller.needs} | {controller: programs}
    ) as running:
        yield running


def _built(controller: EcosystemController) -> Path:
    found = controller.programs(build=may_build())
    if found is None:
        title = f"{controller.title} {controller.version}"
        pytest.skip(
            f"{title} is not built: make test-ecosystem builds it once, "
            f"in about {controller.minutes} minutes on 2 cores"
        )
    return found


@pytest.fixture
def stage(cluster: InProcessCluster, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A managed namespace, in which nothing is left at the end.
    The test file names what it makes as `RESOURCES`.
    """
    # the controllers were not built since there is a checker of statements
    with managed_namespace(cluster, statements=False) as made:
        yield made
        made.kubectl("delete", request.module.RESOURCES, "--all", "--wait=true", "--timeout=60s", check=False)
