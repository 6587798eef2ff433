from dataclasses import replace
from typing import Any

import pytest
from support.builders import make_pod
from support.queue_builders import a_pod, a_workload, an_allocation

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.gangs import gang_size
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT
from fluxqueue.queue.model.records import Allocation, ReleaseMode, SlotState

HOSTS = ("n1", "n2", "n3")
UIDS = ("p0", "p1", "p2")


def pods(*uids: str, bound: str = "", scheduler: str = "FluxionScheduler") -> dict[str, Pod]:
    """Gated or released pods of our scheduler, one of them bound."""
    made = {uid: make_pod(uid).with_("spec.schedulerName", scheduler) for uid in uids}
    return {
        uid: a_pod(builder.on_node("n1") if uid == bound else builder, uid=uid)
        for uid, builder in made.items()
    }


def size(allocation: Allocation, known: dict[str, Pod], **changes: Any) -> int:
    workload = a_workload(**({"state": State.ALLOCATED, "release_mode": ReleaseMode.GATE} | changes))
    return gang_size(workload, allocation, known.get)


@pytest.mark.parametrize("mode", [ReleaseMode.PIN, ReleaseMode.GATE])
def test_all_open_slots_of_a_job_are_one_gang_also_while_its_pods_are_created(mode: ReleaseMode) -> None:
    assert size(an_allocation(HOSTS, pods=UIDS[:1]), pods("p0"), release_mode=mode) == 3


def test_once_one_of_its_pods_is_bound_or_has_run_each_is_bound_by_itself() -> None:
    allocation = an_allocation(HOSTS, pods=UIDS)
    assert size(allocation, pods(*UIDS)) == 3
    assert size(allocation, pods(*UIDS, bound="p1")) == 1
    assert size(allocation, pods(*UIDS), state=State.RUNNING) == 1
    assert size(an_allocation(HOSTS, states=(SlotState.ENDED,), pods=UIDS), pods(*UIDS)) == 1


def test_an_index_that_had_finished_before_the_release_is_no_part_of_the_gang() -> None:
    assert size(an_allocation(HOSTS, states=(SlotState.ENDED,)), {}) == 2


def test_a_group_is_a_gang_only_where_each_slot_has_its_pod() -> None:
    group = {"release_mode": ReleaseMode.GROUP}
    assert size(an_allocation(HOSTS, pods=UIDS), pods(*UIDS), **group) == 3
    assert size(an_allocation(HOSTS, pods=UIDS[:2]), pods(*UIDS), **group) == 1, (
        "a StatefulSet shows its pods one by one"
    )
    assert size(an_allocation(HOSTS, pods=UIDS), pods("p0", "p1"), **group) == 1


def test_pods_are_waited_for_only_where_one_scheduler_binds_them_all() -> None:
    allocation = an_allocation(HOSTS, pods=UIDS)
    assert size(allocation, pods(*UIDS, scheduler="default-scheduler")) == 3, "its extender waits for them"
    assert size(allocation, pods("p0", "p1") | pods("p2", scheduler="default-scheduler")) == 1


def test_the_services_pod_beside_a_job_is_bound_by_itself() -> None:
    allocation = an_allocation(HOSTS)
    *brokers, last = allocation.slots
    assert size(replace(allocation, slots=(*brokers, replace(last, label=SERVICES_SLOT))), {}) == 2
