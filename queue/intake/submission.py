"""An object, or a group of objects, in the one form in which the resolvers read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.moldable import JobSize
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.intake.problems import Problem
from fluxqueue.queue.model.records import ReleaseMode, Workload
from fluxqueue.queue.model.sources.native_groups import GroupClaims
from fluxqueue.queue.model.spec_overrides import NO_OVERRIDES, SpecOverrides

__all__ = [
    "NEW_WORKLOAD",
    "NO_NATIVE_SCHEDULING",
    "NativeScheduling",
    "PodTemplate",
    "Submission",
    "WorkloadContext",
]


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """What is known of an object's workload so far.

    Attributes
    ----------
    row
        Its row; None if it is new.
    overrides
        What people set in its FluxJob. It counts before what the object says.
    extra_requests
        What each pod of a Job requests beyond its template, in the graph's units
        (`fluxqueue.queue.model.extra_requests`).
    """

    row: Workload | None = None
    overrides: SpecOverrides = NO_OVERRIDES
    extra_requests: Mapping[str, int] = field(default_factory=dict)

    def accepted_by(self, queue: str) -> bool:
        """True if the queue accepted it before: a drained queue continues with such work."""
        row = self.row
        return (
            row is not None
            and row.queue == queue
            and row.reason not in (Reason.QUEUE_NOT_ALLOWED, Reason.UNKNOWN_QUEUE)
        )


NEW_WORKLOAD = WorkloadContext()


@dataclass(frozen=True, slots=True)
class NativeScheduling:
    """What is known of a Job's own scheduling.

    Attributes
    ----------
    domain
        Label of nodes that must have one value on all nodes of its pods; empty: any nodes.
    problem
        Why that cannot be matched; empty if it can.
    claims
        Claims of devices that its pods share, if it states them itself.
    """

    domain: str = ""
    problem: str = ""
    claims: GroupClaims = field(default_factory=dict)


NO_NATIVE_SCHEDULING = NativeScheduling()


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A number of pods with the same spec.

    Attributes
    ----------
    spec
        Of each pod.
    count
        How many pods.
    labels
        Each set of labels that some of them have.
    complete
        True for the spec of a pod. False for a template: admission will still add the defaults of its
        namespace.
    """

    spec: PodSpec
    count: int
    labels: tuple[Mapping[str, str], ...]
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is submitted to the queue, and is matched as one workload.

    Attributes
    ----------
    meta
        Metadata of the object. For a group, put together from the group and its pods.
    api_version, kind
        Of the object.
    templates
        Its pods, at least one entry.
    slots
        Pods that run at once, the services pod included.
    services
        The services pod of a MiniCluster, as it will be created.
    deadline_s
        ``activeDeadlineSeconds``, from which a duration can be assumed.
    ends
        True if its pods end by themselves, so that a duration can be stated.
    release_mode
        How it is released.
    done_indexes
        Completion indexes that need no node any more (``0-2,5``).
    extra_requests
        What each pod requests beyond its template, in the graph's units.
    annotations
        Where it says what it asks of the topology: those of the object and of its pod template, the first
        count first.
    topology
        What it asks of the topology, if that does not follow from annotations and from the defaults of its
        queue.
    size
        Of a Job, for whether it may start with fewer pods; None: it is none.
    partly_done
        True if some of its pods have completed, so that fewer run at once than its spec says.
    domain
        Label of nodes that must have one value on the nodes of all its pods, as its object says; empty: none.
    group_claims
        Claims of devices that all its pods share that name them, as its object says.
    beside
        Properties that its node must have, because its pods lie below one vertex with others.
    problem
        What is wrong with the object itself.
    """

    meta: ObjectMeta
    api_version: str
    kind: str
    templates: tuple[PodTemplate, ...]
    slots: int = 1
    services: Pod | None = None
    deadline_s: int | None
    ends: bool
    release_mode: ReleaseMode
    done_indexes: str = ""
    extra_requests: Mapping[str, int] = field(default_factory=dict)
    annotations: tuple[Mapping[str, str] | None, ...] = ()
    topology: TopologyRequest | None = None
    size: JobSize | None = None
    partly_done: bool = False
    domain: str = ""
    group_claims: GroupClaims = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def title(self) -> str:
        """The object as messages name it: kind, namespace and name."""
        return f"{self.kind} {self.meta.namespace}/{self.meta.name}"
