from __future__ import annotations

import pickle
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from fluxqueue.api.pods import Pod
from fluxqueue.client import CallNotLoaded, RemoteError, ResultUnreadable
from fluxqueue.client.outcomes import death, finish


def finished(*outcomes: tuple[str, bytes, str], futures: int | None = None) -> list[Future[Any]]:
    made: list[Future[Any]] = [Future() for _ in range(futures or len(outcomes))]
    finish(made, pickle.dumps(list(outcomes)))
    return made


def test_each_call_of_a_chunk_gets_its_own_outcome() -> None:
    returned, raised = finished(
        ("returned", pickle.dumps(3), ""), ("raised", pickle.dumps(KeyError("k")), "the traceback")
    )
    assert returned.result(0) == 3
    error = raised.exception(0)
    assert isinstance(error, KeyError)
    assert "the traceback" in str(error.__cause__)


def test_what_stopped_the_whole_task_is_the_outcome_of_each_call() -> None:
    for future in finished(("unloadable", b"", "no such module: use another image"), futures=3):
        with pytest.raises(CallNotLoaded, match="use another image"):
            future.result(0)


def test_a_result_that_cannot_be_read_here_is_told_so() -> None:
    missing = b"cnowhere\nThing\n."
    for how in ("returned", "raised"):
        (future,) = finished((how, missing, ""))
        with pytest.raises(ResultUnreadable, match=r"unpickled here \(ModuleNotFoundError"):
            future.result(0)


def test_an_exception_that_cannot_be_pickled_keeps_its_text() -> None:
    (future,) = finished(("unpicklable", b"", "Traceback\nStrange: it broke\n"))
    with pytest.raises(RemoteError, match="Strange: it broke"):
        future.result(0)


def test_a_future_that_was_cancelled_stays_so() -> None:
    future: Future[Any] = Future()
    future.cancel()
    finish([future], pickle.dumps([("returned", pickle.dumps(1), "")]))
    assert future.cancelled()


def ended(code: int, reason: str) -> dict[str, Any]:
    return {
        "containerStatuses": [{"name": "call", "state": {"terminated": {"exitCode": code, "reason": reason}}}]
    }


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (
            {
                "containerStatuses": [
                    {"name": "call", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ]
            },
            "request more memory",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "call", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}
                ]
            },
            "exit code 2",
        ),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "give a longer one"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no cpu"}, "no cpu"),
    ],
)
def test_the_death_of_a_pod_has_its_cause_and_the_remedy(status: dict[str, Any], sentence: str) -> None:
    pod = msgspec.convert({"metadata": {"name": "p"}, "status": status}, Pod)
    assert sentence in str(death(pod, "Job team/j"))
    assert (
        str(death(None, "Job team/j"))
        == "Job team/j: its pod was deleted before its result was read: submit it again"
    )
