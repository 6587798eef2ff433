"""The pod that runs services beside the brokers of a MiniCluster:
asked for, placed, counted and taken back with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import orjson
import pytest
from support.builders import make_minicluster
from support.queue_builders import EPOCH, an_allocation, around

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.minicluster.render import objects
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.model.job_slots import JobSlots
from fluxqueue.queue.model.jobspecs import SERVICES_SLOT, labels_of, ranks_of, sizes_in
from fluxqueue.queue.model.minicluster_jobs import job_served_by, queued_job, services_of
from fluxqueue.queue.model.pods import owning_job_uid
from fluxqueue.queue.model.records import Allocation, FluxionJobId, NewWorkload, SlotState
from fluxqueue.queue.recovery.adoption_claims import claim_of_job, shares_of
from fluxqueue.queue.requeue.steps import RequeueStep, next_step
from fluxqueue.queue.tracking.job_plan import conclude_job, plan_job_slots
from fluxqueue.queue.tracking.slot_changes import SlotChanges

HOSTS = ("n1", "n2", "n9")
"""Of two brokers, and of the pod beside them."""


def minicluster(**spec: Any) -> MiniCluster:
    services = [
        {"name": "registry", "image": "registry", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    ]
    body = make_minicluster("flux", 2, **{"services": services, **spec})
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    body["metadata"] |= {"namespace": "ada", "uid": "mc-uid"}
    return msgspec.convert(body, MiniCluster)


def job_of(cluster: MiniCluster, *, runs: bool = True, **status: Any) -> Job:
    body = queued_job(objects(cluster, certificate=None, image="fluxqueue-queue")[-1], cluster)
    body["metadata"] |= {"uid": "job-uid", "generation": 1, "resourceVersion": "10"}
    if runs:
        body["metadata"]["labels"][names.JOBID_LABEL] = "7"
        body["spec"]["suspend"] = False
    return msgspec.convert({**body, "status": status}, Job)


def described(cluster: MiniCluster) -> NewWorkload:
    job = job_of(cluster, runs=False)
    found = describe_job(job, around(), minicluster=cluster)
    assert found is not None
    return found


def parts(cluster: MiniCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(described(cluster).jobspec)["resources"]
    return found


def services(
    uid: str = "s", node: str = "", phase: str = "Running", *, gated: bool = False, leaving: bool = False
) -> Pod:
    made = services_of(minicluster(), job_of(minicluster()))
    assert made is not None
    meta = msgspec.structs.replace(
        made.metadata, uid=uid, resource_version="10", deletion_timestamp="2030-01-01" if leaving else None
    )
    spec = msgspec.structs.replace(
        made.spec, node_name=node or None, scheduling_gates=made.spec.scheduling_gates if gated else None
    )
    return msgspec.structs.replace(
        made, metadata=meta, spec=spec, status=msgspec.structs.replace(made.status, phase=phase)
    )


def broker(index: int, node: str = "", phase: str = "Running", *, gated: bool = False) -> Pod:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "flux", "uid": "job-uid", "controller": True}
    meta: dict[str, Any] = {"name": f"flux-{index}-abcde", "uid": f"b{index}", "ownerReferences": [owner]}
    meta["annotations"] = {names.COMPLETION_INDEX_ANNOTATION: str(index)}
    spec = {"nodeName": node} if node else {}
    gates = {"schedulingGates": [{"name": names.GATE}]} if gated else {}
    return msgspec.convert({"metadata": meta, "spec": {**spec, **gates}, "status": {"phase": phase}}, Pod)


def held(states: Sequence[SlotState] = (), pods: Sequence[str | None] = ()) -> Allocation:
    found = an_allocation(HOSTS, states=states, pods=pods)
    return replace(found, slots=(*found.slots[:2], replace(found.slots[2], label=SERVICES_SLOT)))


RUNNING = held([SlotState.TAKEN] * 3, ["b0", "b1", "s"])
BROKERS = [broker(0, "n1"), broker(1, "n2")]


# ---- what is asked for -------------------------------------------------------------------------------------


def test_it_is_a_part_of_its_job_and_is_not_matched_on_its_own() -> None:
    pod = services(gated=True)
    assert (job_served_by(pod), owning_job_uid(pod)) == ("job-uid", "job-uid")
    assert describe_pod(pod, around()) is None
    assert job_served_by(broker(0)) is None


def test_a_pod_that_only_says_so_serves_nobody() -> None:
    pod = msgspec.convert({"metadata": {"labels": {names.SERVICES_OF_LABEL: "job-uid"}}}, Pod)
    assert job_served_by(pod) is None


def test_its_place_is_matched_with_those_of_the_brokers_and_comes_after_them() -> None:
    found = described(minicluster())
    assert (found.reason, found.pods) == (Reason.NONE, 3)
    assert [(part["label"], part["count"]) for part in orjson.loads(found.jobspec)["resources"]] == [
        ("pod", 2),
        ("services", 1),
    ]
    assert sizes_in(found.jobspec)["services"] == {"cpu": 500, "memory": 1024, "pods": 1}
    shares = (NodeShare("n1", {"services": 1, "pod": 1}), NodeShare("n2", {"pod": 1}))
    assert ranks_of(shares) == [("n1", "pod"), ("n2", "pod"), ("n1", "services")]
    assert labels_of(shares, 3) == ["pod", "pod", "services"]


def test_one_without_requests_has_a_place_all_the_same() -> None:
    bare = described(minicluster(containers=[{"image": "app", "command": "ls"}]))
    assert [slot["count"] for slot in orjson.loads(bare.jobspec)["resources"]] == [2, 1]


def test_brokers_on_a_node_each_may_share_one_with_it_unless_their_rule_names_it_too() -> None:
    def apart(label: str) -> dict[str, Any]:
        term = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {label: "flux"}}}
        rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return {"podTemplate": {"metadata": {"labels": {label: "flux"}}, "spec": {"affinity": rule}}}

    brokers, beside = parts(minicluster(**apart(names.JOB_NAME_LABEL)))
    assert (brokers["type"], brokers["count"], beside["type"]) == ("node", 2, "slot")
    # which the services pod carries, for the headless Service
    brokers, beside = parts(minicluster(**apart("job-name")))
    assert (brokers["type"], beside["type"], beside["with"][0]["label"]) == ("node", "node", "services")


def test_all_go_where_each_of_them_may() -> None:
    both = minicluster(pod={"nodeSelector": {"zone": "a"}})
    system = orjson.loads(described(both).jobspec)["attributes"]["system"]
    assert system["constraints"] == {"and": [{"properties": ["zone=a"]}, {"tolerates": []}]}
    more = minicluster(
        pod={"nodeSelector": {"zone": "a"}}, podTemplate={"spec": {"nodeSelector": {"disk": "ssd"}}}
    )
    found = orjson.loads(described(more).jobspec)["attributes"]["system"]["constraints"]
    assert "disk=ssd" in str(found)
    assert "zone=a" in str(found)


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"requests": {"cpu": "many"}}, "'many'"),
        ({"requests": "many"}, "spec.services of its MiniCluster makes no pod: Expected `object"),
    ],
)
def test_a_request_that_cannot_be_read_is_told_of_the_job(resources: dict[str, Any], told: str) -> None:
    found = described(minicluster(services=[{"name": "db", "image": "db", "resources": resources}]))
    assert found.reason is Reason.INVALID_REQUEST
    assert told in found.message


# ---- its place ---------------------------------------------------------------------------------------------


def test_each_pod_is_let_go_onto_its_own_place() -> None:
    waiting = [broker(0, gated=True), broker(1, gated=True), services(gated=True)]
    slot_changes = plan_job_slots(job_of(minicluster()), waiting, held())
    assert [(rank, pod.metadata.uid) for rank, pod in slot_changes.assign] == [(0, "b0"), (1, "b1"), (2, "s")]
    alone = plan_job_slots(job_of(minicluster()), [services(gated=True)], held())
    assert [rank for rank, _ in alone.assign] == [2]


def test_it_runs_once_the_services_are_on_their_node_too() -> None:
    job = job_of(minicluster())
    assert not plan_job_slots(job, [*BROKERS, services(gated=True)], RUNNING).running
    assert plan_job_slots(job, [*BROKERS, services(node="n9")], RUNNING) == SlotChanges(running=True)


def test_a_services_pod_that_stands_there_is_noted() -> None:
    slot_changes = plan_job_slots(
        job_of(minicluster()), [*BROKERS, services(node="n9")], held([SlotState.TAKEN] * 2, ["b0", "b1"])
    )
    assert [(rank, pod.metadata.uid) for rank, pod in slot_changes.take] == [(2, "s")]


def test_one_of_a_former_allocation_takes_no_place() -> None:
    slot_changes = plan_job_slots(
        job_of(minicluster()), [*BROKERS, services(node="n4")], held([SlotState.TAKEN] * 2, ["b0", "b1"])
    )
    assert slot_changes.take == ()


def test_a_deleted_one_keeps_its_place_for_the_next_while_the_job_runs() -> None:
    job = job_of(minicluster())
    assert plan_job_slots(job, BROKERS, RUNNING).vacate == (2,)
    going = plan_job_slots(job, [*BROKERS, services(node="n9", phase="Failed", leaving=True)], RUNNING)
    assert (going.vacate, going.end) == ((2,), ())


def test_the_next_one_takes_the_place_also_where_both_changes_are_seen_at_once() -> None:
    following = plan_job_slots(job_of(minicluster()), [*BROKERS, services("t", gated=True)], RUNNING)
    assert ([(rank, pod.metadata.uid) for rank, pod in following.assign], following.vacate) == (
        [(2, "t")],
        (2,),
    )
    standing = plan_job_slots(job_of(minicluster()), [*BROKERS, services("t", node="n9")], RUNNING)
    assert ([(rank, pod.metadata.uid) for rank, pod in standing.take], standing.vacate) == ([(2, "t")], (2,))


def test_one_that_ended_by_itself_gives_its_place_back() -> None:
    assert plan_job_slots(
        job_of(minicluster()), [*BROKERS, services(node="n9", phase="Failed")], RUNNING
    ).end == (2,)


def test_with_the_job_over_its_place_goes_back_when_it_has_gone() -> None:
    ended = [broker(0, "n1", "Succeeded"), broker(1, "n2", "Succeeded")]
    job = job_of(minicluster(), conditions=[{"type": "Complete", "status": "True"}])
    lives = plan_job_slots(job, [*ended, services(node="n9")], RUNNING)
    assert (lives.end, lives.state) == ((0, 1), State.COMPLETED)
    assert plan_job_slots(job, ended, RUNNING).end == (0, 1, 2)
    assert plan_job_slots(job, [*ended, services(gated=True)], held()).end == (0, 1, 2)
    assert conclude_job(job, [*ended, services(node="n9")]).state is None
    over = conclude_job(job, [*ended, services(node="n9", phase="Failed")])
    assert (over.state, over.outcome) == (State.COMPLETED, Outcome.SUCCEEDED)


def test_by_growing_no_broker_comes_into_its_place() -> None:
    larger = job_of(
        msgspec.structs.replace(minicluster(), spec=msgspec.structs.replace(minicluster().spec, size=3))
    )
    pods = [*BROKERS, broker(2, gated=True), services(node="n9")]
    assert plan_job_slots(larger, pods, RUNNING).assign == ()
    assert JobSlots(larger, pods, RUNNING).lack(pods[2])
    assert not JobSlots(larger, pods, RUNNING).lack(services("t", gated=True))


def test_without_a_place_for_it_it_is_matched_as_one_more() -> None:
    gone = replace(RUNNING, slots=(*RUNNING.slots[:2], replace(RUNNING.slots[2], state=SlotState.ENDED)))
    assert JobSlots(job_of(minicluster()), BROKERS, gone).lack(services("t", gated=True))


# ---- taken back, and adopted -------------------------------------------------------------------------------


def test_nothing_is_put_back_before_it_has_gone() -> None:
    job = job_of(minicluster(), conditions=[{"type": "Suspended", "status": "True"}])
    stopped = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, suspend=True))
    assert next_step(stopped, [services(node="n9")], RUNNING, lambda _node: False).step is RequeueStep.WAIT
    assert next_step(stopped, [], RUNNING, lambda _node: False).step is RequeueStep.CLEAR
    lost = next_step(stopped, [services(node="n9")], RUNNING, lambda node: node == "n9")
    assert (lost.step, lost.kept) == (RequeueStep.CLEAR, ((FluxionJobId(7), 2),))


def test_what_tables_do_not_know_is_read_from_brokers_by_rank_and_then_it() -> None:
    def let_go(pod: Pod) -> Pod:
        annotations = {**(pod.metadata.annotations or {}), names.ALLOCATION_ANNOTATION: "7"}
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations)
        )

    pods = [let_go(services(node="n9")), *(let_go(broker(index, f"n{index}")) for index in (10, 9, 2))]
    claim = claim_of_job(job_of(minicluster()), pods, 4, EPOCH)
    assert claim is not None
    assert [(rank, node) for rank, node in enumerate(claim.hosts) if node != names.NO_NODE] == [
        (2, "n2"),
        (9, "n9"),
        (10, "n10"),
        (11, "n9"),
    ]
    shares = shares_of(described(minicluster()).jobspec, claim.hosts)
    assert [
        rank for rank, label in enumerate(labels_of(shares, len(claim.hosts))) if label == SERVICES_SLOT
    ] == [11]
    assert [(share.node, dict(share.slots)) for share in shares] == [
        ("n2", {"pod": 1}),
        ("n9", {"pod": 1, "services": 1}),
        ("n10", {"pod": 1}),
    ]
    assert shares[1].amounts["cpu"] == 4_500
    assert claim_of_job(job_of(minicluster()), pods[1:], 4, EPOCH) is None
