"""What can go wrong in the client: one class for each cause, with one sentence that names the object and the
remedy.

All are `FluxQueueError`, so that a program can catch them together. Those with a counterpart in Python are
also that: a time-out is a `TimeoutError`, bad input is a `ValueError`, and a worker that died is a
`concurrent.futures.BrokenExecutor`.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor

from fluxqueue.kube import errors as kube

__all__ = [
    "CallNotLoaded",
    "CallTooLarge",
    "ExecutorBroken",
    "FluxQueueError",
    "FluxRefused",
    "InvalidWork",
    "LogsUnavailable",
    "NameTaken",
    "NoCluster",
    "NoSuchWork",
    "NotInstalled",
    "NotManaged",
    "NotPermitted",
    "NotPossible",
    "OutcomeUnknown",
    "Refused",
    "RemoteError",
    "ResultUnreadable",
    "SubmissionFailed",
    "WaitTimeout",
    "WorkCancelled",
    "WorkFailed",
    "WorkGone",
    "WorkerDied",
    "translated",
]


class FluxQueueError(Exception):
    """Any error of the client."""


class NoCluster(FluxQueueError):
    """There is no API server to ask: no configuration, or it does not answer."""


class NotInstalled(FluxQueueError):
    """The cluster has no FluxJobs or MiniClusters: fluxqueue is not installed, or does not serve the kind."""


class NotPermitted(FluxQueueError):
    """RBAC, a quota or a policy refuses the request."""


class NotManaged(FluxQueueError):
    """fluxqueue does not queue objects of this namespace, so nothing was submitted."""


class InvalidWork(FluxQueueError, ValueError):
    """The work cannot be submitted as it is described; found before any request was sent."""


class Refused(FluxQueueError):
    """The API server, or fluxqueue's admission, refused the object."""


class NameTaken(FluxQueueError):
    """An object with this name exists."""


class OutcomeUnknown(FluxQueueError):
    """The connection broke during a write: it may have happened or not."""


class SubmissionFailed(FluxQueueError):
    """Some of the work could not be submitted.

    Parameters
    ----------
    submitted
        The workloads that were submitted.
    failures
        What failed, by position in what was given.
    """

    def __init__(self, submitted: list[object], failures: dict[int, FluxQueueError]) -> None:
        first = next(iter(failures.values()))
        super().__init__(
            f"{len(failures)} of {len(submitted) + len(failures)} could not be submitted; the first: {first}"
        )
        self.submitted = submitted
        self.failures = failures


class NoSuchWork(FluxQueueError):
    """There is no such object, or it is not in the queue."""


class WorkGone(FluxQueueError):
    """The object was deleted before its end was seen."""


class NotPossible(FluxQueueError):
    """The state of the work does not allow the edit."""


class WaitTimeout(FluxQueueError, TimeoutError):
    """The work was not in the wanted state in time; it goes on."""


class WorkFailed(FluxQueueError):
    """The work ended without success, and the caller asked for success."""


class WorkCancelled(FluxQueueError):
    """The work was cancelled by somebody."""


class LogsUnavailable(FluxQueueError):
    """The output of a pod cannot be read."""


class FluxRefused(FluxQueueError):
    """The REST service of a MiniCluster refused a request."""


class CallNotLoaded(FluxQueueError):
    """The image of the pods cannot load a function: another Python, or modules that it does not have."""


class CallTooLarge(FluxQueueError, ValueError):
    """A function with its arguments is larger than what can be shipped to a pod."""


class ExecutorBroken(FluxQueueError, BrokenExecutor):
    """The executor cannot follow its work any more."""


class WorkerDied(FluxQueueError, BrokenExecutor):
    """The pod of a call ended without a result: it was killed, ran out of memory or time,
    or could not start Python.
    """


class ResultUnreadable(FluxQueueError):
    """The call returned, but its result is too large, damaged, or cannot be unpickled here."""


class RemoteError(FluxQueueError):
    """The call raised an exception that cannot be pickled; the message has its class and text."""


def translated(error: kube.ApiError, remedy: str = "") -> FluxQueueError:
    """Return the client's error for one of the API server.

    Parameters
    ----------
    error
        Its message begins with the action and the object.
    remedy
        What helps, if the caller knows better than this function.
    """
    kind, helps = _CAUSES.get(type(error), (Refused, "correct what the message names"))
    if isinstance(error, kube.Unreachable):
        kind, helps = (
            (OutcomeUnknown, "look whether the object exists before you repeat it")
            if _unsure(error)
            else _UNREACHABLE
        )
    return kind(f"{error}: {remedy or helps}")


def _unsure(error: kube.Unreachable) -> bool:
    return error.sent and error.message.partition(" ")[0] in ("create", "patch", "delete")


_OTHER_NAME = (
    "choose another name, or one that ends in - and that the API server completes (name='solver-'), "
    "or delete that object first"
)
_UNREACHABLE: tuple[type[FluxQueueError], str] = (
    NoCluster,
    "check the kubeconfig and the network (kubectl version)",
)
_CAUSES: dict[type[kube.ApiError], tuple[type[FluxQueueError], str]] = {
    kube.AlreadyExists: (
        NameTaken,
        _OTHER_NAME,
    ),
    kube.NotFound: (NoSuchWork, "check name and namespace"),
    kube.Forbidden: (NotPermitted, "ask for this right (kubectl auth can-i shows what you have)"),
    kube.Unauthorized: (NotPermitted, "renew the credentials of your kubeconfig"),
    kube.Invalid: (Refused, "correct the field that the message names"),
    kube.TooManyRequests: (NoCluster, "the API server is overloaded: try again later"),
    kube.ServerError: (OutcomeUnknown, "look whether the object exists before you repeat it"),
    kube.Undecodable: (NoCluster, "this is no API server that the client understands: check the address"),
}
