"""`kubectl fluxqueue logs`: what all pods of a workload print, each line with the rank of its pod, as
``flux job attach -l`` prints it.

Pods that are created later, because others failed or the workload grew or was requeued, are followed too.
Each followed pod has a connection of its own, so their number is limited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.lookup import fluxjobs_of, observed
from fluxqueue.cli.pod_placement import placement, pod_state
from fluxqueue.cli.simulated_nodes import why_nothing_runs
from fluxqueue.cli.tables import paint

__all__ = ["MOST_FOLLOWED", "LogOptions", "follow_logs", "print_logs"]

MOST_FOLLOWED: Final = 64
_POLL_S = 1.0
_COLOURS = ("good", "busy", "waits", "bad")
_NOT_YET = 400
_DELETED = 404
_UNREACHED = 500
_HAS_LOG = ("Running", "Succeeded", "Failed")


@dataclass(frozen=True)
class LogOptions:
    """What is printed.

    Attributes
    ----------
    container
        Of the pods; empty: the first one.
    tail
        The last lines of each pod; None: all.
    since_s
        Only what is not older, in seconds; None: all.
    ranks
        Only these; empty: all.
    prefix, colour
        Begin each line with the rank, in a colour.
    """

    container: str = ""
    tail: int | None = None
    since_s: int | None = None
    ranks: frozenset[int] = frozenset()
    prefix: bool = True
    colour: bool = False


@dataclass
class _Printer:
    """Writes whole lines, from several threads."""

    out: TextIO
    options: LogOptions
    width: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, label: str, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\n")
        before = f"{label.rjust(self.width)}: " if self.options.prefix else ""
        if before and self.options.colour:
            before = paint(before, _COLOURS[hash(label) % len(_COLOURS)])
        with self.lock:
            self.out.write(f"{before}{text}\n")
            self.out.flush()


def print_logs(
    client: ApiClient, jobs: Sequence[FluxJob], options: LogOptions, out: TextIO, notes: TextIO
) -> int:
    """Print what the pods of some workloads have printed so far, one pod after the other.

    Returns
    -------
    int
        0, or 1 if no pod has a log.
    """
    printed = 0
    for job in jobs:
        pods = _pods(client, job, options)
        if not pods:
            notes.write(f"{_title(job)} has no pods{_of_ranks(options)} now ({state_of(job)}).\n")
        printer = _Printer(out, options, _width(pods))
        for label, pod in pods:
            if not pod.spec.node_name:  # the API server answers with an empty log
                notes.write(_without_log(label, pod))
                continue
            try:
                for line in client.lines(_path(pod), _parameters(pod, options)):
                    printer.write(label, line)
                printed += 1
            except ApiRefused as error:
                if error.status not in (_NOT_YET, _DELETED):
                    raise _explained(client, pod, error) from None
                notes.write(
                    f"{label}: {pod.metadata.name} was deleted.\n"
                    if error.status == _DELETED
                    else _without_log(label, pod, str(error))
                )
    return 0 if printed else 1


def follow_logs(client: ApiClient, job: FluxJob, options: LogOptions, out: TextIO, notes: TextIO) -> int:
    """Print what the pods of a workload print, until it has ended.

    Raises
    ------
    ClusterError
        It has too many pods, or the server refuses.
    """
    printer = _Printer(out, options)
    following: dict[str, threading.Thread] = {}
    errors: list[ClusterError] = []
    unread: set[str] = set()
    while True:
        pods = _pods(client, job, options)
        _check_number(job, pods)
        printer.width = max(printer.width, _width(pods))
        for label, pod in pods:
            # its container starts later than another one of it
            if pod.metadata.uid in unread and pod.status.phase == "Running":
                unread.discard(pod.metadata.uid)
                del following[pod.metadata.uid]
            if pod.metadata.uid not in following and pod.status.phase in _HAS_LOG:
                arguments = (client.again(), pod, label, printer, errors, unread)
                following[pod.metadata.uid] = threading.Thread(target=_follow, args=arguments, daemon=True)
                following[pod.metadata.uid].start()
        if errors:
            raise errors[0]
        if (
            state_of(job) in list(State)
            and State(state_of(job)).ended
            and not any(thread.is_alive() for thread in following.values())
        ):
            notes.writelines(_without_log(label, pod) for label, pod in pods if pod.metadata.uid in unread)
            if not following:
                notes.write(
                    f"{_title(job)} has ended ({state_of(job)}), and no pod{_of_ranks(options)} has a log "
                    "any more.\n"
                )
            return 0
        time.sleep(_POLL_S)
        (job,) = fluxjobs_of(client, job.metadata.namespace, f"fluxjob/{job.metadata.name}")


def _follow(
    client: ApiClient, pod: Pod, label: str, printer: _Printer, errors: list[ClusterError], unread: set[str]
) -> None:
    """Print a pod's log until it ends; it is added to ``unread`` if it has none yet."""
    with client:
        for _ in range(3):
            try:
                for line in client.lines(_path(pod), {**_parameters(pod, printer.options), "follow": "true"}):
                    printer.write(label, line)
                return
            except ApiRefused as error:
                if error.status == _NOT_YET:
                    time.sleep(_POLL_S)
                    continue
                if error.status != _DELETED:
                    errors.append(_explained(client, pod, error))
                return
            except ClusterError as error:
                errors.append(error)
                return
        unread.add(pod.metadata.uid)


def _without_log(label: str, pod: Pod, why: str = "") -> str:
    """Return that a pod has no log; of one that has ended, which will get none,
    also what its node says about that.
    """
    said = f": {why.partition(': ')[2]}" if why and pod.terminal else ""
    return (
        f"{label}: {pod.metadata.name} has no log{'' if pod.terminal else ' yet'} ({pod_state(pod)}){said}.\n"
    )


def _explained(client: ApiClient, pod: Pod, error: ApiRefused) -> ClusterError:
    """Return the error to be shown for a log that cannot be read:
    the API server cannot reach a node that is simulated.
    """
    why = why_nothing_runs(client, [pod.spec.node_name or ""]) if error.status >= _UNREACHED else ""
    return ClusterError(f"error: {why}") if why else error


def _pods(client: ApiClient, job: FluxJob, options: LogOptions) -> list[tuple[str, Pod]]:
    """Return the pods with their labels: ranks, or names where a pod has no rank."""
    seen = observed(client, job)
    placed = [(each.rank, each.pod) for each in placement(job, seen.pods) if each.pod is not None]
    wanted = [(rank, pod) for rank, pod in placed if not options.ranks or rank in options.ranks]
    return [(pod.metadata.name if rank is None else str(rank), pod) for rank, pod in wanted]


def _check_number(job: FluxJob, pods: Sequence[tuple[str, Pod]]) -> None:
    if len(pods) > MOST_FOLLOWED:
        raise ClusterError(
            f"error: {_title(job)} has {len(pods)} pods, and {MOST_FOLLOWED} can be followed at once: "
            f"choose some with --rank 0-{MOST_FOLLOWED - 1}"
        )


def _parameters(pod: Pod, options: LogOptions) -> dict[str, str]:
    wanted = {"tailLines": options.tail, "sinceSeconds": options.since_s}
    given = {name: str(value) for name, value in wanted.items() if value is not None}
    container = options.container or (pod.spec.containers[0].name if pod.spec.containers else "")
    return given | ({"container": container} if container else {})


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/log"


def _width(pods: Sequence[tuple[str, Pod]]) -> int:
    return max((len(label) for label, _ in pods), default=1)


def _of_ranks(options: LogOptions) -> str:
    return " of these ranks" if options.ranks else ""


def _title(job: FluxJob) -> str:
    return object_name(job) or job.metadata.name
