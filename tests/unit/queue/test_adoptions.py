"""What released objects say of their allocation, and when they say too little."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from builders import JobBuilder, make_job, make_pod

from fluxqueue.api import names
from fluxqueue.api.objects import Job, Pod
from fluxqueue.queue.adoptions import Claim, claim_of_job, claim_of_pod, shares_of
from fluxqueue.queue.jobspecs import SLOT, Role, jobspec_of
from fluxqueue.queue.records import FluxionJobId


def released(nodes: str | None = "n[1-3]", pods: int = 3) -> JobBuilder:
    job = make_job("gang").indexed(pods).label(names.JOBID_LABEL, "7")
    return job.pod_annotation(names.NODES_ANNOTATION, nodes) if nodes is not None else job


def read_job(builder: JobBuilder) -> Job:
    return msgspec.convert(builder.build(), Job)


def a_pod(name: str, node: str = "", *, jobid: str | None = "7", **spec: Any) -> Pod:
    builder = make_pod(name)
    if jobid is not None:
        builder = builder.annotation(names.ALLOCATION_ANNOTATION, jobid)
    if node:
        builder = builder.on_node(node)
    for key, value in spec.items():
        builder = builder.with_(f"spec.{key}", value)
    return msgspec.convert(builder.build(), Pod)


def test_a_pinned_job_names_the_node_of_every_index() -> None:
    assert claim_of_job(read_job(released()), (), 3) == Claim(FluxionJobId(7), ("n1", "n2", "n3"))


def test_a_job_of_one_pod_at_a_time_has_one_place_however_long_its_list_is() -> None:
    assert claim_of_job(read_job(released("n[1,1,1]")), (), 1) == Claim(FluxionJobId(7), ("n1",))


def test_a_job_let_go_pod_by_pod_is_read_from_its_pods_once_all_are_placed() -> None:
    pods = [a_pod("b", "n2"), a_pod("a", "n1"), a_pod("other", "n9", jobid="8")]
    assert claim_of_job(read_job(released(None, 2)), pods, 2) == Claim(FluxionJobId(7), ("n1", "n2"))
    assert claim_of_job(read_job(released(None, 3)), pods, 3) is None


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job("gang").indexed(3), id="never released"),
        pytest.param(released().suspended(), id="suspended"),
        pytest.param(released().label(names.JOBID_LABEL, "7x"), id="not an id"),
        pytest.param(released("n[1-"), id="not a hostlist"),
        pytest.param(released("n[1-2]"), id="fewer nodes than pods"),
        pytest.param(released().with_("status.conditions", [{"type": "Complete", "status": "True"}]), id="finished"),
    ],
)
def test_a_job_that_says_too_little_is_not_adopted(job: JobBuilder) -> None:
    assert claim_of_job(read_job(job), (), 3) is None


def test_a_pod_says_where_it_stands_or_where_it_is_pinned() -> None:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}}
    assert claim_of_pod(a_pod("bound", "n1")) == Claim(FluxionJobId(7), ("n1",))
    assert claim_of_pod(a_pod("pinned", affinity=affinity)) == Claim(FluxionJobId(7), ("n2",))
    assert claim_of_pod(a_pod("gated", affinity=affinity, schedulingGates=[{"name": names.GATE}])) is None
    assert claim_of_pod(a_pod("not ours", "n1", jobid=None)) is None


@pytest.mark.parametrize("one_per_node", [False, True])
def test_shares_are_what_the_pods_asked_for_on_each_node(one_per_node: bool) -> None:

    spec = jobspec_of("a/b", [Role({"cpu": Decimal("1.5")}, 3)], duration_s=60, one_per_node=one_per_node)
    shares = shares_of(spec, ("n1", "n2", "n1", names.NO_NODE))
    found = {
        share.node: (dict(share.slots), share.amounts["core"] if "core" in share.amounts else share.amounts["cpu"]) for share in shares
    }
    assert found == {"n1": ({SLOT: 2}, 3000), "n2": ({SLOT: 1}, 1500)}
