"""Plans the slots of a released group: of a pod group, a gang or a JobSet.

A pod that failed or was deleted may be replaced. Its slot is kept for a while, and the first pod of its size
gets it. A slot whose pod succeeded ends at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.pods import age, pinned_node
from fluxqueue.queue.model.records import Allocation, Slot, SlotState
from fluxqueue.queue.noderules.node_checks import node_rules
from fluxqueue.queue.tracking.free_slots import FreeSlots
from fluxqueue.queue.tracking.slot_changes import SlotChanges, first_bound, still_gated

__all__ = ["SeenPods", "conclude_group", "plan_evicted_group_slots", "plan_group_slots"]

RankedPods = list[tuple[int, Pod]]

_GOES_ON = (None, Outcome.NONE, "")


@dataclass(frozen=True, slots=True)
class SeenPods:
    """The pods that had a slot of a group.

    Attributes
    ----------
    phases
        In which they were last seen, by uid: those that have a slot, or live.
    former
        How many of the others were last seen in each phase. A pod that is gone is only counted, since any
        number may follow one another in a slot.
    """

    phases: dict[str, str] = field(default_factory=dict)
    former: Counter[str] = field(default_factory=Counter)

    def count_former(self, uid: str) -> None:
        """Count a pod that has lost its slot and has ended."""
        self.former[self.phases.pop(uid)] += 1


def _none_closed(_pod: Pod, _node: str) -> bool:
    return False


def plan_group_slots(
    pods: Sequence[Pod],
    allocation: Allocation,
    label_of: Callable[[Pod], str | None],
    seen: SeenPods,
    *,
    expired: Collection[int] = (),
    awaited: int = 0,
    closed: Callable[[Pod, str], bool] = _none_closed,
    order: Callable[[Pod], tuple[Any, ...]] = age,
    leaving: Set[int] = frozenset(),
) -> SlotChanges:
    """Plan the slots of a released group.

    Parameters
    ----------
    pods
        Pods that name the group and are not matched alone.
    allocation
        With its slots, by rank.
    label_of
        Returns the label of the slots that a pod fits exactly; None if there are none.
    seen
        The pods that had a slot.
    expired, leaving
        Ranks that were kept long enough; and that it gives back: each of these ends with the pod that has it.
    awaited
        The number of slots kept for pods that are created only after others run.
    closed
        True if a node takes no pod with such rules at present: the pod is not released onto it.
    order
        Sort key of the pods that get slots.
    """
    living = {pod.metadata.uid: pod for pod in pods if not pod.terminal}
    slots = allocation.open_slots
    placed = {slot.pod_uid for slot in slots if slot.pod_uid in living}
    idle = [slot for slot in slots if slot.pod_uid not in living]
    done = {slot.rank for slot in idle if seen.phases.get(slot.pod_uid or "") == "Succeeded"}
    free = [slot for slot in idle if slot.rank not in done and slot.rank not in leaving]
    unplaced = sorted((pod for uid, pod in living.items() if uid not in placed), key=order)
    take, assign = _place(unplaced, free, label_of, closed)
    got = {rank for rank, _ in (*take, *assign)}
    held = {slot.rank: living[slot.pod_uid] for slot in slots if slot.pod_uid in living}
    assign += [(rank, pod) for rank, pod in held.items() if still_gated(pod)]
    end = done | {slot.rank for slot in idle if slot.rank not in got}.intersection((*expired, *leaving))
    left = len(slots) - len(end)
    bound = sum(1 for uid in placed if living[uid].spec.node_name) + len(take)
    state, outcome, message = _GOES_ON if left else conclude_group(len(allocation.slots), seen)
    return SlotChanges(
        take=tuple(take),
        assign=tuple(assign),
        vacate=tuple(slot.rank for slot in idle if slot.state is SlotState.TAKEN and slot.rank not in end),
        end=tuple(sorted(end)),
        running=left > 0 and bound >= left - awaited,
        state=state,
        outcome=outcome,
        message=message,
        began_at=first_bound(pods, allocation.granted_at) if state is not None else None,
    )


def plan_evicted_group_slots(allocation: Allocation, seen: SeenPods) -> SlotChanges:
    """Plan the slots of a group that is preempted: those of pods that succeeded end, and the others stay as
    they are.

    Parameters
    ----------
    allocation
        With its slots, by rank.
    seen
        Its pods, in the phases in which they were seen before they were evicted.
    """
    slots = allocation.open_slots
    end = tuple(slot.rank for slot in slots if seen.phases.get(slot.pod_uid or "") == "Succeeded")
    if len(end) < len(slots):
        return SlotChanges(end=end)
    state, outcome, message = conclude_group(len(allocation.slots), seen)
    return SlotChanges(end=end, state=state, outcome=outcome, message=message)


def _place(
    pods: Sequence[Pod],
    slots: Iterable[Slot],
    label_of: Callable[[Pod], str | None],
    closed: Callable[[Pod, str], bool],
) -> tuple[RankedPods, RankedPods]:
    """Give each pod a free slot of its size, in this order: those to take, those to assign."""
    take: RankedPods = []
    assign: RankedPods = []
    by_label: dict[str, list[Slot]] = {}
    for slot in slots:
        by_label.setdefault(slot.label, []).append(slot)
    sizes = {label: FreeSlots(free) for label, free in by_label.items()}
    for pod in pods:
        gated, tied = pod.held, pod.spec.node_name or pinned_node(pod)
        if gated and pod.metadata.deletion_timestamp:
            continue
        free = sizes.get(label_of(pod) or "")
        if free is None:
            continue
        chosen = (
            free.first_open(node_rules(pod.spec), partial(closed, pod)) if gated else free.on_node(tied or "")
        )
        if chosen is not None:
            free.take(chosen)
            (assign if gated else take).append((chosen.rank, pod))
    return take, assign


def conclude_group(size: int, seen: SeenPods) -> tuple[State, Outcome, str]:
    """Return how a group of this size ends whose slots have all ended."""
    phases = seen.former + Counter(seen.phases.values())
    succeeded, failed = phases["Succeeded"], phases["Failed"]
    if succeeded and (succeeded >= size or succeeded == phases.total()):
        return State.COMPLETED, Outcome.SUCCEEDED, ""
    if failed:
        return State.FAILED, Outcome.FAILED, f"{failed} of its pods failed and were not replaced"
    return (
        State.CANCELLED,
        Outcome.CANCELLED if phases else Outcome.UNKNOWN,
        "its pods were deleted and not replaced",
    )
