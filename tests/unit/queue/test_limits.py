from decimal import Decimal
from typing import Any

import pytest
from queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxqueues import Limits, QueueLimits
from fluxqueue.queue.jobspecs import Role, jobspec_of
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.policies.demands import millicores_of
from fluxqueue.queue.records import SlotState, Workload


def spec(pods: int = 1, millicores: int = 1000, **changes: Any) -> str:

    return jobspec_of("default/x", [Role({"cpu": Decimal(millicores) / 1000}, pods)], duration_s=60, **changes)


def workload(namespace: str = "a", queue: str = "q", pods: int = 1, millicores: int = 1000) -> Workload:
    return a_workload(namespace=namespace, queue=queue, pods=pods, jobspec=spec(pods, millicores))


def quotas(limits: QueueLimits, *running: tuple[Workload, list[str]]) -> Quotas:
    return Quotas({"q": limits}, [(held, an_allocation(hosts)) for held, hosts in running])


def test_cpu_is_counted_over_all_pods_whatever_the_shape() -> None:
    assert millicores_of(spec(3, 1500)) == 4500
    assert millicores_of(spec(3, 1500, one_per_node=True)) == 4500
    assert millicores_of("{}") == 0


def test_at_the_limit_of_running_workloads_the_next_waits_with_both_figures() -> None:
    some = quotas(QueueLimits(running=2), (workload(), ["n1"]))
    assert some.refusal(workload()) == ""
    some.take(workload(), ["n1"])
    assert some.refusal(workload()) == "the queue 'q' may run 2 workloads at once, and 2 run or have nodes reserved"


@pytest.mark.parametrize(("millicores", "may"), [(2000, True), (2100, False)])
def test_cores_may_be_used_up_to_the_limit_and_no_further(millicores: int, may: bool) -> None:
    some = quotas(QueueLimits(cores=4), (workload(pods=2), ["n1", "n2"]))
    assert (some.refusal(workload(millicores=millicores)) == "") is may


def test_a_node_counts_once_however_many_share_it() -> None:
    some = quotas(QueueLimits(nodes=2), (workload(), ["n1", "n1"]), (workload(), ["n1"]))
    assert some.excess(workload(), ["n1", "n2"]) == ""
    assert "may use 2 nodes at once: it uses 1, and 3 with this" in some.excess(workload(), ["n2", "n3"])


def test_places_that_were_given_back_do_not_count() -> None:
    allocation = an_allocation(["n1", "n2"], states=[SlotState.ENDED, SlotState.FREE])
    some = Quotas({"q": QueueLimits(nodes=2)}, [(workload(), allocation)])
    assert some.excess(workload(), ["n2", "n3"]) == ""


def test_one_namespace_at_its_limit_leaves_room_for_another() -> None:
    some = quotas(QueueLimits(running=5, per_namespace=Limits(running=1)), (workload("a"), ["n1"]))
    assert some.refusal(workload("a")).startswith("namespace 'a' in the queue 'q' may run 1 ")
    assert some.refusal(workload("b")) == ""


def test_a_queue_without_limits_refuses_nothing() -> None:
    some = quotas(QueueLimits(running=0))
    assert some.refusal(workload(queue="other")) == some.excess(workload(queue="other"), ["n1"]) == ""
    assert some.refusal(workload()) != ""


def test_what_it_would_be_without_some_leaves_the_count_as_it_is() -> None:
    gone, stays = workload(), workload()
    some = quotas(QueueLimits(running=2, nodes=2), (gone, ["n1"]), (stays, ["n1", "n2"]))
    other = some.without([gone.id])
    assert (some.refusal(workload()) != "", other.refusal(workload())) == (True, "")
    other.take(workload(), ["n2"])
    other.drop(stays.id)
    assert other.excess(workload(), ["n1", "n2"]) == ""
    assert "it uses 2, and 3 with this" in some.excess(workload(), ["n3"])
