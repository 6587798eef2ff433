"""Reads one Job or Pod as the caches show it now:
how it is described if it is the queue's, or how its workload ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.changes import IntakeChanges
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.intake.endings import cancelled, ending_of, is_gone
from fluxqueue.queue.intake.extra_request_learning import ExtraRequestLearner
from fluxqueue.queue.intake.group_reader import GroupReader
from fluxqueue.queue.intake.job_domains import properties_beside
from fluxqueue.queue.intake.known_descriptions import DescribedFrom, KnownDescriptions
from fluxqueue.queue.intake.namespace_budgets import NamespaceBudgets
from fluxqueue.queue.intake.native_scheduling import native_scheduling
from fluxqueue.queue.intake.workload_contexts import workload_context
from fluxqueue.queue.model.given_back import leaving_ranks
from fluxqueue.queue.model.groups import group_of_job
from fluxqueue.queue.model.job_slots import JobSlots
from fluxqueue.queue.model.minicluster_jobs import belongs_to, is_flux_cluster
from fluxqueue.queue.model.moldable import growth_of, is_moldable, started_pods
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import Allocation, NewWorkload, Workload, WorkloadId
from fluxqueue.queue.release.blockers import ReleaseBlockers
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["ObjectReader"]


class ObjectReader:
    """Reads Jobs and Pods.

    Parameters
    ----------
    caches
        The cluster.
    ledger
        The workloads.
    groups
        Which pods are matched with their group.
    blockers
        What keeps Flux clusters from running.
    budgets
        Whose request is kept.
    enqueue_namespace
        Called with each namespace whose pending work is to be described again.
    """

    def __init__(
        self,
        caches: Caches,
        ledger: Ledger,
        groups: GroupReader,
        blockers: ReleaseBlockers,
        budgets: NamespaceBudgets,
        enqueue_namespace: Callable[[str], None],
    ) -> None:
        self._caches = caches
        self._ledger = ledger
        self._groups = groups
        self._blockers = blockers
        self._extra_requests = ExtraRequestLearner(ledger, enqueue_namespace)
        self.parts = (self._extra_requests,)
        self._known = KnownDescriptions(ledger, budgets)
        self._job_slots: dict[str, JobSlots] = {}
        self._known_beside: dict[WorkloadId, tuple[str, ...]] = {}

    def begin(self) -> None:
        """Begin to read some objects together: until the next call,
        nothing that they are read from changes.
        """
        self._job_slots.clear()
        self._known_beside.clear()

    def forget_ended(self) -> None:
        """Forget what is known of workloads that do not exist any more."""
        self._extra_requests.forget_ended()
        self._known.forget_ended()

    def read(self, uid: str, row: Workload | None, changes: IntakeChanges) -> None:
        """Read the object of a workload, and add what it comes to."""
        if row is not None and row.state is not State.PENDING:
            self._read_allocated(row, changes)
            return
        job = self._caches.jobs.get_by_uid(uid) if row is not None else None
        made_from = (
            self._made_from(job, row)
            if job is not None and row is not None and not self._has_flux(job)
            else None
        )
        if made_from is not None and self._known.covers(made_from):
            return
        described = self.describe(uid, row)
        if described is not None:
            if made_from is not None:
                self._known.note(made_from, described)
            changes.described.append(described if row is not None else self._with_requeue_state(described))
        elif row is not None:
            obj = self._caches.job_or_pod(uid)
            owner = owning_job_uid(obj) if isinstance(obj, Pod) else None
            owning = self._ledger.by_uid(owner) if owner is not None else None
            changes.endings.append(ending_of(row, obj, grouped=self._is_grouped(uid, row), job=owning))

    def describe(self, uid: str, row: Workload | None) -> NewWorkload | None:
        """Describe an object; None if there is none, it is not the queue's, or it is matched with a group."""
        job = self._caches.jobs.get_by_uid(uid)
        if job is not None:
            return self._describe_job(job, row)
        pod = self._caches.pods.get_by_uid(uid)
        return self._describe_pod(pod, row) if pod is not None else None

    def _is_grouped(self, uid: str, row: Workload) -> bool:
        """True for a pod that was matched alone and has become one of a group,
        as what was complete without it has ended.
        """
        pod = self._caches.pods.get_by_uid(uid)
        return (
            pod is not None and pod.held and not is_gone(pod) and not self._groups.membership(pod, row).alone
        )

    def _has_flux(self, job: Job) -> bool:
        """True for a Flux cluster: the volumes and host ports of its services pod,
        which the Job does not show, may decide too.
        """
        return is_flux_cluster(job) or self._caches.minicluster_of(job) is not None

    def _made_from(self, job: Job, row: Workload) -> DescribedFrom:
        uid, namespace = job.metadata.uid, job.metadata.namespace
        others = (
            workload_context(uid, row, self._caches).overrides,
            self._extra_requests.of(uid, namespace, row),
            any(pod.held for pod in self._caches.pods_of_job(uid)),
            self._blockers.of(job),
            native_scheduling(job, self._caches),
        )
        return DescribedFrom(job, self._caches.cluster_context(namespace), row, others)

    def _read_allocated(self, row: Workload, changes: IntakeChanges) -> None:
        """Read the object of a workload that has nodes.
        Until it is released, the object may be deleted, or edited after a refusal.
        """
        allocation = self._ledger.allocation(row.id) if row.state is State.ALLOCATED else None
        if allocation is None or allocation.released_at is not None:
            return
        if is_gone(self._caches.job_or_pod(row.uid)):
            # a release under way finds out, and its pods may exist
            if not self._ledger.releasing(allocation.jobid):
                changes.endings.append(cancelled(row, "was deleted before it was released"))
        elif self._is_edited_after_refusal(row):
            changes.edited.append(row.id)

    def _is_edited_after_refusal(self, row: Workload) -> bool:
        job = self._caches.jobs.get_by_uid(row.uid)
        return (
            row.reason is Reason.RELEASE_FAILED
            and job is not None
            and job.metadata.generation != row.generation
        )

    def _with_requeue_state(self, new: NewWorkload) -> NewWorkload:
        """Return the description of a new pod with the requeue state, and the submit time if preempted,
        of the pods that it replaces.
        """
        pod = self._caches.pods.get_by_uid(new.uid) if new.kind == "Pod" else None
        if pod is None:
            return new
        now, known = self._ledger.clock(), self._ledger.owner_requeue_states
        if (requeue_state := known.of(pod, now)).owner:
            new = replace(new, requeue_state=requeue_state)
        return replace(new, submitted_at=new.submitted_at or known.take_submit_time(pod, now))

    def _describe_job(self, job: Job, row: Workload | None) -> NewWorkload | None:
        if group_of_job(job) is not None:
            return None  # its controller resumes it, and its pods are matched with those of the group
        uid, namespace = job.metadata.uid, job.metadata.namespace
        gated = any(pod.held for pod in self._caches.pods_of_job(uid))
        # The queue must release what it holds, even after the namespace opted out.
        held_by_us = job.metadata.annotation(names.SUSPENDED_BY_ANNOTATION) == names.SUSPENDED_BY_WEBHOOK
        if not (gated or held_by_us or self._caches.manages(namespace)):
            return None
        context, native = workload_context(uid, row, self._caches), native_scheduling(job, self._caches)
        return describe_job(
            job,
            self._caches.cluster_context(namespace),
            replace(context, extra_requests=self._extra_requests.of(uid, namespace, row)),
            has_gated_pods=gated,
            minicluster=self._caches.minicluster_of(job),
            blocked_by=self._blockers.of(job),
            native=native,
        )

    def _describe_pod(self, pod: Pod, row: Workload | None) -> NewWorkload | None:
        def described(**known: Any) -> NewWorkload | None:
            context = workload_context(pod.metadata.uid, row, self._caches)
            return describe_pod(pod, self._caches.cluster_context(pod.metadata.namespace), context, **known)

        job_uid, key = owning_job_uid(pod), self._caches.group_of(pod)
        if job_uid is not None and key is None:
            job = self._job_without_slot_for(pod, job_uid, row)
            return described(job=job, beside=self._beside(job)) if job is not None else None
        membership = self._groups.membership(pod, row)
        if not membership.alone:
            return None
        group = self._ledger.group(key) if key is not None else None
        job = (group or row) if job_uid is not None and key is not None else None
        others = (
            (group if group is not None and group.state is not State.PENDING else row)
            if key is not None
            else None
        )
        beside = self._beside(others) if others is not None else ()
        return described(complete_group=membership.complete_group, job=job, member_of=others, beside=beside)

    def _beside(self, workload: Workload) -> tuple[str, ...]:
        """Return the properties of the nodes next to the other pods of a workload that must lie below one
        vertex.
        """
        if workload.id not in self._known_beside:
            allocation = self._ledger.allocation(workload.id)
            nodes = {slot.node: None for slot in allocation.open_slots} if allocation is not None else {}
            levels = self._caches.cluster_context(workload.namespace).levels
            found = properties_beside(
                workload.jobspec, (self._caches.nodes.get("", node) for node in nodes), levels
            )
            self._known_beside[workload.id] = found
        return self._known_beside[workload.id]

    def _job_without_slot_for(self, pod: Pod, job_uid: str, row: Workload | None) -> Workload | None:
        """Return the workload of a pod's Job if that was released and has no slot for the pod; None
        otherwise.

        The Job grew since it was matched, or the node of the pod's slot takes no pod any more.
        """
        workload, job = self._ledger.by_uid(job_uid), self._caches.jobs.get_by_uid(job_uid)
        if (
            workload is None
            or job is None
            or job.spec.suspend
            or workload.state not in (State.ALLOCATED, State.RUNNING)
        ):
            return None
        if not belongs_to(pod, job):
            return None
        allocation = self._ledger.allocation(workload.id)
        if allocation is None:
            # all its slots were freed: it was scaled to zero, or its pods are all matched alone
            return workload
        if allocation.released_at is None or pod.metadata.uid in allocation.pod_uids:
            return None
        kept = len(allocation.open_slots) - len(leaving_ranks(workload, allocation))
        fewer = is_moldable(workload) and started_pods(workload) < workload.pods
        if fewer and job.spec.pods_at_once > kept:
            workload = self._as_growth(workload, allocation, row)
        if row is not None:
            return workload
        slots = self._job_slots.get(job_uid)
        if slots is None:
            slots = self._job_slots[job_uid] = self._slots_of(job, workload, allocation)
        return workload if slots.lack(pod) else None

    def _slots_of(self, job: Job, workload: Workload, allocation: Allocation) -> JobSlots:
        own = [
            each
            for each in self._caches.pods_of_job(job.metadata.uid)
            if self._ledger.by_uid(each.metadata.uid) is None
        ]
        refused = workload.refused_by(self._ledger.clock(), since=allocation.granted_at)
        closed = self._caches.closed_to_job(
            job, own, started=workload.state is State.RUNNING, refused=refused
        )
        return JobSlots(job, own, allocation, closed, leaving_ranks(workload, allocation))

    def _as_growth(self, workload: Workload, allocation: Allocation, row: Workload | None) -> Workload:
        """Return the workload of a Job that was started with fewer pods, for a pod by which it grows.
        A pod keeps its first duration.
        """
        grown = growth_of(workload, allocation, self._ledger.wall())
        return grown if row is None else replace(grown, duration_s=row.duration_s)
