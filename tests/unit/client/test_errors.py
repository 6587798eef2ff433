from __future__ import annotations

from concurrent.futures import BrokenExecutor

import pytest

from fluxqueue import client
from fluxqueue.client import (
    FluxQueueError,
    InvalidWork,
    NoCluster,
    OutcomeUnknown,
    WaitTimeout,
    WorkerDied,
    errors,
)
from fluxqueue.client.errors import translated
from fluxqueue.kube import errors as kube


def test_every_error_is_a_fluxqueue_error_and_is_offered() -> None:
    classes = [getattr(errors, name) for name in errors.__all__ if name != "translated"]
    assert all(issubclass(each, FluxQueueError) for each in classes)
    assert {each.__name__ for each in classes} <= set(client.__all__)


def test_errors_with_a_counterpart_in_python_are_also_that() -> None:
    assert issubclass(WaitTimeout, TimeoutError)
    assert issubclass(InvalidWork, ValueError)
    assert issubclass(WorkerDied, BrokenExecutor)


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(kube).values() if isinstance(each, type) and issubclass(each, kube.ApiError)],
)
def test_every_error_of_the_api_server_has_a_remedy(kind: type[kube.ApiError]) -> None:
    error = kind.__new__(kind)
    kube.ApiError.__init__(error, 0, "", "get Job team/a: why")
    if isinstance(error, kube.Unreachable):
        error.sent = False
    assert str(translated(error)).startswith("get Job team/a: why: ")


def test_a_write_that_may_have_happened_is_not_called_unreachable() -> None:
    sent = kube.Unreachable("create Job team/a: connection lost", sent=True)
    assert isinstance(translated(sent), OutcomeUnknown)
    assert isinstance(translated(kube.Unreachable("get Job team/a: connection lost", sent=True)), NoCluster)
    assert isinstance(
        translated(kube.Unreachable("create Job team/a: cannot connect", sent=False)), NoCluster
    )
