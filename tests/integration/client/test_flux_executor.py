"""Functions as jobs of a Flux instance, through the real REST service,
whose `flux` is a stand-in that runs what is submitted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from support.rest_services import rest_service

from fluxqueue.client import AsyncFlux, CallNotLoaded, Flux, FluxExecutor, WorkerDied
from fluxqueue.client.flux_connections import DirectFlux
from fluxqueue.client.portals import Portal


@pytest.fixture
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FluxExecutor]:
    with rest_service(tmp_path_factory.mktemp("rest")) as service:
        portal = Portal()

        async def make() -> AsyncFlux:
            return AsyncFlux(DirectFlux(f"http://127.0.0.1:{service.port}", "right"))

        flux = Flux(portal, portal.call(make()))
        with FluxExecutor(flux, python=sys.executable, cores_per_task=2, name="calls") as executor:
            yield executor
        words = next(line for line in service.calls() if "--job-name=calls" in line).split()
        assert "--cores-per-task=2" in words
        portal.call(flux.asynchronous.connection.close())
        portal.close()


def test_results_and_exceptions_come_back_from_jobs(executor: FluxExecutor) -> None:
    def halved(number: int) -> float:
        os.write(1, b"not a result\n")
        return 10 / number

    assert list(executor.map(halved, [1, 2, 4, 5], chunksize=2, timeout=120)) == [10, 5, 2.5, 2]
    failed = executor.submit(halved, 0)
    assert isinstance(failed.exception(120), ZeroDivisionError)
    assert "halved" in str(failed.exception().__cause__)  # type: ignore[union-attr]
    assert failed.task is not None
    assert failed.task.status().succeeded
    large = executor.submit(os.urandom, 300_000)
    assert len(large.result(120)) == 300_000


def test_a_call_that_ends_its_process_has_no_result(executor: FluxExecutor) -> None:
    with pytest.raises(
        WorkerDied, match=r"Flux job f\S+ ended as FAILED, exit code 3, without a result: read its output"
    ):
        executor.submit(os._exit, 3).result(120)


def test_a_function_that_the_image_cannot_load_says_so(executor: FluxExecutor) -> None:
    with pytest.raises(CallNotLoaded, match="register_pickle_by_value"):
        executor.submit(_OnlyHere()).result(120)


class _OnlyHere:
    """Pickled by the name of this module, which no other program can import."""

    def __call__(self) -> None: ...
