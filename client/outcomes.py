"""From what a pod left behind to the results of its calls."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from fluxqueue.api.pods import ContainerStateTerminated, Pod
from fluxqueue.client.errors import CallNotLoaded, FluxQueueError, RemoteError, ResultUnreadable, WorkerDied
from fluxqueue.client.worker import Outcome

__all__ = ["RemoteTraceback", "death", "finish", "termination"]

_OUT_OF_MEMORY = 137


class RemoteTraceback(Exception):
    """The traceback in the pod, as text; the cause of an exception that a call raised there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def finish(futures: Sequence[Future[Any]], payload: bytes) -> None:
    """Set the results of the calls of one pod.

    Parameters
    ----------
    futures
        The futures of its calls, in their order.
    payload
        What the pod returned; it was signed, so it comes from our program.
    """
    outcomes: list[Outcome] = pickle.loads(payload)  # noqa: S301  signed with the key of this executor
    if len(outcomes) == 1 < len(futures):
        outcomes = outcomes * len(futures)
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        try:
            value = _value(outcome)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)


def _value(outcome: Outcome) -> Any:
    how, pickled, text = outcome
    if how == "returned":
        return _unpickled(pickled)
    if how == "raised":
        error = _unpickled(pickled)
        error.__cause__ = RemoteTraceback(text)
        raise error
    if how == "unpicklable":
        raise RemoteError(
            f"the call raised an exception that cannot be pickled: {text.rstrip().splitlines()[-1]}"
        ) from RemoteTraceback(text)
    raise (CallNotLoaded if how == "unloadable" else ResultUnreadable)(text)


def _unpickled(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)  # noqa: S301  signed, see `finish`
    except Exception as error:  # whatever the classes raise
        raise ResultUnreadable(
            f"the result cannot be unpickled here ({type(error).__name__}: {error}): install what its "
            "classes need, or return plain data"
        ) from error


def termination(pod: Pod) -> ContainerStateTerminated | None:
    """Return how the container of the call ended; None if it has not."""
    states = [
        status.state.terminated for status in pod.status.container_statuses or () if status.name == "call"
    ]
    return states[0] if states else None


def death(pod: Pod | None, what: str) -> FluxQueueError:
    """Return the error for a pod that ended without a result."""
    if pod is None:
        return WorkerDied(f"{what}: its pod was deleted before its result was read: submit it again")
    ended = termination(pod)
    reason = (ended.reason if ended is not None else "") or pod.status.reason
    code = ended.exit_code if ended is not None else None
    if reason == "OOMKilled" or code == _OUT_OF_MEMORY:
        return WorkerDied(
            f"{what}: Pod {pod.metadata.name} was killed ({reason or code}): request more memory, "
            "or use smaller chunks"
        )
    if reason == "DeadlineExceeded":
        return WorkerDied(
            f"{what}: Pod {pod.metadata.name} ran longer than its duration: give a longer one, "
            "or use smaller chunks"
        )
    shown = f"exit code {code}" if code is not None else pod.status.message or pod.status.phase
    return WorkerDied(
        f"{what}: Pod {pod.metadata.name} ended without a result ({reason or shown}, {shown}): "
        "read its output, or its Events"
    )
