"""What an object asks of the queue.

A pure reading of a Job or Pod, made each time the object changes: which queue, which priority, how long, how many pods of what size on
which nodes, and how they will be let go. Whatever keeps it from being matched as it stands becomes a reason with a sentence that names
the object, the field and the remedy; an object is never dropped because something about it is wrong.

What a person wished in the FluxJob (`fluxqueue.queue.steering`) counts before what the object says. A drained queue goes on with what it
had accepted before, which is told from the row: it stands in that queue without a reason to be there in vain.

Identity is the object's uid, opting out stands in the namespace or the pod template, and nothing here depends on labels a user could set
to get ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from fluxqueue.api import hostlists, names
from fluxqueue.api.durations import LONGEST_S, InvalidDuration, parse_duration
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Members, QueueState
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.objects import Job, ObjectMeta, Pod, PodSpec, Taint
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass, with_defaults
from fluxqueue.api.priorities import InvalidPriority, parse_priority
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.minicluster.marks import InvalidMarks
from fluxqueue.queue.constraints import InexpressibleConstraint, constraint_of, keeps_apart
from fluxqueue.queue.fluxclusters import is_flux_cluster, job_served_by, services_of, with_flux
from fluxqueue.queue.groups import JOB_SET, POD_GROUP, Gathering, GroupKey
from fluxqueue.queue.jobspecs import Beside, Role, jobspec_of, shape_of, slot_resources
from fluxqueue.queue.records import NO_WISHES, NewWorkload, ReleaseMode, Wishes, Workload
from fluxqueue.queue.requeues import done_indexes, pods_wanted, write_indexes

__all__ = [
    "QueueDefaults",
    "Standing",
    "Surroundings",
    "describe_group",
    "describe_job",
    "describe_pod",
    "owning_job_uid",
    "release_mode_of",
]

_JOB_CONTROLLER = "kubernetes.io/job-controller"
_LONGEST_REPEATED_LIST = 1_000
"""Indexes of a Job of one pod at a time whose hostlist still fits an annotation easily."""
_EVERYBODY = Members()
_LARGEST_PRIORITY = 2**31 - 1
"""Of the FluxJob's field; a system PriorityClass and a queue's own priority together may be more."""


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """What a FluxQueue decides about the work in it.

    Attributes
    ----------
    priority, max_priority
        Added to each, and the highest one may have (None: any).
    duration_s, max_duration_s
        Assumed where nobody says one, and the longest that may be asked for (None: any).
    node_selector
        Labels of the nodes it may use; empty, all.
    members
        The namespaces that may use it.
    """

    priority: int = 0
    max_priority: int | None = None
    duration_s: int = names.DEFAULT_DURATION_S
    max_duration_s: int | None = None
    state: QueueState = QueueState.OPEN
    node_selector: Mapping[str, str] = field(default_factory=dict)
    members: Members = _EVERYBODY


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What reading an object needs to know of the cluster around it.

    Attributes
    ----------
    queues
        Rules by name.
    namespace_labels, limit_ranges
        Of the object's namespace.
    priority_classes, default_priority
        Values by name, and the one of pods that name none.
    runtime_classes
        By name.
    taints
        That stand on nodes at present.
    """

    queues: Mapping[str, QueueDefaults]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    limit_ranges: tuple[LimitRange, ...] = ()
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    default_priority: int = 0
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """What has become of the object so far: its row, a person's wishes, and the nodes it is not to be matched on for now."""

    row: Workload | None = None
    wishes: Wishes = NO_WISHES
    avoided: tuple[str, ...] = ()

    def accepted_by(self, queue: str) -> bool:
        """Whether the queue took it before."""
        row = self.row
        return row is not None and row.queue == queue and row.reason not in (Reason.QUEUE_NOT_ALLOWED, Reason.UNKNOWN_QUEUE)


_NEW = Standing()


def describe_job(
    job: Job, around: Surroundings, standing: Standing = _NEW, *, has_gated_pods: bool = False, minicluster: MiniCluster | None = None
) -> NewWorkload | None:
    """Read a Job.

    Parameters
    ----------
    job
        As it stands now.
    around
        Queues, priorities and taints.
    standing
        Its row and the wishes of people, if there are any.
    has_gated_pods
        Whether pods of this Job carry our gate: a Job that runs although we did not release it is ours only then.
    minicluster
        The one the Job belongs to, if any: a place for its services pod is matched with those of the brokers.

    Returns
    -------
    NewWorkload or None
        None where the Job is not the queue's business: finished, going away, opted out, managed by somebody else, or running since
        before we came.
    """
    meta, spec = job.metadata, job.spec
    template = spec.template
    if (
        not meta.uid
        or job.finished
        or meta.deletion_timestamp
        or _opted_out(meta, template.metadata)
        or spec.managed_by not in (None, _JOB_CONTROLLER)
    ):
        return None
    if not spec.suspend and not has_gated_pods:
        return None
    where = f"Job {meta.namespace}/{meta.name}"
    wanted = pods_wanted(job)
    mode = release_mode_of(job)
    reason, message, asked, services = Reason.NONE, "", template.spec, None
    try:
        asked = with_flux(template.spec, template.metadata, meta.namespace)
        services = services_of(minicluster, job)
    except InvalidMarks as error:
        reason, message = Reason.INVALID_REQUEST, f"{where}: {error}"
    if not reason and spec.suspend and meta.annotation(names.SUSPENDED_BY_ANNOTATION) != names.SUSPENDED_BY_WEBHOOK:
        reason, message = Reason.USER_SUSPENDED, f"{where} was suspended by its user: set spec.suspend to false and it is matched"
    elif not reason and wanted < 1:
        reason, message = Reason.USER_SUSPENDED, f"{where} has spec.parallelism 0: raise it and the Job is matched"
    return _describe(
        meta,
        [_Pods(asked, max(wanted, 1))],
        around,
        standing,
        labels=template.metadata.labels or {},
        complete=False,
        api_version="batch/v1",
        kind="Job",
        pods=max(wanted, 0) + (1 if services is not None else 0),
        services=services,
        deadline_s=spec.active_deadline_seconds,
        ends=True,
        mode=mode,
        done=write_indexes(done_indexes(job)) if mode is ReleaseMode.PIN and wanted < spec.pods_at_once else "",
        reason=reason,
        message=message,
    )


def describe_pod(
    pod: Pod, around: Surroundings, standing: Standing = _NEW, *, surplus_of: str = "", grows: Workload | None = None
) -> NewWorkload | None:
    """Read a Pod that is matched on its own: a bare one, one whose owner is not a Job, or one by which a Job has grown.

    Parameters
    ----------
    pod
        As it stands now.
    around
        Queues, priorities and taints.
    standing
        Its row and the wishes of people, if there are any.
    surplus_of
        A group that is complete without it, in words: then it is not matched.
    grows
        The Job's workload, for a pod of a Job for which no place was matched: it goes where the Job went, and as long.

    Returns
    -------
    NewWorkload or None
        None where it is not ours: no gate of ours, going away, opted out, or a Job's.
    """
    meta, spec = pod.metadata, pod.spec
    if not meta.uid or not spec.gated_by(names.GATE) or meta.deletion_timestamp or pod.terminal or _opted_out(meta, meta):
        return None
    if grows is not None:
        return _describe_growth(pod, grows, around, standing)
    if owning_job_uid(pod):
        return None
    remedy = f"delete it, or raise the {names.POD_GROUP_SIZE_ANNOTATION} of all its pods before they are started"
    message = f"Pod {meta.namespace}/{meta.name} names {surplus_of}, which is complete without it: {remedy}" if surplus_of else ""
    return _describe(
        meta,
        [_Pods(spec, 1)],
        around,
        standing,
        labels={},
        api_version="v1",
        kind="Pod",
        deadline_s=spec.active_deadline_seconds,
        ends=_ends(spec),
        mode=ReleaseMode.POD,
        reason=Reason.INVALID_REQUEST if surplus_of else Reason.NONE,
        message=message,
    )


def _describe_growth(pod: Pod, job: Workload, around: Surroundings, standing: Standing) -> NewWorkload:
    meta, spec = pod.metadata, pod.spec
    labels = dict(meta.labels or {})
    if keeps_apart(spec, labels):
        standing = replace(standing, avoided=tuple(sorted({*standing.avoided, *hostlists.decode(job.hosts)} - {names.NO_NODE})))
    stated = {names.DURATION_ANNOTATION: str(job.duration_s)} if job.duration_s is not None else {}
    found = _describe(
        msgspec.structs.replace(meta, labels={**labels, names.QUEUE_LABEL: job.queue}, annotations={**(meta.annotations or {}), **stated}),
        [_Pods(spec, 1)],
        around,
        standing,
        labels=labels,
        api_version="v1",
        kind="Pod",
        deadline_s=None,
        ends=job.duration_s is not None,
        mode=ReleaseMode.POD,
        reason=Reason.NONE,
        message="",
    )
    return replace(found, priority=job.priority, duration_assumed=job.duration_assumed)


def describe_group(key: GroupKey, gathering: Gathering, around: Surroundings, standing: Standing = _NEW) -> NewWorkload:
    """Read a group that has no nodes yet: its oldest pod speaks for all of them, and each asks for a place of its own size."""
    members = gathering.members
    first = members[0]
    said = gathering.said or ObjectMeta()
    meta = msgspec.structs.replace(
        first.metadata,
        uid=gathering.uid,
        name=key.name,
        generation=gathering.generation,
        labels={**(said.labels or {}), **(first.metadata.labels or {})},
        annotations={**(said.annotations or {}), **(first.metadata.annotations or {})},
    )
    deadlines = [pod.spec.active_deadline_seconds for pod in members]
    return _describe(
        meta,
        [_Pods(first.spec, gathering.size)] if gathering.alike else [_Pods(pod.spec, 1) for pod in members],
        around,
        standing,
        labels={names.POD_GROUP_LABEL: key.name} if key.kind == POD_GROUP else {},
        api_version={POD_GROUP: "v1", JOB_SET: "jobset.x-k8s.io/v1alpha2"}.get(key.kind, "apps/v1"),
        kind=key.kind,
        deadline_s=None if None in deadlines else max(deadline for deadline in deadlines if deadline is not None),
        ends=all(_ends(pod.spec) for pod in members),
        mode=ReleaseMode.GROUP,
        pods=gathering.size,
        reason=gathering.reason,
        message=gathering.message,
    )


def _ends(spec: PodSpec) -> bool:
    return spec.restart_policy in ("Never", "OnFailure")


def owning_job_uid(pod: Pod) -> str | None:
    """The uid of the Job that a pod is a part of: that controls it, or beside whose pods it runs services; None if of none."""
    owner = pod.metadata.controller
    return owner.uid if owner and owner.kind == "Job" and owner.api_version.startswith("batch/") else job_served_by(pod)


def release_mode_of(job: Job) -> ReleaseMode:
    """How a Job will be let go: the first row of the table in architecture section 5 that fits."""
    spec = job.spec
    if not spec.suspend or is_flux_cluster(job) or job.metadata.annotation(names.REPLACE_ANNOTATION) == "pod":
        return ReleaseMode.GATE
    if spec.indexed and spec.completions == (1 if spec.parallelism is None else spec.parallelism):
        return ReleaseMode.PIN
    if spec.pods_at_once == 1 and (not spec.indexed or (spec.completions or 1) <= _LONGEST_REPEATED_LIST):
        return ReleaseMode.PIN
    return ReleaseMode.GATE


def _opted_out(meta: ObjectMeta, template: ObjectMeta) -> bool:
    return (
        template.label(names.MANAGED_LABEL) == "false"
        or meta.label(names.MANAGED_LABEL) == "false"
        or meta.label(names.KUEUE_QUEUE_LABEL) is not None
    )


@dataclass(frozen=True, slots=True)
class _Pods:
    """So many pods of a spec."""

    spec: PodSpec
    count: int


def _describe(
    meta: ObjectMeta,
    asked: Sequence[_Pods],
    around: Surroundings,
    standing: Standing,
    *,
    labels: Mapping[str, str],
    api_version: str,
    kind: str,
    deadline_s: int | None,
    ends: bool,
    mode: ReleaseMode,
    reason: Reason,
    message: str,
    pods: int = 1,
    done: str = "",
    complete: bool = True,
    services: Pod | None = None,
) -> NewWorkload:
    where = f"{kind} {meta.namespace}/{meta.name}"
    spec = asked[0].spec
    wishes = standing.wishes
    problems: list[tuple[Reason, str]] = [(reason, message)] if reason else []
    if wishes.cancel:
        problems.append((Reason.HELD, f"{where} is being cancelled"))
    elif wishes.hold:
        problems.append((Reason.HELD, _hold_message(standing, where)))

    queue = wishes.queue or meta.label(names.QUEUE_LABEL) or around.namespace_labels.get(names.QUEUE_LABEL) or names.DEFAULT_QUEUE
    defaults = around.queues.get(queue)
    if defaults is None:
        source = "spec.queue of its FluxJob" if wishes.queue else f"the label {names.QUEUE_LABEL}"
        problems.append(
            (Reason.UNKNOWN_QUEUE, f"{where} names the queue {queue!r}, which does not exist: create that FluxQueue or change {source}")
        )
        defaults = QueueDefaults()
    else:
        problems += _closed(where, meta.namespace, queue, defaults, around, accepted=standing.accepted_by(queue))

    duration_s, assumed = (defaults.duration_s, True) if ends else (None, False)
    try:
        if wishes.duration_s is not None:
            duration_s, assumed = wishes.duration_s, False
        elif text := meta.annotation(names.DURATION_ANNOTATION):
            duration_s, assumed = parse_duration(text), False
        elif deadline_s is not None:
            duration_s, assumed = min(max(deadline_s, 1), LONGEST_S), False
    except InvalidDuration as error:
        problems.append((Reason.INVALID_REQUEST, f"{where}: annotation {names.DURATION_ANNOTATION}: {error}"))
    if defaults.max_duration_s is not None and duration_s is not None and duration_s > defaults.max_duration_s:
        problems.append(
            (
                Reason.INVALID_REQUEST,
                (
                    f"{where} wants {duration_s} s, the queue {queue!r} allows {defaults.max_duration_s} s: "
                    f"lower the annotation {names.DURATION_ANNOTATION} or choose another queue"
                ),
            )
        )

    priority = defaults.priority
    try:
        priority = wishes.priority if wishes.priority is not None else defaults.priority + _own_priority(meta, spec, around)
    except InvalidPriority as error:
        problems.append((Reason.INVALID_REQUEST, f"{where}: {error}"))
    priority = max(-_LARGEST_PRIORITY, min(priority, _LARGEST_PRIORITY))
    if defaults.max_priority is not None and priority > defaults.max_priority:
        problems.append(
            (
                Reason.INVALID_REQUEST,
                f"{where} wants priority {priority}, the queue {queue!r} allows {defaults.max_priority}: lower it or choose another queue",
            )
        )

    jobspec = shape = ""
    try:
        if not complete:
            asked = [_Pods(_completed(each.spec, around), each.count) for each in asked]
        rules = [_rules(each.spec, around, defaults, labels, standing) for each in asked]
        if any(rule != rules[0] for rule in rules):
            raise InexpressibleConstraint(
                "its pods may run on different nodes (nodeSelector, affinity, tolerations): one group is matched by one set of rules, "
                "so give all its pods the same"
            )
        constraint, apart = rules[0]
        beside = None
        if services is not None:
            # One request has one set of rules, so all pods go where each of them may.
            served = _completed(services.spec, around)
            own, _ = _rules(served, around, defaults, services.metadata.labels or {}, standing)
            constraint = constraint if own in (None, constraint) else {"and": [each for each in (constraint, own) if each]}
            beside = Beside(pod_requests(served), apart and keeps_apart(spec, services.metadata.labels or {}))
        if apart and len({tuple(sorted(slot_resources(pod_requests(each.spec)).items())) for each in asked}) > 1:
            raise InexpressibleConstraint("pods of different sizes cannot be kept on a node each: make them alike, or prefer it only")
        roles = [Role(pod_requests(each.spec), each.count) for each in asked]
        name = f"{meta.namespace}/{meta.name}"
        jobspec = jobspec_of(name, roles, duration_s=duration_s, constraint=constraint, one_per_node=apart, beside=beside)
        shape = shape_of(jobspec)
    except (InvalidRequest, InexpressibleConstraint) as error:
        problems.append((Reason.INVALID_REQUEST, f"{where}: {error}"))

    first_reason, first_message = _worst(problems)
    return NewWorkload(
        uid=meta.uid,
        api_version=api_version,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        queue=queue,
        priority=priority,
        jobspec=jobspec,
        shape=shape,
        pods=pods,
        duration_s=duration_s,
        duration_assumed=assumed,
        release_mode=mode,
        generation=meta.generation,
        reason=first_reason,
        message=first_message,
        wishes=wishes,
        done_indexes=done,
    )


def _rules(
    spec: PodSpec, around: Surroundings, queue: QueueDefaults, labels: Mapping[str, str], standing: Standing
) -> tuple[Mapping[str, Any] | None, bool]:
    """Where pods of a spec may run, and whether no two of them on one node."""
    return constraint_of(spec, around.taints, queue.node_selector, labels, standing.avoided), keeps_apart(spec, labels)


def _hold_message(standing: Standing, where: str) -> str:
    row = standing.row
    if row is not None and row.reason is Reason.HELD and not row.wishes.cancel:
        return row.message  # the queue held it after failures: that stays the cause
    return f"{where} is held: set spec.hold of its FluxJob to false and it is matched"


def _closed(
    where: str, namespace: str, queue: str, rules: QueueDefaults, around: Surroundings, *, accepted: bool
) -> list[tuple[Reason, str]]:
    """Why the queue does not start it, or does not even take it."""
    if not rules.members.admits(namespace, dict(around.namespace_labels)):
        return [
            (
                Reason.QUEUE_NOT_ALLOWED,
                (
                    f"{where} may not use the queue {queue!r}, which is not for namespace {namespace!r}: choose another queue, "
                    "or have the namespace added to spec.namespaces of the FluxQueue"
                ),
            )
        ]
    if rules.state is QueueState.DRAINED and not accepted:
        return [
            (Reason.QUEUE_NOT_ALLOWED, f"the queue {queue!r} is drained and takes no new work: choose another, or wait until it is open")
        ]
    if rules.state is QueueState.HELD:
        return [(Reason.QUEUE_HELD, f"the queue {queue!r} is held: open it and its work is matched")]
    return []


def _own_priority(meta: ObjectMeta, spec: PodSpec, around: Surroundings) -> int:
    """What the object asks for beside its queue: the annotation, else its PriorityClass."""
    if text := meta.annotation(names.PRIORITY_ANNOTATION):
        try:
            return parse_priority(text)
        except InvalidPriority as error:
            raise InvalidPriority(f"annotation {names.PRIORITY_ANNOTATION}: {error}") from None
    if spec.priority is not None:
        return spec.priority  # a pod's, which admission has looked up
    name = spec.priority_class_name
    if not name:
        return around.default_priority
    if name not in around.priority_classes:
        raise InvalidPriority(f"priorityClassName: there is no PriorityClass {name!r}: its pods would be refused; make it or name another")
    return around.priority_classes[name]


def _completed(spec: PodSpec, around: Surroundings) -> PodSpec:
    name = spec.runtime_class_name
    if name and name not in around.runtime_classes:
        raise InvalidRequest(f"runtimeClassName: there is no RuntimeClass {name!r}: its pods would be refused; make it or name another")
    return with_defaults(spec, around.limit_ranges, around.runtime_classes[name] if name else None)


def _worst(problems: list[tuple[Reason, str]]) -> tuple[Reason, str]:
    # What only an edit can mend is told before what will pass by itself.
    order = (
        Reason.QUEUE_NOT_ALLOWED,
        Reason.INVALID_REQUEST,
        Reason.UNKNOWN_QUEUE,
        Reason.HELD,
        Reason.USER_SUSPENDED,
        Reason.QUEUE_HELD,
        Reason.WAITING_FOR_GROUP,
    )
    return min(problems, key=lambda problem: order.index(problem[0]), default=(Reason.NONE, ""))
