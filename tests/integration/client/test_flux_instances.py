"""The client of Flux instances against the real REST service, whose `flux` is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.rest_services import RestService, rest_service

from fluxqueue.client import (
    AsyncFlux,
    Flux,
    FluxRefused,
    InvalidWork,
    NoCluster,
    NoSuchWork,
    NotPermitted,
    WaitTimeout,
)
from fluxqueue.client.flux_connections import DirectFlux
from fluxqueue.client.portals import Portal


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestService]:
    with rest_service(tmp_path_factory.mktemp("rest")) as service:
        yield service


def made(portal: Portal, port: int, token: str = "right") -> Flux:
    async def make() -> AsyncFlux:
        return AsyncFlux(DirectFlux(f"http://127.0.0.1:{port}", token))

    return Flux(portal, portal.call(make()))


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


@pytest.fixture
def flux(portal: Portal, service: RestService) -> Iterator[Flux]:
    flux = made(portal, service.port)
    yield flux
    portal.call(flux.asynchronous.connection.close())


def test_jobs_are_submitted_read_and_cancelled(service: RestService, flux: Flux) -> None:
    flux.ready(timeout=60)
    task = flux.submit(
        ["hostname", "-f"], nodes=2, cores_per_task=3, duration=90, environment={"A": "1"}, name="where"
    )
    assert task.id == "f2ABC"
    words = service.calls()[-1].split()
    assert words[-2:] == ["hostname", "-f"]
    assert {"--nodes=2", "--cores-per-task=3", "--time-limit=90s", "--env=A=1", "--job-name=where"} <= set(
        words
    )
    assert (task.state(), task.status().ended, repr(task)) == ("RUN", False, "<Flux job f2ABC>")
    assert [each.state for each in flux.jobs(active=True, limit=3)] == ["RUN"]
    assert list(task.output()) == ["so far"]
    with pytest.raises(WaitTimeout, match="Flux job f2ABC is still RUN: wait longer"):
        task.wait(timeout=0.1)
    task.cancel()
    assert service.calls()[-1].split() == ["cancel", "f2ABC"]
    assert flux.nodes()[0].nodes == ("flux-0", "flux-1")


def test_output_is_followed_until_the_job_ends(service: RestService, flux: Flux) -> None:
    lines = flux.job("f2ABC").output(follow=True)
    assert next(lines) == "one"
    (service.folder / "ended").touch()
    assert list(lines) == ["two"]


def test_what_is_refused_has_the_sentence_of_flux_and_a_remedy(
    service: RestService, flux: Flux, portal: Portal
) -> None:
    with pytest.raises(FluxRefused, match="unsatisfiable request: correct what it names"):
        flux.submit(["refuse"])
    with pytest.raises(NoSuchWork, match="check the id"):
        flux.job("f9").status()
    with pytest.raises(FluxRefused, match="nodes: Input should be greater than or equal to 1"):
        flux.submit(["hostname"], nodes=0)
    wrongs: tuple[str | list[str], ...] = ("hostname", [])
    for wrong in wrongs:
        with pytest.raises(InvalidWork, match="write a list of words"):
            flux.submit(wrong)
    with pytest.raises(InvalidWork, match="noodles: no such option"):
        flux.submit(["hostname"], noodles=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidWork, match="put the data into a file"):
        flux.submit(["echo", "x" * 2**20])
    stranger = made(portal, service.port, "wrong")
    with pytest.raises(NotPermitted, match="it is in the Secret of this MiniCluster: give that token"):
        stranger.jobs()
    portal.call(stranger.asynchronous.connection.close())


def test_an_instance_that_does_not_answer_is_named(portal: Portal) -> None:
    away = made(portal, 1)
    with pytest.raises(NoCluster, match=r"http://127.0.0.1:1 does not answer"):
        away.jobs()
    with pytest.raises(WaitTimeout):
        away.ready(timeout=0)
    portal.call(away.asynchronous.connection.close())
