"""The slots of a Job that many pods share: what is asked about each node and pod, and how often."""

from __future__ import annotations

from collections import Counter

from support.builders import make_job, make_pod
from support.queue_builders import a_job, a_pod, an_allocation

from fluxqueue.queue.model.job_slots import JobSlots
from fluxqueue.queue.model.records import SlotState


def test_each_node_is_asked_about_once_however_many_slots_it_has() -> None:
    asked: Counter[str] = Counter()

    def closed(node: str) -> bool:
        asked[node] += 1
        return node == "n1"

    pods = [a_pod(make_pod(f"p{number}").gate("fluxqueue"), uid=f"p{number}") for number in range(300)]
    job = a_job(make_job("loose").pods(300, 300).suspended(False))
    slots = JobSlots(job, pods, an_allocation(["n0", "n1", "n2"] * 100), closed)
    assert sum(slots.lack(pod) for pod in pods) == 100
    assert asked == {"n0": 1, "n1": 1, "n2": 1}


def test_a_pod_may_use_its_own_slot_or_one_of_its_node_that_names_no_pod() -> None:
    allocation = an_allocation(
        ["n0", "n0", "n1", "n0"],
        pods=["a", None, None, "b"],
        states=[SlotState.TAKEN] * 3 + [SlotState.ENDED],
    )
    assert [slot.rank for slot in allocation.open_slots_for("a", "n0")] == [0]
    assert [slot.rank for slot in allocation.open_slots_for("c", "n0")] == [1]
    assert [slot.rank for slot in allocation.open_slots_for("a", "n1")] == [2]
    assert [slot.rank for slot in allocation.open_slots_for("b", "n0")] == [1], "its slot has ended"
    assert allocation.open_slots_for("c", None) == ()
    assert allocation.pod_uids == {"a", "b"}
