"""Pod groups: what is gathered, what is asked for, and who may stand in which place.

Failure modes are those of docs/reference/failure-modes.md.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, PodBuilder, make_job, make_pod
from support.queue_builders import EPOCH, a_job, a_pod, an_allocation, around

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.hostports import pod_needs
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.requests import pod_requests
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.queue.intake import request_resolver
from fluxqueue.queue.intake.describe import describe_group, describe_pod
from fluxqueue.queue.model.groups import (
    GatheredGroup,
    GroupKey,
    gather,
    gather_gang,
    gather_jobset,
    group_of,
    jobset_of,
)
from fluxqueue.queue.model.jobspecs import labels_of, ranks_of, slots_for, slots_in
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode, SlotState
from fluxqueue.queue.noderules.jobspec_rules import rules_in
from fluxqueue.queue.tracking.group_plan import SeenPods, plan_group_slots
from fluxqueue.queue.tracking.slot_changes import SlotChanges, empty_ranks

KEY = GroupKey("default", "mpi")
TAKEN = (SlotState.TAKEN,) * 3
PODS = ("p0", "p1", "p2")
HOSTS = ("n1", "n2", "n3")


def member(name: str, size: str | None = "3") -> PodBuilder:
    builder = (
        make_pod(name)
        .label("fluxqueue/pod-group", "mpi")
        .gate("fluxqueue")
        .cpu("1")
        .with_("spec.restartPolicy", "Never")
    )
    return builder if size is None else builder.annotation("fluxqueue/pod-group-size", size)


def pods(*builders: PodBuilder) -> list[Pod]:
    return [a_pod(builder, uid=builder.build()["metadata"]["name"]) for builder in builders]


def gathered(*builders: PodBuilder, waited_s: float = 0) -> GatheredGroup:
    found = gather(KEY, pods(*builders), EPOCH, EPOCH + timedelta(seconds=waited_s))
    assert found is not None
    return found


def described(*builders: PodBuilder) -> NewWorkload:
    return describe_group(KEY, gathered(*builders), around())


def test_a_group_is_matched_once_all_its_pods_are_there() -> None:
    found = gathered(member("a"), member("b"))
    assert (found.reason, found.message) == (
        Reason.WAITING_FOR_GROUP,
        "pod group default/mpi has 2 of 3 pods: it can start when all are there",
    )
    assert gathered(member("a"), member("b"), member("c")).reason is Reason.NONE


def test_a_size_that_is_never_reached_is_said_after_a_while_and_holds_no_nodes() -> None:
    late = gathered(member("a"), waited_s=601)
    assert late.reason is Reason.WAITING_FOR_GROUP
    assert "only 1 of 3 pods for more than 10 minutes" in late.message


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        pytest.param(("3", "4"), "different sizes, 3 (pod p0), 4 (pod p1)", id="they disagree"),
        pytest.param((None, None), "no pod says how many belong to it", id="nobody says one"),
        pytest.param(("3", "many"), "of pod p1: 'many' is not the size of a group", id="no number"),
        pytest.param(("0",), "of pod p0: '0' is not", id="nothing"),
        pytest.param(("9" * 30,), "is not the size of a group", id="absurd"),
    ],
)
def test_a_nonsense_size_is_refused_with_the_pods_name(sizes: tuple[str | None, ...], said: str) -> None:
    found = gathered(*(member(f"p{number}", size) for number, size in enumerate(sizes)))
    assert found.reason is Reason.INVALID_REQUEST
    assert said in found.message


def test_one_pod_may_say_the_size_for_all() -> None:
    assert gathered(member("a", "2"), member("b", None)).reason is Reason.NONE


def test_pods_beyond_the_size_are_left_out_and_told_why() -> None:
    found = gathered(member("a", "2"), member("b", "2"), member("c", "2"))
    assert [pod.metadata.name for pod in found.excess] == ["c"]
    assert found.reason is Reason.NONE
    (extra,) = pods(member("c", "2"))
    alone = describe_pod(extra, around(), complete_group="pod group default/mpi of size 2")
    assert alone is not None
    assert alone.reason is Reason.INVALID_REQUEST
    assert "names pod group default/mpi of size 2, which is complete without it" in alone.message


def test_what_equal_pods_of_a_group_request_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[PodSpec] = []

    def noted(spec: PodSpec) -> dict[str, Any]:
        read.append(spec)
        return dict(pod_needs(spec))

    monkeypatch.setattr(request_resolver, "pod_needs", noted)
    found = described(
        *(member(f"p{number}", "12") for number in range(10)),
        member("large", "12").cpu("3"),
        member("last", "12"),
    )
    assert [(label, count) for label, count, _ in slots_in(found.jobspec)] == [("pod.0", 11), ("pod.1", 1)]
    assert len(read) == 2


def test_fm09_a_group_of_the_same_name_elsewhere_is_another_group() -> None:
    (here, there) = pods(member("a"), member("b").namespace("other"))
    assert group_of(here) != group_of(there)


def test_the_pods_of_a_job_are_the_jobs_whatever_they_name() -> None:
    (pod,) = pods(member("a").owned_by("Job"))
    assert group_of(pod) is None


def test_pods_of_one_group_in_two_queues_are_refused() -> None:
    found = gathered(member("a", "2").label("fluxqueue/queue", "x"), member("b", "2"))
    assert found.reason is Reason.INVALID_REQUEST
    assert "none, x" in found.message


def test_unlike_pods_are_asked_for_as_several_roles_in_one_request() -> None:
    found = described(member("launcher"), member("w0").cpu("4"), member("w1").cpu("4"))
    slots = json.loads(found.jobspec)["resources"]
    assert [(slot["label"], slot["count"], slot["with"][0]["count"]) for slot in slots] == [
        ("pod.0", 1, 1000),
        ("pod.1", 2, 4000),
    ]
    assert (found.kind, found.name, found.release_mode, found.pods) == (
        "PodGroup",
        "mpi",
        ReleaseMode.GROUP,
        3,
    )


def test_like_pods_are_one_role() -> None:
    (slot,) = json.loads(described(member("a"), member("b"), member("c")).jobspec)["resources"]
    assert (slot["label"], slot["count"]) == ("pod", 3)


def test_pods_of_one_group_with_different_rules_are_refused() -> None:
    found = described(member("a", "2").with_("spec.nodeSelector", {"disk": "ssd"}), member("b", "2"))
    assert found.reason is Reason.INVALID_REQUEST
    assert "one group has one set of rules" in found.message


def test_pods_of_one_group_get_nodes_that_all_of_them_tolerate() -> None:
    gpu, both = ([{"key": key, "operator": "Exists"} for key in keys] for keys in ("g", "gs"))
    found = described(
        member("a", "2").with_("spec.tolerations", gpu), member("b", "2").with_("spec.tolerations", both)
    )
    assert found.reason is Reason.NONE
    assert json.loads(found.jobspec)["attributes"]["system"]["constraints"] == {"tolerates": ["g:"]}


def test_a_group_that_keeps_apart_has_a_node_for_each_pod() -> None:
    term = {
        "labelSelector": {"matchLabels": {"fluxqueue/pod-group": "mpi"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    apart = described(
        member("a", "2").with_("spec.affinity", rule), member("b", "2").with_("spec.affinity", rule)
    )
    (node,) = json.loads(apart.jobspec)["resources"]
    assert (node["type"], node["count"]) == ("node", 2)
    unlike = described(
        member("a", "2").with_("spec.affinity", rule), member("b", "2").cpu("4").with_("spec.affinity", rule)
    )
    assert [part["type"] for part in json.loads(unlike.jobspec)["resources"]] == ["slot", "slot"]
    assert rules_in(unlike.jobspec) is not None, (
        "pods of different sizes are kept apart by the rule itself, when they are matched"
    )


def test_what_was_matched_for_other_members_is_not_granted() -> None:
    before, after = (
        described(member("a", "2"), member("b", "2")),
        described(member("a", "2"), member("c", "2")),
    )
    assert before.uid == after.uid
    assert before.generation != after.generation


def test_ranks_go_role_by_role() -> None:
    shares = (NodeShare("n1", {"pod.1": 1, "pod.0": 1}), NodeShare("n2", {"pod.1": 1}))
    assert ranks_of(shares) == [("n1", "pod.0"), ("n1", "pod.1"), ("n2", "pod.1")]
    assert labels_of(shares, 3) == ["pod.0", "pod.1", "pod.1"]
    found = described(member("launcher"), member("w0").cpu("4"), member("w1").cpu("4"))
    (launcher, worker, other) = pods(member("l"), member("w").cpu("4"), member("o").cpu("2"))
    sizes = [slots_for(found.jobspec, pod_requests(pod.spec)) for pod in (launcher, worker, other)]
    assert sizes == [{"pod.0": {}}, {"pod.1": {}}, {}]


def standing(uid: str, node: str | None = None, phase: str = "Running", gated: bool = False) -> Pod:
    builder = make_pod(uid).phase(phase)
    builder = builder.on_node(node) if node is not None else builder
    return a_pod(builder.gate("fluxqueue") if gated else builder, uid=uid)


def judged(found: list[Pod], allocation: Any, seen: dict[str, str] | None = None, **more: Any) -> SlotChanges:
    phases = {pod.metadata.uid: pod.status.phase for pod in found} if seen is None else seen
    return plan_group_slots(found, allocation, lambda _pod: "pod", SeenPods(phases), **more)


def test_each_pod_of_a_granted_group_is_let_go_onto_a_place_of_its_size() -> None:
    waiting = [standing(uid, gated=True) for uid in PODS]
    assert [(rank, pod.metadata.uid) for rank, pod in judged(waiting, an_allocation(HOSTS)).assign] == [
        (0, "p0"),
        (1, "p1"),
        (2, "p2"),
    ]


def test_a_pod_of_another_size_gets_no_place() -> None:
    found = plan_group_slots(
        [standing("p9", gated=True)], an_allocation(HOSTS), lambda _pod: None, SeenPods()
    )
    assert found.assign == ()


def test_a_pod_that_is_gated_in_its_place_is_let_go_again() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    found = judged([standing("p0", gated=True), standing("p1", "n2"), standing("p2", "n3")], allocation)
    assert [(rank, pod.metadata.uid) for rank, pod in found.assign] == [(0, "p0")]


def test_fm04_a_replacement_takes_the_place_of_a_pod_that_failed_or_was_deleted() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    found = judged(
        [
            standing("p0", "n1"),
            standing("p1", "n2", phase="Failed"),
            standing("p2", "n3"),
            standing("q", gated=True),
        ],
        allocation,
    )
    assert found.vacate == (1,)
    assert [(rank, pod.metadata.uid) for rank, pod in found.assign] == [(1, "q")]
    assert empty_ranks(allocation, found) == set()


def test_a_place_is_kept_for_a_while_and_then_goes_back() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    found = [standing("p0", "n1"), standing("p2", "n3")]
    seen = {"p0": "Running", "p1": "Running", "p2": "Running"}
    assert empty_ranks(allocation, judged(found, allocation, seen)) == {1}
    assert judged(found, allocation, seen, expired=(1,)).end == (1,)


def test_the_place_of_a_pod_that_succeeded_goes_back_at_once() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    found = judged(
        [standing("p0", "n1"), standing("p1", "n2", phase="Succeeded"), standing("p2", "n3")], allocation
    )
    assert (found.end, found.state) == ((1,), None)


@pytest.mark.parametrize(
    ("phases", "state", "outcome"),
    [
        pytest.param(("Succeeded",) * 3, State.COMPLETED, Outcome.SUCCEEDED, id="all succeeded"),
        pytest.param(("Succeeded", "Failed", "Succeeded"), State.FAILED, Outcome.FAILED, id="one failed"),
        pytest.param(("Running", "Running", "Running"), State.CANCELLED, Outcome.CANCELLED, id="deleted"),
    ],
)
def test_fm07_a_group_ends_with_its_last_place_and_as_its_pods_did(
    phases: tuple[str, ...], state: State, outcome: Outcome
) -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    seen = dict(zip(PODS, phases, strict=True))
    found = plan_group_slots([], allocation, lambda _pod: "pod", SeenPods(seen), expired=(0, 1, 2))
    assert (found.end, found.state, found.outcome) == ((0, 1, 2), state, outcome)


def test_fm26_nobody_is_let_go_onto_a_node_that_does_not_answer() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    found = judged(
        [standing("p0", "n1"), standing("p2", "n3"), standing("q", gated=True)],
        allocation,
        closed=lambda _pod, node: node == "n2",
    )
    assert found.assign == ()


def test_a_group_runs_once_all_its_pods_are_bound() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    assert judged([standing(uid, host) for uid, host in zip(PODS, HOSTS, strict=True)], allocation).running
    assert not judged([standing("p0", "n1"), standing("p1", "n2"), standing("p2")], allocation).running


def test_a_gang_is_as_large_as_its_owner_wants_and_like_the_pod_that_is_there() -> None:
    """An OrderedReady StatefulSet shows only its first pod while that is gated."""
    (first,) = pods(
        make_pod("db-0")
        .owned_by("StatefulSet", "db")
        .annotation("fluxqueue/gang", "true")
        .gate("fluxqueue")
        .cpu("2")
    )
    key = group_of(first)
    assert key == GroupKey("default", "db", "StatefulSet")
    owner = msgspec.convert({"spec": {"replicas": 3}}, ScaledWorkload)
    gathering = gather_gang([first], owner)
    assert gathering is not None
    found = describe_group(key, gathering, around())
    (slot,) = json.loads(found.jobspec)["resources"]
    assert (found.kind, found.name, found.pods, slot["count"], found.reason) == (
        "StatefulSet",
        "db",
        3,
        3,
        Reason.NONE,
    )
    assert found.duration_s is None


def test_an_owner_without_the_annotation_is_no_gang() -> None:
    (pod,) = pods(make_pod("db-0").owned_by("StatefulSet", "db").gate("fluxqueue"))
    assert group_of(pod) is None


def test_pods_of_several_owners_that_name_one_group_are_matched_as_one() -> None:
    """As a LeaderWorkerSet makes them: a StatefulSet for the leader, one for its workers.
    The label is more than a wish for a gang.
    """
    owners = [("lws-0", "lws"), ("lws-0-1", "lws-0"), ("lws-0-2", "lws-0")]
    waiting = pods(
        *(
            member(pod, "3").owned_by("StatefulSet", name).annotation("fluxqueue/gang", "true")
            for pod, name in owners
        )
    )
    (key,) = {group_of(pod) for pod in waiting}
    assert key is not None
    gathering = gather(key, waiting, None, EPOCH)
    assert gathering is not None
    found = describe_group(key, gathering, around())
    assert (found.kind, found.pods, found.reason) == ("PodGroup", 3, Reason.NONE)


def jobset_job_builder(name: str, parallelism: int, total: str) -> JobBuilder:
    builder = (
        make_job(name)
        .indexed(parallelism)
        .owned_by("JobSet", "train", api_version="jobset.x-k8s.io/v1alpha2")
    )
    return builder.annotation("fluxqueue/duration", "20m").label("jobset.sigs.k8s.io/global-replicas", total)


def jobset_job(name: str, parallelism: int, total: str) -> Job:
    return a_job(jobset_job_builder(name, parallelism, total), uid=name)


def jobset_pod(name: str, job: str, cpu: str = "1") -> PodBuilder:
    builder = (
        make_pod(name)
        .owned_by("Job", job)
        .label("jobset.sigs.k8s.io/jobset-name", "train")
        .gate("fluxqueue")
        .cpu(cpu)
    )
    return builder.with_("spec.restartPolicy", "Never")


def test_a_jobset_is_matched_as_one_once_all_its_jobs_and_pods_are_there() -> None:
    driver, workers = jobset_job("driver", 1, "2"), jobset_job("workers", 2, "2")
    (first, *others) = pods(
        jobset_pod("d", "driver"), jobset_pod("w0", "workers", "4"), jobset_pod("w1", "workers", "4")
    )
    key = group_of(first)
    assert key == GroupKey("default", "train", "JobSet")

    def gathered_of(pods: list[Pod], jobs: list[Job]) -> GatheredGroup:
        found = gather_jobset(key, pods, jobs)
        assert found is not None
        return found

    assert "has 1 of 2 Jobs" in gathered_of([first], [driver]).message
    assert "has 1 of 3 pods" in gathered_of([first], [driver, workers]).message
    whole = gathered_of([first, *others], [driver, workers])
    found = describe_group(key, whole, around())
    slots = json.loads(found.jobspec)["resources"]
    assert [(slot["label"], slot["count"]) for slot in slots] == [("pod.0", 1), ("pod.1", 2)]
    assert (found.kind, found.reason, found.duration_s) == ("JobSet", Reason.NONE, 1200)
    assert jobset_of(driver) == "train"


def test_a_jobset_that_is_started_anew_waits_for_no_more_than_what_is_left_of_it() -> None:
    """One of its Jobs is done, another half done: their pods do not come again."""
    done = a_job(
        jobset_job_builder("driver", 1, "2").with_(
            "status.conditions", [{"type": "Complete", "status": "True"}]
        ),
        uid="driver",
    )
    half = a_job(jobset_job_builder("workers", 2, "2").with_("status.completedIndexes", "1"), uid="workers")
    (left,) = pods(jobset_pod("w0", "workers"))
    gathering = gather_jobset(GroupKey("default", "train", "JobSet"), [left], [done, half])
    assert gathering is not None
    assert (gathering.size, gathering.reason) == (1, Reason.NONE)


def test_pods_of_a_job_that_only_name_a_jobset_stay_their_jobs() -> None:
    pod = a_pod(jobset_pod("w0", "j"))
    assert group_of(pod, jobset_job("j", 1, "1")) == GroupKey("default", "train", "JobSet")
    assert group_of(pod, a_job(make_job("j"))) is None


def test_only_a_jobset_of_the_jobset_controller_holds_jobs_together() -> None:
    assert jobset_of(a_job(make_job("j").owned_by("JobSet", "train", api_version="example.com/v1"))) is None


def test_pods_whose_creation_times_are_equal_or_missing_are_told_apart_by_name() -> None:
    builders = [member(name, "2") for name in ("c", "a", "b")]
    skewed = [builders[0].with_("metadata.creationTimestamp", "2031-01-01T00:00:00Z"), *builders[1:]]
    assert [pod.metadata.name for pod in gathered(*builders).members] == ["a", "b"]
    assert [pod.metadata.name for pod in gathered(*skewed).excess] == ["c"]


def test_no_pod_gets_a_place_that_is_given_back_and_it_ends_with_its_pod() -> None:
    allocation = an_allocation(HOSTS, states=TAKEN, pods=PODS)
    there = [standing("p0", "n1"), standing("p1", "n2"), standing("p2", "n3")]
    kept = judged([*there, standing("p3", gated=True)], allocation, leaving={2})
    assert (kept.end, kept.assign, kept.running) == ((), (), True)
    gone = judged([*there[:2], standing("p3", gated=True)], allocation, leaving={2})
    assert (gone.end, gone.assign, gone.vacate, gone.running) == ((2,), (), (), True)
