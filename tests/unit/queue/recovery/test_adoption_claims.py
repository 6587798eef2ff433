"""What released objects claim of their allocation, and when a claim is not accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.queue_builders import around

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.api.templatepins import node_affinity
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.jobspecs import SLOT, PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.recovery.adoption_claims import (
    AdoptionCandidate,
    AllocationClaim,
    claim_of_job,
    claim_of_pod,
    consistent_candidates,
    job_before_release,
    pod_before_release,
    shares_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def released(nodes: str | None = "n[1-3]", pods: int = 3, until: str = "2026-01-01T00:00:30Z") -> JobBuilder:
    job = make_job("gang").indexed(pods).label(names.JOBID_LABEL, "7")
    if nodes is None:
        return job
    return (
        job.pod_annotation(names.NODES_ANNOTATION, nodes)
        .pod_annotation(names.ALLOCATION_ANNOTATION, "7")
        .pod_annotation(names.PIN_UNTIL_ANNOTATION, until)
    )


def read_job(builder: JobBuilder) -> Job:
    return msgspec.convert(builder.build(), Job)


def a_pod(
    name: str, node: str = "", *, jobid: str | None = "7", index: int | None = None, **spec: Any
) -> Pod:
    builder = make_pod(name) if index is None else make_pod(name).index(index)
    if jobid is not None:
        builder = builder.annotation(names.ALLOCATION_ANNOTATION, jobid)
    if node:
        builder = builder.on_node(node)
    for key, value in spec.items():
        builder = builder.with_(f"spec.{key}", value)
    return msgspec.convert(builder.build(), Pod)


def test_a_pinned_job_names_the_node_of_every_index() -> None:
    assert claim_of_job(read_job(released()), (), 3, NOW) == AllocationClaim(
        FluxionJobId(7), ("n1", "n2", "n3")
    )


def test_a_job_of_one_pod_at_a_time_has_one_slot_however_long_its_list_is() -> None:
    job = read_job(released("n[1,1,1]").with_("spec.parallelism", 1))
    assert claim_of_job(job, (), 1, NOW) == AllocationClaim(FluxionJobId(7), ("n1",))


def test_a_job_whose_template_holds_its_node_claims_it_and_is_read_as_it_was() -> None:
    waiting = (
        make_job("one")
        .uid("u")
        .suspended()
        .annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK)
    )
    released = (
        make_job("one")
        .uid("u")
        .label(names.JOBID_LABEL, "7")
        .pod_label(names.JOBID_LABEL, "7")
        .pod_label(names.PINNED_LABEL, names.PINNED_VALUE)
        .pod_annotation(names.NODES_ANNOTATION, "n4")
        .pod_annotation(names.ALLOCATION_ANNOTATION, "7")
        .with_("spec.template.spec.affinity", node_affinity("n4"))
    )
    assert claim_of_job(read_job(released), (), 1, NOW) == AllocationClaim(FluxionJobId(7), ("n4",))
    before = describe_job(job_before_release(read_job(released)), around())
    assert before is not None
    wanted = describe_job(read_job(waiting), around())
    assert wanted is not None
    assert (before.jobspec, before.release_mode) == (wanted.jobspec, wanted.release_mode)


def test_a_job_released_pod_by_pod_claims_the_nodes_of_its_pods() -> None:
    loose = make_job("gang").pods(2, 5).label(names.JOBID_LABEL, "7")
    pods = [a_pod("b", "n2"), a_pod("a", "n1")]
    assert claim_of_job(read_job(loose), pods, 2, NOW) == AllocationClaim(FluxionJobId(7), ("n1", "n2"))
    assert claim_of_job(read_job(loose), pods[:1], 2, NOW) is None
    elsewhere = a_pod("other", "n9", jobid="8")
    assert claim_of_job(read_job(loose), [pods[0], elsewhere], 2, NOW) == AllocationClaim(
        FluxionJobId(7), ("n2",)
    ), "one is matched alone"
    indexed = [a_pod("c", "n3", index=2), a_pod("a", "n1", index=0), a_pod("b", "n9", index=1, jobid="8")]
    assert claim_of_job(read_job(released(None)), indexed, 3, NOW) == AllocationClaim(
        FluxionJobId(7), ("n1", names.NO_NODE, "n3")
    )


def test_after_its_pin_window_a_pinned_job_claims_only_the_slots_of_its_pods() -> None:
    pods = [a_pod("b", "n2", index=1), a_pod("c", "n9", index=2, jobid="8")]
    closed = read_job(released(until="2025-12-31T23:59:00Z"))
    assert claim_of_job(closed, pods, 3, NOW) == AllocationClaim(FluxionJobId(7), (names.NO_NODE, "n2"))
    just_closed = read_job(released(until="2025-12-31T23:59:55Z"))
    assert claim_of_job(just_closed, pods, 3, NOW) == AllocationClaim(FluxionJobId(7), ("n1", "n2", "n3")), (
        "clocks may differ"
    )


@pytest.mark.parametrize("nodes", ["n[1-3]", None])
def test_an_index_that_no_workload_can_have_makes_no_slots(nodes: str | None) -> None:
    pods = [a_pod("gang-0", "n1", index=0), a_pod("gang-1", "n2", index=1), a_pod("x", "n3", index=9_999_999)]
    claim = claim_of_job(read_job(released(nodes)), pods, 2, NOW)
    assert claim is not None
    assert claim.hosts[:2] == ("n1", "n2")
    assert len(claim.hosts) <= 3


def test_a_pinned_job_that_grew_or_shrank_claims_the_slots_of_its_grant() -> None:
    pods = [a_pod("a", "n1", index=0)]
    assert claim_of_job(read_job(released("n1", 4)), pods, 4, NOW) == AllocationClaim(
        FluxionJobId(7), ("n1",)
    )
    assert claim_of_job(read_job(released("n[1-3]", 1)), pods, 1, NOW) == AllocationClaim(
        FluxionJobId(7), ("n1",)
    )


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job("gang").indexed(3), id="never released"),
        pytest.param(released().suspended(), id="suspended"),
        pytest.param(released().label(names.JOBID_LABEL, "7x"), id="not an id"),
        pytest.param(released("n[1-"), id="not a hostlist"),
        pytest.param(
            released(until="2025-12-31T23:59:00Z"), id="its pin window is closed and no pod has a slot"
        ),
        pytest.param(
            released().pod_annotation(names.ALLOCATION_ANNOTATION, "8"),
            id="another id in its template than on itself",
        ),
        pytest.param(
            released().with_("status.conditions", [{"type": "Complete", "status": "True"}]), id="finished"
        ),
    ],
)
def test_a_job_without_a_complete_claim_is_not_adopted(job: JobBuilder) -> None:
    assert claim_of_job(read_job(job), (), 3, NOW) is None


def test_a_pod_claims_its_node_or_the_one_that_it_is_pinned_to() -> None:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    }
    assert claim_of_pod(a_pod("bound", "n1")) == AllocationClaim(FluxionJobId(7), ("n1",))
    assert claim_of_pod(a_pod("pinned", affinity=affinity)) == AllocationClaim(FluxionJobId(7), ("n2",))
    assert claim_of_pod(a_pod("gated", affinity=affinity, schedulingGates=[{"name": names.GATE}])) is None
    assert claim_of_pod(a_pod("not ours", "n1", jobid=None)) is None


def test_a_pinned_job_with_a_pod_on_an_unlisted_node_is_not_adopted() -> None:
    assert claim_of_job(read_job(released()), [a_pod("a", "n3", index=2)], 3, NOW) is not None
    assert (
        claim_of_job(read_job(released()), [a_pod("a", "n3", index=2), a_pod("b", "n9", index=0)], 3, NOW)
        is None
    )
    assert (
        claim_of_job(
            read_job(released()), [a_pod("a", "n3"), a_pod("matched on its own", "n9", jobid="8")], 3, NOW
        )
        is not None
    )


def candidate(
    name: str, hosts: str, *, jobid: int = 7, cpu: str = "4", confirmed: bool = False
) -> AdoptionCandidate:
    listed = tuple(hosts.split())
    builder = (
        make_job(name)
        .indexed(len(listed))
        .cpu(cpu)
        .suspended()
        .annotation(names.SUSPENDED_BY_ANNOTATION, "webhook")
    )
    new = describe_job(read_job(builder.uid(name)), around())
    assert new is not None
    return AdoptionCandidate(new, AllocationClaim(FluxionJobId(jobid), listed), confirmed)


def capacity(node: str) -> Mapping[str, int] | None:
    return {"cpu": 8000, "core": 8000, "pods": 110} if node in ("n1", "n2") else None


def checked(*candidates: AdoptionCandidate, held: Iterable[NodeShare] = ()) -> tuple[list[str], list[str]]:
    accepted, refusals = consistent_candidates(candidates, capacity, held)
    return [each.new.name for each in accepted], refusals


def test_claims_that_can_all_be_true_are_accepted() -> None:
    assert checked(candidate("a", "n1 n2"), candidate("b", "n1", jobid=8)) == (["a", "b"], [])


def test_a_claim_on_a_node_that_does_not_exist_is_refused() -> None:
    assert checked(candidate("a", "n1 n9")) == (
        [],
        ["Job default/a claims allocation 7, on node n9, which does not exist"],
    )


def test_of_two_claims_of_one_allocation_only_the_confirmed_one_is_accepted() -> None:
    forged, honest = candidate("forged", "n1"), candidate("honest", "n1", confirmed=True)
    assert checked(forged, honest) == (
        ["honest"],
        ["Job default/forged claims allocation 7, which another object claims too"],
    )
    assert checked(forged, candidate("other", "n2"))[0] == []


def test_a_claim_that_a_node_cannot_hold_is_refused() -> None:
    reason = "and with it more cpu than node n1 has"
    assert checked(candidate("a", "n1", cpu="9")) == ([], [f"Job default/a claims allocation 7, {reason}"])
    assert checked(candidate("a", "n1"), candidate("b", "n1", jobid=8, cpu="5")) == (
        ["a"],
        [f"Job default/b claims allocation 8, {reason}"],
    )
    assert checked(candidate("a", "n1"), held=candidate("known", "n1", cpu="5").shares)[0] == []


def test_ports_and_devices_that_no_node_reports_do_not_keep_running_work_from_being_adopted() -> None:
    plain = candidate("a", "n1")
    requests = {"cpu": Decimal(1), "hostport/TCP/80": Decimal(1), "devices/gpu/any": Decimal(2)}
    jobspec = jobspec_of("default/a", [SizedPods(requests, 1)], duration_s=60)
    assert checked(replace(plain, new=replace(plain.new, jobspec=jobspec))) == (["a"], [])


def test_a_confirmed_claim_comes_before_one_that_is_not() -> None:
    assert checked(candidate("forged", "n1", jobid=8, cpu="8"), candidate("honest", "n1", confirmed=True))[
        0
    ] == ["honest"]


@pytest.mark.parametrize("one_per_node", [False, True])
def test_shares_are_the_requests_of_the_pods_on_each_node(one_per_node: bool) -> None:

    spec = jobspec_of(
        "a/b",
        [SizedPods({"cpu": Decimal("1.5")}, 3)],
        duration_s=60,
        placement=PlacementRules(one_per_node=one_per_node),
    )
    shares = shares_of(spec, ("n1", "n2", "n1", names.NO_NODE))
    amounts = {
        share.node: (
            dict(share.slots),
            share.amounts["core"] if "core" in share.amounts else share.amounts["cpu"],
        )
        for share in shares
    }
    assert amounts == {"n1": ({SLOT: 2}, 3000), "n2": ({SLOT: 1}, 1500)}


def test_a_pod_of_our_scheduler_claims_the_node_of_its_annotation() -> None:
    pod = msgspec.convert(make_pod().by_fluxion("n2").build(), Pod)
    assert claim_of_pod(pod) == AllocationClaim(FluxionJobId(7), ("n2",))
    assert pod_before_release(pod).held
    assert claim_of_pod(msgspec.convert(make_pod().by_fluxion().build(), Pod)) is None


def test_a_job_that_was_started_with_fewer_pods_claims_a_slot_for_each_of_them() -> None:
    small = read_job(
        released(None, pods=8).with_("spec.parallelism", 3).annotation(names.STARTED_PODS_ANNOTATION, "2")
    )
    pods = [a_pod("a", "n5", index=4), a_pod("b", "n6", index=5), a_pod("c", "n7", index=6, jobid="9")]
    assert claim_of_job(small, pods, 3, NOW) == AllocationClaim(FluxionJobId(7), ("n5", "n6"))
    assert claim_of_job(small, pods[:1], 3, NOW) is None
