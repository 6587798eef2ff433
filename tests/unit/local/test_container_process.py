from pathlib import Path
from typing import Any, cast

import pytest

from fluxqueue.local.chart import ChartContainer, ChartPod, Mount
from fluxqueue.local.container_process import ContainerProcess
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until
from fluxqueue.local.volumes import VolumeSource

SECRET = {"metadata": {"resourceVersion": "1"}, "data": {"tls.crt": "Y2VydA=="}}


class Objects:
    """An API server with one Secret, which may be missing."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.client = self

    def find(self, path: str) -> dict[str, Any] | None:
        return self.secret


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def program(objects: Objects, tmp_path: Path) -> ContainerProcess:
    container = ChartContainer(
        "webhook", ("sh", "-c"), ("cat tls.crt",), (), (Mount("tls", "/tls", ""),), {}, None, None, None
    )
    volumes = {"tls": VolumeSource("secrets", "ns", "tls", {}, optional=False)}
    pod = ChartPod("webhook", "ns", {}, "default", volumes, (container,), 1)
    return ContainerProcess(
        pod, container, 0, tmp_path / "program", tmp_path / "log", cast(ControlPlane, objects)
    )


def test_a_program_waits_for_a_secret_that_it_mounts(program: ContainerProcess, objects: Objects) -> None:
    program.start()
    assert (program.process.running, program.died(), program.ready()) == (False, False, False)
    assert program.waits_for == "secret ns/tls does not exist, but tls is mounted from it"
    program.tend()
    assert program.waits_for
    objects.secret = SECRET

    def started() -> bool:
        program.tend()
        return not program.waits_for

    wait_until(started, "the program started", 10)
    program.stop()
    assert (program._folder / "volumes" / "tls" / "tls.crt").read_text() == "cert"
