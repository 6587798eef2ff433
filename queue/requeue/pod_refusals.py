"""Watches which Jobs' pods the API server refuses to create, and when another attempt may succeed.

The Job controller reports that in an Event of reason `FailedCreate`, with the message of the API server (a
quota, a missing ServiceAccount, an admission plugin). The startup monitor is woken at once. A workload that
waits because its pods were refused is matched again when a ResourceQuota of its namespace leaves more room,
or when the ServiceAccount that it lacked is created. Its own pause ends that wait too.

What a quota refuses is mostly known before a release (`fluxqueue.queue.scheduling.limits.quota_room`). What
is left has needs that are not known, so one change of a quota lets one workload try, the one that was refused
least often, and the oldest of these. The next one follows when it runs. One that was refused before pauses
for some seconds first: its own pods that end leave room too.

Events from before this process began to lead are ignored. The time for a start ends such a wait.

Everybody who may create Events can write one that says what the Job controller's say. So an Event counts only
if it is about this Job by namespace, name and uid, and it is in that namespace (the API server sees to that):
a forged one harms only work of a namespace whose work its author may delete as well. One that another program
signed is ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import structlog

from fluxqueue.api.clusterobjects import Event, ResourceQuota
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.metadata import NamedObject
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.queue.model.records import Allocation, Workload, WorkloadId
from fluxqueue.queue.requeue.job_backoffs import JobBackoffs
from fluxqueue.queue.requeue.start_failures import StartFailure, StartFailureCause
from fluxqueue.queue.store.ledger import Ledger
from fluxqueue.queue.tasks.batches import Batches
from fluxqueue.queue.tasks.triggers import Trigger

__all__ = ["PodRefusals", "leaves_more_room"]

log = structlog.get_logger()

_BATCH = 500
_MOST_JOBS = 10_000
_LONGEST_MESSAGE = 500
_REPORTER = "job-controller"
_PREFIX = "Error creating: "
_ROOM_KEPT = timedelta(minutes=10)
_LONGEST_PAUSE_S = 30.0
"""Between the last of several refusals and the next attempt after a change of a quota."""
_TRANSIENT = "Internal error occurred"
"""The API server reports with it that it, or an admission webhook, does not work at present.
The Job controller retries within seconds."""


class PodRefusals:
    """The refused pods, by Job.

    Parameters
    ----------
    ledger, trigger
        The queue, and the control tasks.
    backoffs
        When pods of Jobs failed.
    """

    def __init__(self, ledger: Ledger, trigger: Trigger, backoffs: JobBackoffs) -> None:
        self._ledger = ledger
        self._backoffs = backoffs
        self._trigger = trigger
        self._reported: OrderedDict[str, tuple[str, datetime]] = OrderedDict()
        self._waiting: dict[str, set[WorkloadId]] = {}
        self._keys: Batches[str] = Batches("refused pods")
        self._accounts: dict[str, set[str]] = {}
        """New ServiceAccounts by namespace."""
        self._roomier_at: dict[str, datetime] = {}
        self._wake: Callable[[], None] = lambda: None

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have a function called whenever pods of a live workload were refused."""
        self._wake = wake

    def resync(self) -> None:
        """Find the workloads that wait because their pods were refused, as at start and in a sweep,
        and forget room of long ago.
        """
        now = self._ledger.clock()
        self._roomier_at = {
            namespace: at for namespace, at in self._roomier_at.items() if now - at < _ROOM_KEPT
        }
        for workload in self._ledger.all():
            self.workload_changed(workload.id)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._keys.run(self._retry, limit=_BATCH)

    def of(self, workload: Workload, allocation: Allocation) -> StartFailure | None:
        """Return the refusal of a Job's pods since its allocation; None if there is none. It may come before
        the release is stored.

        A refusal from before the latest failure of a pod is none any more: since then, the Job controller
        waits, or has created pods.
        """
        message, at = self._reported.get(workload.uid, ("", None))
        if at is None or at < max(allocation.granted_at, self._backoffs.failed_at(workload.uid) or at):
            return None
        return StartFailure(
            Reason.RELEASE_FAILED,
            f"the API server refuses its pods: {message}",
            cause=StartFailureCause.REFUSED,
        )

    # ---- events --------------------------------------------------------------------------------------------

    def event_changed(self, change: Change[Event]) -> None:
        """Record why pods of a live workload were refused, and say so."""
        event = change.new
        if event is None or _TRANSIENT in event.message:
            return
        workload = self._ledger.by_uid(event.involved_object.uid)
        if workload is None or not workload.state.placed or not _is_about(event, workload):
            return
        self._reported.pop(workload.uid, None)
        self._reported[workload.uid] = (
            event.message.removeprefix(_PREFIX)[:_LONGEST_MESSAGE],
            self._ledger.clock(),
        )
        while len(self._reported) > _MOST_JOBS:
            self._reported.popitem(last=False)
        self._wake()

    def quota_changed(self, change: Change[ResourceQuota]) -> None:
        """Try refused work of a namespace again when a quota leaves more room."""
        namespace = change.obj.metadata.namespace
        if change.new is None or change.old is None or leaves_more_room(change.old, change.new):
            self._roomier_at[namespace] = self._ledger.clock()
            if namespace in self._waiting:
                self._keys.add(namespace)

    def account_changed(self, change: Change[NamedObject]) -> None:
        """Try refused work again when a ServiceAccount was created that it may name."""
        namespace = change.obj.metadata.namespace
        if namespace in self._waiting and change.kind is ChangeKind.ADDED:
            self._accounts.setdefault(namespace, set()).add(change.obj.metadata.name)
            self._keys.add(namespace)

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the workloads that wait because their pods were refused."""
        workload = self._ledger.get(workload_id)
        if not self._waiting and (workload is None or not workload.requeue_state.refused_pods):
            return
        if workload is None:
            self._forget(workload_id)
        elif (
            workload.requeue_state.refused_pods
            and workload.state is State.PENDING
            and workload.requeue_state.not_before is not None
        ):
            waiting = self._waiting.setdefault(workload.namespace, set())
            if workload_id not in waiting and self._missed_room(workload):
                self._keys.add(workload.namespace)
            waiting.add(workload_id)
        elif (ids := self._waiting.get(workload.namespace)) is not None:
            ids.discard(workload_id)
            if not ids:
                del self._waiting[workload.namespace]
            elif workload.state is State.RUNNING and workload.requeue_state.refused_pods:
                self._keys.add(workload.namespace)

    def _forget(self, workload_id: WorkloadId) -> None:
        """Forget work that is gone: its row does not say any more in which namespace it was."""
        namespace = next((namespace for namespace, ids in self._waiting.items() if workload_id in ids), None)
        if namespace is not None:
            self._waiting[namespace].discard(workload_id)
            if not self._waiting[namespace]:
                del self._waiting[namespace]

    def _missed_room(self, workload: Workload) -> bool:
        """True if a quota left more room after a workload was refused for the first time,
        and before it waited.
        """
        roomier, (_, refused) = (
            self._roomier_at.get(workload.namespace),
            self._reported.get(workload.uid, ("", None)),
        )
        return (
            workload.requeue_state.refused_pods == 1
            and roomier is not None
            and refused is not None
            and roomier >= refused
        )

    # ---- carrying out --------------------------------------------------------------------------------------

    async def _retry(self, namespaces: list[str]) -> None:
        now = self._ledger.clock()
        accounts = {
            namespace: found for namespace in namespaces if (found := self._accounts.pop(namespace, None))
        }
        due = [
            workload
            for namespace in namespaces
            for workload in self._due(namespace, now, accounts.get(namespace, ()))
        ]
        try:
            await self._ledger.set_requeue_states(
                {
                    workload.id: msgspec.structs.replace(workload.requeue_state, not_before=None)
                    for workload in due
                }
            )
        except BaseException:
            for namespace, found in accounts.items():
                self._accounts.setdefault(namespace, set()).update(found)  # it is tried again
            raise
        if due:
            log.info("refused_pods.retried", namespaces=namespaces, workloads=len(due))
            self._trigger.schedule()

    def _due(self, namespace: str, now: datetime, accounts: Collection[str]) -> list[Workload]:
        """Return the workloads of a namespace that are matched again now:
        all that new ServiceAccounts concern, else the first.
        """
        every = (self._ledger.get(workload_id) for workload_id in self._waiting.get(namespace, ()))
        waiting = [
            each for each in every if each is not None and each.state is State.PENDING and each.backs_off(now)
        ]
        if accounts and (lacked := [each for each in waiting if self._may_lack(each, accounts)]):
            return lacked
        first = min(
            waiting,
            key=lambda each: (each.requeue_state.refused_pods, each.submitted_at, each.id),
            default=None,
        )
        if first is None:
            return []
        if (pause_s := self._pause_s(first, now)) > 0:
            self._keys.add_after(namespace, pause_s)
            return []
        return [first]

    def _may_lack(self, workload: Workload, accounts: Collection[str]) -> bool:
        """True if a workload was refused for one of these ServiceAccounts, or it is not known for what:
        many are made as easily as one.
        """
        message, _ = self._reported.get(workload.uid, (workload.message, None))
        return not message or any(f'"{name}"' in message for name in accounts)

    def _pause_s(self, workload: Workload, now: datetime) -> float:
        """Return how long a workload still pauses after its last refusal:
        not at all after the first, then twice as long each time.
        """
        _, refused = self._reported.get(workload.uid, ("", None))
        if refused is None or workload.requeue_state.refused_pods < 2:
            return 0.0
        pause_s = min(2.0 ** min(workload.requeue_state.refused_pods - 1, 10), _LONGEST_PAUSE_S)
        return pause_s - (now - refused).total_seconds()


def _is_about(event: Event, workload: Workload) -> bool:
    """True if the Job controller wrote this Event about the Job of a workload,
    as far as an Event can tell.
    """
    about = event.involved_object
    namespaces = {event.metadata.namespace, about.namespace}
    return (
        event.reporter == _REPORTER
        and namespaces == {workload.namespace}
        and about.name == workload.name
        and about.kind == workload.kind
    )


def leaves_more_room(old: ResourceQuota, new: ResourceQuota) -> bool:
    """True if a quota allows more than before: a limit was raised or removed, or less is used."""
    hard, used = _amounts(old.status.hard), _amounts(old.status.used)
    now_hard, now_used = _amounts(new.status.hard), _amounts(new.status.used)
    raised = any(kind not in now_hard or now_hard[kind] > bound for kind, bound in hard.items())
    return raised or any(now_used.get(kind, amount) < amount for kind, amount in used.items())


def _amounts(amounts: Mapping[str, str | int | float] | None) -> dict[str, Decimal]:
    read: dict[str, Decimal] = {}
    for kind, text in (amounts or {}).items():
        try:
            read[kind] = parse_quantity(text)
        except InvalidQuantity:
            continue  # the API server accepts only valid quantities
    return read
