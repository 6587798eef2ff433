"""What a Job itself says to the cluster's own scheduler."""

from __future__ import annotations

from typing import Any

from support.builders import make_job
from support.queue_builders import a_job

from fluxqueue.queue.intake.stated_scheduling import stated_scheduling
from fluxqueue.queue.intake.submission import NativeScheduling

ZONE = {"topology": [{"key": "zone"}]}


def stated(completed: str = "", **fields: Any) -> NativeScheduling:
    job = make_job("j").indexed(4).with_("spec.scheduling", fields)
    return stated_scheduling(a_job(job.with_("status.completedIndexes", completed)))


def test_a_job_states_its_domain() -> None:
    assert stated(schedulingConstraints=ZONE, schedulingPolicy={"gang": {}}) == NativeScheduling("zone")
    assert stated_scheduling(a_job(make_job("j"))) == stated() == NativeScheduling()


def test_several_domains_are_one_sentence() -> None:
    found = stated(schedulingConstraints={"topology": [{"key": "zone"}, {"key": "rack"}]})
    assert "spec.scheduling.schedulingConstraints.topology has 2 constraints" in found.problem


def test_a_job_states_the_claims_that_its_pods_share() -> None:
    claims = stated(resourceClaims=[{"name": "both", "resourceClaimTemplateName": "t"}]).claims
    assert {claim.name: made for claim, made in claims.items()} == {"both": ""}


def test_a_job_of_which_too_few_pods_are_left_for_its_gang_waits_with_a_sentence() -> None:
    gang: dict[str, Any] = {"schedulingPolicy": {"gang": {}}}
    assert stated(**gang).problem == ""
    assert "needs 4 pods at once, and only 2 run" in stated("0,3", **gang).problem


def test_a_job_cannot_state_its_scheduling_and_name_a_pod_group() -> None:
    both = make_job("j").with_("spec.scheduling", {"schedulingConstraints": ZONE})
    both = both.with_("spec.template.spec.schedulingGroup", {"podGroupName": "x"})
    assert stated_scheduling(a_job(both)).problem.endswith("leave one of them out")
