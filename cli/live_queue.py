"""The queue as it is now, for a screen that stays open: FluxJobs by a watch, nodes and queues read again
every few seconds.

Two threads read, each with a connection of its own, and the screen takes what they have at any time. Where
the API server does not answer, the last state stays and a note says so, until it answers again. A person who
may not see the work of all namespaces sees that of one.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.nodes import Node
from fluxqueue.cli import fluxjob_edits
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.explain import explain
from fluxqueue.cli.job_changes import job_changes
from fluxqueue.cli.listing import list_jobs, list_queues
from fluxqueue.cli.lookup import observed
from fluxqueue.cli.node_use import NodeUse, list_nodes, node_uses
from fluxqueue.cli.remedies import described

__all__ = ["EDITS", "LiveQueue", "QueueView"]

EDITS: dict[str, Callable[[], fluxjob_edits.FluxJobEdit]] = {
    "hold": fluxjob_edits.held,
    "release": fluxjob_edits.released,
    "cancel": fluxjob_edits.cancelled,
}
_FORBIDDEN = 403
_NODES_EVERY_S = 5.0
_AGAIN_S = 2.0
_WATCH_S = 300.0
_JOBS_NOTE, _NODES_NOTE, _QUEUES_NOTE = "jobs", "nodes", "queues"


@dataclass(frozen=True)
class QueueView:
    """What is known at one moment.

    Attributes
    ----------
    version
        Another number if anything has changed.
    jobs, queues
        In no order.
    nodes
        As the API server has them.
    notes
        What cannot be shown, and why.
    """

    version: int = 0
    jobs: tuple[FluxJob, ...] = ()
    nodes: tuple[Node, ...] = ()
    queues: tuple[FluxQueue, ...] = ()
    notes: tuple[str, ...] = ()

    def uses(self) -> list[NodeUse]:
        """Return the nodes with the work on them."""
        return node_uses(self.nodes, self.jobs)


class LiveQueue:
    """The queue of a cluster, and what a person does to it.

    Parameters
    ----------
    connect
        Opens a client of the API server.
    namespace
        Whose work is shown; None: of all.
    fallback
        The namespace of a person who may not see all.
    """

    def __init__(self, connect: Callable[[], ApiClient], namespace: str | None, fallback: str) -> None:
        self._connect = connect
        self._namespace = namespace
        self._fallback = fallback
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._jobs: dict[str, FluxJob] = {}
        self._nodes: Sequence[Node] = ()
        self._queues: Sequence[FluxQueue] = ()
        self._notes: dict[str, str] = {}
        self._version = 0

    def start(self) -> None:
        """Begin to read. The threads end with the program."""
        for target in (self._follow_jobs, self._read_others):
            threading.Thread(target=target, name=target.__name__, daemon=True).start()

    def stop(self) -> None:
        """Read no more after what is under way."""
        self._ended.set()

    def view(self) -> QueueView:
        """Return what is known now."""
        with self._lock:
            notes = tuple(dict.fromkeys(note for note in self._notes.values() if note))
            return QueueView(
                self._version, tuple(self._jobs.values()), tuple(self._nodes), tuple(self._queues), notes
            )

    def edit(self, verb: str, job: FluxJob) -> str:
        """Do one of `EDITS` to a workload, and return what was done.

        Raises
        ------
        ClusterError
            It cannot be done, or the server refuses.
        """
        change = EDITS[verb]()
        if objection := change.objection(job):
            raise ClusterError(f"{fluxjob_edits.title(job)} {objection}")
        out = io.StringIO()
        with self._connect() as client:
            fluxjob_edits.edit_selected(client, [job], change, out, lambda _: True)
        said = out.getvalue().strip()
        return f"{fluxjob_edits.title(job)} {change.done} already" if said.startswith("Nothing") else said

    def explain(self, job: FluxJob, now: datetime) -> str:
        """Return the explanation of a workload; errors as `edit`."""
        with self._connect() as client:
            return explain(observed(client, job), now)

    def _follow_jobs(self) -> None:
        while not self._ended.is_set():
            try:
                with self._connect() as client:
                    self._watch(client)
            except Exception as error:  # the screen stays open, and shows what is wrong
                self._note(_JOBS_NOTE, _said(error))
                self._ended.wait(_AGAIN_S)

    def _watch(self, client: ApiClient) -> None:
        try:
            listed, version = list_jobs(client, self._namespace)
        except ApiRefused as error:
            if error.status != _FORBIDDEN or self._namespace is not None:
                raise
            self._namespace = self._fallback
            self._note(
                _NODES_NOTE + "/all",
                f"Only the work of namespace {self._fallback}: you may not list that of all.",
            )
            listed, version = list_jobs(client, self._namespace)
        with self._lock:
            self._jobs = {item.job.metadata.uid: item.job for item in listed}
            self._notes.pop(_JOBS_NOTE, None)
            self._version += 1
        # A server that vanished without a word is noticed when the watch should have ended.
        for kind, changed in job_changes(client, self._namespace, version, time.monotonic() + _WATCH_S):
            with self._lock:
                if kind == "DELETED":
                    self._jobs.pop(changed.job.metadata.uid, None)
                else:
                    self._jobs[changed.job.metadata.uid] = changed.job
                self._version += 1
            if self._ended.is_set():
                return

    def _read_others(self) -> None:
        while not self._ended.is_set():
            for note, read in ((_NODES_NOTE, self._read_nodes), (_QUEUES_NOTE, self._read_queues)):
                try:
                    with self._connect() as client:
                        read(client)
                    self._note(note, "")
                except ApiRefused as error:
                    self._note(
                        note, f"You may not list {note}." if error.status == _FORBIDDEN else described(error)
                    )
                except Exception as error:  # as above
                    self._note(note, _said(error))
            self._ended.wait(_NODES_EVERY_S)

    def _read_nodes(self, client: ApiClient) -> None:
        nodes = list_nodes(client)
        with self._lock:
            self._nodes = nodes
            self._version += 1

    def _read_queues(self, client: ApiClient) -> None:
        queues = list_queues(client)
        with self._lock:
            self._queues = queues
            self._version += 1

    def _note(self, about: str, text: str) -> None:
        with self._lock:
            if self._notes.get(about, "") != text:
                self._notes[about] = text
                self._version += 1


def _said(error: Exception) -> str:
    return described(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"
