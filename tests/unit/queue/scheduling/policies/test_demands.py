"""Requests are compared by family, and plain ones by the group of their family."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from support.queue_builders import EPOCH, a_workload

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.topology import TopologyRequest
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.model.records import FluxionJobId, ReleaseMode
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.scheduling.policies.demands import amounts_of, demand_of, held_amounts


def request(count: int, nodes: int, first: str = "node-0") -> str:
    constraint = {"in": ["kubernetes.io/hostname", first, *(f"node-{number}" for number in range(1, nodes))]}
    slot = {"type": "slot", "count": count, "label": "pod", "with": [{"type": "cpu", "count": 100}]}
    return json.dumps(
        {
            "version": 1,
            "resources": [slot],
            "tasks": [],
            "attributes": {"system": {"constraints": constraint}},
        }
    )


def test_long_requests_are_of_one_family_if_they_differ_in_their_count_alone() -> None:
    one, two, other = (
        demand_of(request(1, 500)),
        demand_of(request(2, 500)),
        demand_of(request(1, 500, "node-x")),
    )
    assert (one.count, two.count) == (1, 2)
    assert one.family == two.family != other.family


def test_equal_families_and_groups_are_one_text_in_memory() -> None:
    one, two = (demand_of(request(count, 2)) for count in (1, 2))
    assert one.family is two.family
    assert one.group is two.group


def test_a_family_takes_little_memory_however_long_the_request_is() -> None:
    for text in (request(1, 500), request(1, 3), "[" * 5_000):
        assert len(demand_of(text).family) == 32


def sized(cores: int, **placement: Any) -> str:
    requests = {"cpu": Decimal(cores), "memory": Decimal(cores << 30)}
    least = placement.pop("min_pods", 0)
    return jobspec_of(
        f"default/of-{cores}",
        [SizedPods(requests, 3)],
        duration_s=60,
        placement=PlacementRules(**placement),
        min_pods=least,
    )


@pytest.mark.parametrize(
    "placement", [{}, {"one_per_node": True}, {"constraint": {"hostlist": ["n1"]}}, {"reservation": "class"}]
)
def test_families_of_plain_slots_that_differ_in_amounts_are_a_group(placement: dict[str, Any]) -> None:
    one, two = demand_of(sized(1, **placement)), demand_of(sized(2, **placement))
    assert one.family != two.family
    assert one.group == two.group != ""
    assert (one.amounts, two.amounts) == ((1_000, 1_024, 1), (2_000, 2_048, 1))


def test_other_nodes_other_resources_or_a_node_for_each_are_another_group() -> None:
    other = jobspec_of(
        "default/gpu", [SizedPods({"cpu": Decimal(1), "nvidia.com/gpu": Decimal(1)}, 3)], duration_s=60
    )
    requests = [sized(1), sized(1, one_per_node=True), sized(1, constraint={"hostlist": ["n1"]}), other]
    assert len({demand_of(each).group for each in requests}) == len(requests)


@pytest.mark.parametrize(
    "alone",
    [
        sized(1, min_pods=2),
        sized(1, topology=TopologyRequest(required="rack")),
        sized(1, topology=TopologyRequest(exclusive=True)),
        sized(1, pod_rules={"namespace": "default"}),
        jobspec_of("default/two", [SizedPods({"cpu": Decimal(cores)}, 1) for cores in (1, 2)], duration_s=60),
        "nonsense",
        '{"resources": [{"type": "slot", "count": 1, "with": [{"type": "cpu", "count": {"min": 1}}]}]}',
        '{"resources": [{"type": "slot", "count": 1, "with": [{"type": "cpu", "count": 0}]}]}',
        '{"resources": [{"type": "node", "count": 1, "with": 3}]}',
    ],
)
def test_a_family_is_alone_where_more_may_fit_and_less_does_not(alone: str) -> None:
    demand = demand_of(alone)
    assert (demand.group, demand.amounts) == ("", ())


def test_a_gang_holds_what_its_slots_request_that_it_did_not_give_back() -> None:
    """Six of the eight small pods are given back, and none of the two large ones."""
    sizes = [SizedPods({"cpu": Decimal(1)}, 8), SizedPods({"cpu": Decimal(8)}, 2)]
    jobspec = jobspec_of("default/ray", sizes, duration_s=60)
    given = GivenBack(jobid=FluxionJobId(7), ranks=tuple(range(2, 8)), stop_at=EPOCH, message="")
    gang = a_workload(
        kind="RayCluster",
        release_mode=ReleaseMode.GROUP,
        state=State.RUNNING,
        jobid=7,
        jobspec=jobspec,
        pods=10,
        requeue_state=RequeueState(given_back=given),
    )
    left = [SizedPods({"cpu": Decimal(1)}, 2), SizedPods({"cpu": Decimal(8)}, 2)]
    assert held_amounts(gang) == amounts_of(jobspec_of("default/ray", left, duration_s=60))
