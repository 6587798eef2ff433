"""Which workloads a command is about: by names, labels, queue, state and age.

A person knows the labels of objects, and a FluxJob has only those that the queue gives it. So a label
selector selects a FluxJob that has the labels, and one whose object has them: the Job, the Pod, or a pod of
it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.metadata import PartialObject, PartialObjectMetadata
from fluxqueue.cli.api_client import ApiClient, ApiRefused
from fluxqueue.cli.jobs import same_kind, state_of
from fluxqueue.cli.listing import collection
from fluxqueue.cli.tables import instant
from fluxqueue.cli.usage_errors import UsageParser

__all__ = [
    "STATES",
    "Stated",
    "WorkloadSelection",
    "add_selection_options",
    "is_called",
    "labelled_uids",
    "read_states",
]

STATES = tuple(state.lower() for state in State)
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_PAGE = "500"
_FORBIDDEN = 403


class _Metas(PartialObject, frozen=True):
    items: tuple[PartialObjectMetadata, ...] | None = None
    metadata: dict[str, object] | None = None


@dataclass(frozen=True)
class WorkloadSelection:
    """What is selected; an empty field selects all, and ``namespace`` None means all namespaces.

    Attributes
    ----------
    names
        Names of FluxJobs or of their objects.
    selector
        Labels, in the words of kubectl.
    queue, states
        A queue, and states in lower case.
    since
        Only what has not ended before.
    user
        Who submitted it; `SELF` until it is known who asks.
    """

    namespace: str | None = "default"
    names: tuple[str, ...] = ()
    selector: str = ""
    queue: str = ""
    states: frozenset[str] = frozenset()
    since: datetime | None = None
    user: str = ""

    def takes(self, job: FluxJob) -> bool:
        """True if a FluxJob is selected; whether it has the labels is not decided here."""
        ended = instant(job.status.finished_at)
        return (
            (not self.names or any(is_called(job, name) for name in self.names))
            and (not self.queue or job.spec.queue == self.queue)
            and (not self.states or state_of(job).lower() in self.states)
            and (not self.user or job.status.submitted_by == self.user)
            and (self.since is None or ended is None or ended >= self.since)
        )


def is_called(job: FluxJob, name: str) -> bool:
    """True if a name that a person wrote is that of a FluxJob or of its object."""
    kind, slash, rest = name.rpartition("/")
    if kind.lower() in ("fj", "fluxjob", "fluxjobs"):
        return job.metadata.name == rest
    return job.metadata.name == name or (
        job.spec.object_ref.name == rest and same_kind(job.spec.object_ref.kind, kind)
        if slash
        else job.spec.object_ref.name == name
    )


def labelled_uids(client: ApiClient, namespace: str | None, selector: str) -> Callable[[FluxJob], bool]:
    """Return a function that tells whether a FluxJob, or its object, has the labels now.

    Raises
    ------
    ClusterError
        The selector cannot be read, or the server refuses. Jobs or Pods that the person may not list select
        nothing.
    """
    where = f"/namespaces/{namespace}" if namespace else ""
    uids = {meta.metadata.uid for meta in _metas(client, collection(names.FLUXJOBS, namespace), selector)}
    for path in (f"/apis/batch/v1{where}/jobs", f"/api/v1{where}/pods"):
        try:
            for each in _metas(client, path, selector):
                uids.add(each.metadata.uid)
                if (owner := each.metadata.controller) is not None and owner.kind == "Job":
                    uids.add(owner.uid)
        except ApiRefused as refused:
            if refused.status != _FORBIDDEN:
                raise

    def has_labels(job: FluxJob) -> bool:
        concerned = {
            job.metadata.uid,
            job.spec.object_ref.uid,
            *(owner.uid for owner in job.metadata.owner_references or ()),
        }
        return not concerned.isdisjoint(uids)

    return has_labels


def _metas(client: ApiClient, path: str, selector: str) -> list[PartialObjectMetadata]:
    found: list[PartialObjectMetadata] = []
    params: dict[str, str] = {"limit": _PAGE, "labelSelector": selector}
    while True:
        page = msgspec.json.decode(client.get(path, params, _METADATA), type=_Metas)
        found += page.items or ()
        token = str((page.metadata or {}).get("continue") or "")
        if not token:
            return found
        params["continue"] = token


def add_selection_options(command: UsageParser, queue_flags: Sequence[str] = ("-q", "--queue")) -> None:
    """Add the options that select workloads; ``queue_flags`` are those of the queue,
    where ``-q`` has another meaning.
    """
    labels = "label selector, as kubectl's: of the workloads' objects"
    command.add_argument("-l", "--selector", action=Stated, default="", metavar="SELECTOR", help=labels)
    command.add_argument(
        *queue_flags,
        action=Stated,
        dest="of_queue",
        default="",
        metavar="QUEUE",
        help="only what is in this queue",
    )
    states = f"only these: {', '.join(STATES)}"
    command.add_argument(
        "--state", action=Stated, default="", metavar="STATE[,STATE]", help=states, type=read_states
    )


class Stated(argparse.Action):
    """Keeps a value that is not empty: with a variable that is not set,
    a command would change more than was meant.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Keep a value, or refuse an empty one."""
        del parser
        if not values:
            raise argparse.ArgumentError(self, f"{option_string} is empty: give a value, or leave it out")
        setattr(namespace, self.dest, values)


def read_states(text: str) -> frozenset[str]:
    """Read a list of states."""
    states = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if unknown := sorted(states - set(STATES)):
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)} is not a state; there are {', '.join(STATES)}"
        )
    return states
