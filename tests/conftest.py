"""Real services for tests: one Postgres and one control plane per session, made when the first test asks for
them.

``FLUXQUEUE_TEST_DSN`` names a Postgres to use instead of a private one. Both live in a folder below the
system's temporary one and end with the session, also when that is killed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.postgres import LocalPostgres, postgres_from_environment

_numbers = itertools.count(1)

# A busy machine generates examples slowly; that says nothing about the code. CI tries the same examples each
# time, so that a change is refused for what it changes; everybody else tries others in each run.
settings.register_profile(
    "fluxqueue", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("fluxqueue")


def pytest_configure() -> None:
    """Hear Ctrl-C, and let started programs hear it:
    a shell that runs us in background has it ignored, and that is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_width() -> None:
    """Let programs that tests start be without a terminal:
    a parallel run gives its workers the width of its own.
    """
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def service_folder() -> Iterator[Path]:
    """A folder that other accounts may enter (Postgres, when we are root),
    and with a short name (sockets).
    """
    folder = Path(tempfile.mkdtemp(prefix="fluxqueue-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(service_folder: Path) -> Iterator[LocalPostgres]:
    """A Postgres server that forgets everything in a crash."""
    server = postgres_from_environment(service_folder / "postgres", "FLUXQUEUE_TEST_DSN", durable=False)
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def database_template() -> str | None:
    """Name of the database that each test's own is a copy of;
    rooms with a schema override this with one they migrated.
    """
    return None


@pytest.fixture
def new_database(postgres: LocalPostgres, database_template: str | None) -> Iterator[Callable[[], str]]:
    """Make another database for this test: call it for a connection string."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{os.getpid()}_{next(_numbers)}")
        return postgres.create_database(names[-1], template=database_template)

    yield make
    for name in names:
        postgres.drop_database(name)


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """Connection string of a database of this test's own."""
    return new_database()


@pytest.fixture(scope="session")
def control_plane(service_folder: Path) -> Iterator[ControlPlane]:
    """A bare control plane: eight nodes, nothing of ours installed.
    Tests use namespaces of their own and leave the nodes as they were.
    """
    cluster = ControlPlane(service_folder / "controlplane", nodes=8)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of this test's own on the bare control plane, deleted (without waiting) afterwards."""
    name = f"test-{next(_numbers)}"
    control_plane.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    control_plane.client.request("DELETE", f"/api/v1/namespaces/{name}")
