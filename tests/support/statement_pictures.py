"""One reading of everything that statements about work are compared with: FluxJobs, the cluster, and the
tables of the queue.

The parts are read one after the other, so a single picture may contradict itself. What is false in every
picture for a while is false.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from support.replicas import queues

from fluxqueue.api import names
from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.api.fluxjobs import FluxJob, State, is_named_for_its_object
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObjectMetadata
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError, administrator_client
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.queue.model.records import Allocation, Reservation, Workload, WorkloadId
from fluxqueue.queue.store.reservations import reservation_of
from fluxqueue.queue.store.rows import allocation_of, workload_of

__all__ = ["Ledger", "Picture", "PictureReader", "ShownWork", "seconds_at"]

_T = TypeVar("_T")
for _kind in (FluxJob, FluxQueue, Job, Node, PartialObjectMetadata, Pod, ResourceQuota):
    msgspec.json.Decoder(_kind)  # two threads that read the first object of a kind at once end the process
_FLUX = f"/apis/{names.API_VERSION}"
_WORKLOADS = """
SELECT * FROM fluxqueue.workload WHERE finished_at IS NULL OR finished_at > now() - interval '1 minute'
"""
_ALLOCATIONS = """
SELECT a.jobid AS a_jobid, a.workload AS a_workload, a.kind AS a_kind, a.shares AS a_shares,
       a.granted_at AS a_granted_at, a.starts_at AS a_starts_at, a.ends_at AS a_ends_at,
       a.released_at AS a_released_at, a.freed_at AS a_freed_at,
       a.release_attempts AS a_release_attempts, s.ranks, s.nodes, s.states, s.pod_uids, s.pod_names
  FROM fluxqueue.allocation a
  LEFT JOIN LATERAL (
       SELECT array_agg(rank ORDER BY rank) AS ranks, array_agg(node ORDER BY rank) AS nodes,
              array_agg(state ORDER BY rank) AS states,
              array_agg(pod_uid ORDER BY rank) AS pod_uids, array_agg(pod_name ORDER BY rank) AS pod_names
         FROM fluxqueue.slot WHERE slot.jobid = a.jobid) s ON true
 WHERE a.freed_at IS NULL
"""
_RESERVATIONS = (
    "SELECT workload, jobid, first_at, current_at, ends_at, shares, cause FROM fluxqueue.reservation"
)
_LEADER_ANSWERS_S = 2.0


def seconds_at(text: str | None) -> datetime | None:
    """Read a time of a FluxJob, which has whole seconds; None if there is none."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) if text else None


@dataclass(frozen=True)
class Ledger:
    """The tables of the queue: work that has not ended or did so a moment ago, live allocations,
    and reservations.
    """

    at: datetime
    workloads: tuple[Workload, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    @cached_property
    def by_uid(self) -> Mapping[str, Workload]:
        return {each.uid: each for each in self.workloads}

    @cached_property
    def by_id(self) -> Mapping[WorkloadId, Workload]:
        return {each.id: each for each in self.workloads}


@dataclass(frozen=True)
class ShownWork:
    """A FluxJob with all that it speaks of.

    Attributes
    ----------
    fluxjob, conditions
        What people read.
    row
        Its workload.
    allocations
        What the workload holds.
    reservation
        What is reserved for it.
    job
        Its Job, if it is one that exists.
    pods
        Its pods.
    """

    fluxjob: FluxJob
    row: Workload
    conditions: tuple[Mapping[str, Any], ...] = ()
    allocations: tuple[Allocation, ...] = ()
    reservation: Reservation | None = None
    job: Job | None = None
    pods: tuple[Pod, ...] = ()

    @property
    def state(self) -> State:
        """The state that people read."""
        return State(self.fluxjob.status.state or State.PENDING)

    @property
    def title(self) -> str:
        """Kind, namespace and name of its object."""
        return self.row.ref

    @property
    def grant(self) -> Allocation | None:
        """What it was matched for, if it holds that."""
        return next((each for each in self.allocations if not each.remnant), None)

    @property
    def as_stored(self) -> bool:
        """True if state, reason, message and nodes are those of the workload.
        Otherwise the FluxJob is to be written.
        """
        status, row = self.fluxjob.status, self.row
        return (status.state, status.nodes) == (row.state, row.hosts) and (
            (status.reason, status.message) == (row.reason, row.message) or status.reason == "TimeLimit"
        )


@dataclass(frozen=True)
class Picture:
    """What was read at about the same time.

    Attributes
    ----------
    at
        The time of the queue's clock, which is that of Postgres.
    work
        The FluxJobs that have a workload.
    quotas, claims
        By namespace and name; the claims are those of volumes.
    """

    ledger: Ledger
    work: tuple[ShownWork, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    queues: Mapping[str, FluxQueue] = field(default_factory=dict)
    accounts: frozenset[str] = frozenset()
    reservations: frozenset[str] = frozenset()
    quotas: Mapping[tuple[str, str], ResourceQuota] = field(default_factory=dict)
    claims: frozenset[tuple[str, str]] = frozenset()
    ran: frozenset[str] = frozenset()
    """Uids of pods of which some picture so far showed that they ran,
    and of the objects that they belong to."""

    @property
    def at(self) -> datetime:
        """The time of the queue's clock, which is that of Postgres."""
        return self.ledger.at

    def is_up(self, node: str | None) -> bool:
        """True if a node exists and is ready."""
        return node is not None and node in self.nodes and self.nodes[node].status.ready


class PictureReader:
    """Reads pictures of a cluster. Objects of the API server come from its cache.

    Parameters
    ----------
    cluster
        A running cluster.
    """

    def __init__(self, cluster: InProcessCluster) -> None:
        self._cluster = cluster
        self._client: ApiServerClient | None = None
        self._ran: set[str] = set()

    def close(self) -> None:
        """Close the connection to the API server; the next picture opens a new one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def leader_life(self) -> object | None:
        """Return something that is equal as long as the same process leads and misses nothing;
        None if there is none.
        """
        lives = [
            (name, self._cluster.programs[name].process.pid)
            for name in queues(self._cluster)
            if self._leads(name)
        ]
        return lives[0] if len(lives) == 1 else None

    def read(self) -> Picture:
        """Return a picture; OSError, ApiServerError or psycopg.Error if a part cannot be read."""
        client = self._client = self._client or administrator_client(self._cluster.control_plane.folder)
        shown = _items(client, f"{_FLUX}/{names.FLUXJOBS}")
        ledger = self._ledger()
        pods = _read(client, "/api/v1/pods", Pod)
        jobs = _read(client, "/apis/batch/v1/jobs", Job)
        for pod in pods:
            if _has_run(pod):
                self._ran.add(pod.metadata.uid)
                self._ran.update(owner.uid for owner in pod.metadata.owner_references or ())
        return Picture(
            ledger=ledger,
            work=_work(shown, ledger, pods, jobs),
            nodes={node.metadata.name: node for node in _read(client, "/api/v1/nodes", Node)},
            pods=tuple(pods),
            queues={
                queue.metadata.name: queue
                for queue in _read(client, f"{_FLUX}/{names.FLUXQUEUES}", FluxQueue)
            },
            accounts=_names(client, names.FLUXACCOUNTS),
            reservations=_names(client, names.FLUXRESERVATIONS),
            quotas={
                (quota.metadata.namespace, quota.metadata.name): quota
                for quota in _read(client, "/api/v1/resourcequotas", ResourceQuota)
            },
            claims=frozenset(
                (each.metadata.namespace, each.metadata.name)
                for each in _read(client, "/api/v1/persistentvolumeclaims", PartialObjectMetadata)
            ),
            ran=frozenset(self._ran),
        )

    def _leads(self, name: str) -> bool:
        program = self._cluster.programs[name]
        if not program.process.running:
            return False
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{program.port}/readyz", timeout=_LEADER_ANSWERS_S
            ) as answer:
                said = json.load(answer)
        except (OSError, ValueError):  # it is not ready
            return False
        return bool(said["role"] == "leader" and not said["missing"])

    def _ledger(self) -> Ledger:
        # A session of its own for each picture: while no queue leads there is none, as a restore demands.
        with psycopg.connect(self._cluster.database_dsn, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            set_json_loads(lambda text: text.encode() if isinstance(text, str) else bytes(text), connection)
            ((at, *_),) = (tuple(row.values()) for row in connection.execute("SELECT clock_timestamp()"))
            return Ledger(
                at,
                tuple(map(workload_of, connection.execute(_WORKLOADS))),
                tuple(map(allocation_of, connection.execute(_ALLOCATIONS))),
                tuple(map(reservation_of, connection.execute(_RESERVATIONS))),
            )


def _work(
    shown: Iterable[Mapping[str, Any]], ledger: Ledger, pods: Iterable[Pod], jobs: Iterable[Job]
) -> tuple[ShownWork, ...]:
    """Put together what belongs to one FluxJob.
    A FluxJob whose workload is older than what was read says nothing new.
    """
    jobs_by_uid = {job.metadata.uid: job for job in jobs}
    by_uid: dict[str, Pod] = {}
    by_owner: dict[str, list[Pod]] = {}
    for pod in pods:
        by_uid[pod.metadata.uid] = pod
        if (owner := pod.metadata.controller) is not None:
            by_owner.setdefault(owner.uid, []).append(pod)
    held: dict[WorkloadId, list[Allocation]] = {}
    for allocation in ledger.allocations:
        held.setdefault(allocation.workload, []).append(allocation)
    reserved = {each.workload: each for each in ledger.reservations}
    work = []
    for item in shown:
        fluxjob = msgspec.convert(item, FluxJob)
        row = ledger.by_uid.get(fluxjob.spec.object_ref.uid)
        if row is None or not is_named_for_its_object(fluxjob):
            continue
        allocations = tuple(held.get(row.id, ()))
        own = {pod.metadata.uid: pod for pod in by_owner.get(row.uid, ()) if row.kind == "Job"}
        members = [owner.uid for owner in fluxjob.metadata.owner_references or () if owner.kind == "Pod"]
        for uid in (row.uid, *members, *(uid for each in allocations for uid in each.pod_uids)):
            if uid in by_uid:
                own[uid] = by_uid[uid]
        work.append(
            ShownWork(
                fluxjob,
                row,
                conditions=tuple(item.get("status", {}).get("conditions", ())),
                allocations=allocations,
                reservation=reserved.get(row.id),
                job=jobs_by_uid.get(row.uid),
                pods=tuple(own.values()),
            )
        )
    return tuple(work)


def _has_run(pod: Pod) -> bool:
    return pod.status.phase in ("Running", "Succeeded", "Failed")


def _items(client: ApiServerClient, path: str) -> list[Any]:
    try:
        return list(client.get(path, resourceVersion="0")["items"])
    except ApiServerError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return []  # the cluster does not have this kind
        raise


def _read(client: ApiServerClient, path: str, kind: type[_T]) -> list[_T]:
    return [msgspec.convert(item, kind) for item in _items(client, path)]


def _names(client: ApiServerClient, plural: str) -> frozenset[str]:
    return frozenset(each.metadata.name for each in _read(client, f"{_FLUX}/{plural}", PartialObjectMetadata))
