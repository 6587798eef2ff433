"""Every kind of work that is more than a Job or a pod: groups, replacement pods, growing Jobs.
Failure modes are those of docs/reference/failure-modes.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.builders import JobBuilder, Json, PodBuilder, make_job, make_owner, make_pod
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"


def member(name: str, group: str = "mpi", size: int = 3, seconds: str = "0.5") -> PodBuilder:
    pod = make_pod(name).cpu("2").annotation(RUN_SECONDS, seconds).with_("spec.restartPolicy", "Never")
    return pod.label(names.POD_GROUP_LABEL, group).annotation(names.POD_GROUP_SIZE_ANNOTATION, str(size))


def group_of(stage: Stage, name: str = "mpi") -> FluxJob | None:
    """Return the FluxJob of a pod group."""
    refs = [
        found
        for found in stage.fluxjobs()
        if (found.spec.object_ref.kind, found.spec.object_ref.name) == ("PodGroup", name)
    ]
    return refs[0] if refs else None


def until_group(stage: Stage, *, state: str = "", reason: str = "", name: str = "mpi") -> FluxJob:
    def reached() -> FluxJob | None:
        fluxjob = group_of(stage, name)
        held = (
            fluxjob is not None
            and (not state or fluxjob.status.state == state)
            and (not reason or fluxjob.status.reason == reason)
        )
        return fluxjob if held else None

    fluxjob = stage.until(
        f"the group {name} is {state}{reason}", reached, said=lambda: [one.status for one in stage.fluxjobs()]
    )
    assert fluxjob is not None
    return fluxjob


def nodes_of(stage: Stage) -> dict[str, str | None]:
    """Return the node of each pod, None while it has none."""
    return {pod.metadata.name: pod.spec.node_name for pod in stage.items("pods", Pod) if not pod.terminal}


def test_a_pod_group_waits_for_its_last_pod_and_starts_as_a_gang(stage: Stage) -> None:
    stage.apply(member("launcher").cpu("1").build(), member("w0").cpu("8").build())
    until_group(stage, reason="WaitingForGroup")
    stage.until(
        "it says how many are there",
        lambda: (found := group_of(stage)) is not None and "2 of 3" in found.status.message,
    )
    waiting = until_group(stage)
    assert [owner.kind for owner in waiting.metadata.owner_references or ()] == ["Pod"] * len(
        waiting.metadata.owner_references or ()
    )
    assert stage.fluxion_jobs() == []
    stage.apply(member("w1").cpu("8").build())
    done = until_group(stage, state=State.COMPLETED)
    assert done.spec.pods == 3
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm04_the_replacement_of_a_pod_of_a_running_group_gets_its_slot(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", seconds="forever").cpu("8").build() for number in range(3)))
    until_group(stage, state=State.RUNNING)
    lost = nodes_of(stage)["p1"]
    stage.kubectl("delete", "pod", "p1")
    stage.apply(member("p1b", seconds="forever").cpu("8").build())
    stage.until("the newcomer stands where p1 stood", lambda: nodes_of(stage).get("p1b") == lost)
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm09_an_extra_pod_with_the_name_of_a_group_is_not_started(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=2, seconds="forever").build() for number in range(2)))
    until_group(stage, state=State.RUNNING)
    stage.apply(member("stranger", size=2, seconds="forever").build())
    fluxjob = stage.until_reason("stranger", "InvalidRequest")
    assert "complete without it" in fluxjob.status.message
    assert nodes_of(stage)["stranger"] is None
    for name in ("p0", "p1"):
        stage.end_pod(name)
    said = "has 1 of 2 pods"
    stage.until(
        "it is one of the next group", lambda: any(said in each.status.message for each in stage.fluxjobs())
    )

    def own() -> list[str]:
        return [each.status.state for each in stage.fluxjobs() if each.spec.object_ref.kind == "Pod"]

    stage.until("its own FluxJob goes", lambda: own() in ([], [State.CANCELLED]), 30, own)
    assert nodes_of(stage)["stranger"] is None


def test_different_sizes_in_one_group_are_reported_and_can_be_corrected(stage: Stage) -> None:
    stage.apply(member("a", size=2).build(), member("b", size=3).build())
    assert "different sizes" in until_group(stage, reason="InvalidRequest").status.message
    stage.kubectl("annotate", "pod", "b", f"{names.POD_GROUP_SIZE_ANNOTATION}=2", "--overwrite")
    until_group(stage, state=State.COMPLETED)


def test_an_invalid_group_size_is_refused_at_admission(stage: Stage) -> None:
    pod = member("a").annotation(names.POD_GROUP_SIZE_ANNOTATION, "three").namespace(stage.namespace).build()
    pod.pop("status")
    done = stage.kubectl("apply", "-f", "-", stdin=json.dumps(pod), check=False)
    assert done.returncode != 0
    assert "'three' is not the size of a group" in done.stderr


def test_a_queue_killed_while_a_group_starts_releases_all_of_it(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=12, seconds="forever").build() for number in range(12)))
    stage.kill("queue")
    stage.until_ready("queue")
    until_group(stage, state=State.RUNNING)
    stage.until_consistent()


def pods_of(stage: Stage, app: str) -> dict[str, str | None]:
    """Return the node by uid of each active pod of an owner."""
    pods = [pod for pod in stage.items("pods", Pod) if pod.metadata.label("app") == app and not pod.terminal]
    return {pod.metadata.uid: pod.spec.node_name for pod in pods if not pod.metadata.deletion_timestamp}


def until_runs(stage: Stage, app: str, pods: int, besides: Collection[str] = ()) -> dict[str, str | None]:
    """Wait until an owner has this many bound pods, none of which is in ``besides``, and return them."""

    def all_bound() -> bool:
        now = pods_of(stage, app)
        return len(now) == pods and all(now.values()) and not set(besides) & set(now)

    stage.until(f"{pods} new pods of {app} are on nodes", all_bound, 60, lambda: pods_of(stage, app))
    return pods_of(stage, app)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        pytest.param(
            "Deployment",
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
            id="Deployment without surge",
        ),
        pytest.param("StatefulSet", {}, id="StatefulSet"),
    ],
)
def test_fm04_a_rollout_in_a_full_cluster_keeps_its_slots(kind: str, strategy: Json, stage: Stage) -> None:
    """All eight nodes are booked.
    A Job that waits for one of them gets none before the owner is scaled down.
    """
    stage.apply(make_owner(kind, "web", 8, **strategy))
    before = until_runs(stage, "web", 8)
    stage.apply(make_job("greedy").cpu("8").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("greedy", "WaitingForNodes")
    for _ in range(2):
        stage.kubectl("rollout", "restart", kind.lower(), "web")
        after = until_runs(stage, "web", 8, set(before))
        assert sorted(map(str, after.values())) == sorted(map(str, before.values()))
        before = after
    assert stage.row("greedy").state == State.PENDING
    stage.until_consistent()
    stage.kubectl("scale", kind.lower(), "web", "--replicas=7")
    stage.until_state("greedy", State.COMPLETED, 20)
    stage.until_consistent()


def test_the_replacement_of_a_deleted_pod_gets_its_slot(stage: Stage) -> None:
    stage.apply(make_owner("Deployment", "web", 8))
    before = until_runs(stage, "web", 8)
    stage.apply(make_job("greedy").cpu("8").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("greedy", "WaitingForNodes")
    stage.kubectl("delete", "pods", "-l", "app=web", "--wait=false")
    after = until_runs(stage, "web", 8, set(before))
    assert len(after) == 8
    assert stage.row("greedy").state == State.PENDING
    stage.kubectl("delete", "deployment", "web")
    stage.until_state("greedy", State.COMPLETED, 20)


def test_a_running_indexed_job_grows_and_shrinks(stage: Stage) -> None:
    stage.apply(make_job("elastic").cpu("8").indexed(2).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("elastic", State.RUNNING)
    resize(stage, "elastic", 4)
    stage.until(
        "all four pods are on nodes",
        lambda: list(nodes_of(stage).values()).count(None) == 0 and len(nodes_of(stage)) == 4,
    )
    stage.until_consistent()
    assert sum(sum(share.slots.values()) for job in stage.fluxion_jobs() for share in job.shares) == 4
    resize(stage, "elastic", 1)
    stage.until(
        "one place is left",
        lambda: [share.slots for job in stage.fluxion_jobs() for share in job.shares] == [{"pod": 1}],
    )
    stage.until_consistent()
    assert stage.row("elastic").state == State.RUNNING


def resize(stage: Stage, name: str, pods: int) -> None:
    stage.kubectl(
        "patch", "job", name, "-p", json.dumps({"spec": {"parallelism": pods, "completions": pods}})
    )


def test_a_cancelled_job_that_its_user_resumes_is_matched_again(stage: Stage) -> None:
    stage.apply(make_job("again").cpu("2").pod_annotation(RUN_SECONDS, "0.5").suspended().build())
    found = stage.until_reason("again", "UserSuspended")
    stage.kubectl("patch", "fluxjob", found.metadata.name, "--type=merge", "-p", '{"spec":{"cancel":true}}')
    stage.until_state("again", State.CANCELLED)
    stage.kubectl("patch", "job", "again", "-p", '{"spec":{"suspend":false}}')
    assert stage.until_state("again", State.COMPLETED, 60).fluxjob is not None
    stage.until_consistent()


def test_a_job_that_is_deleted_at_its_completion_leaves_nothing(stage: Stage) -> None:
    stage.apply(
        make_job("brief")
        .cpu("2")
        .indexed(2)
        .pod_annotation(RUN_SECONDS, "1")
        .with_("spec.ttlSecondsAfterFinished", 0)
        .build()
    )
    stage.until(
        "the Job is gone", lambda: not stage.kubectl("get", "job", "brief", "--ignore-not-found").stdout, 60
    )
    stage.until_nothing_left()


def test_jobs_from_before_the_namespace_was_managed_continue_and_count_as_foreign(stage: Stage) -> None:
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.apply(make_job("former").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until(
        "it runs", lambda: list(nodes_of(stage).values()).count(None) == 0 and len(nodes_of(stage)) == 8
    )
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}=true")
    stage.apply(make_job("later").cpu("8").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("later", "WaitingForNodes")
    stage.kubectl("delete", "job", "former")
    stage.until_state("later", State.COMPLETED)


def test_fm08_a_suspended_job_is_released_after_its_namespace_opted_out(stage: Stage) -> None:
    stage.apply(make_job("blocker").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    stage.apply(make_job("half-in").cpu("2").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("half-in", "WaitingForNodes")
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.kubectl("delete", "job", "blocker")
    stage.until("the Job completes", lambda: stage.job("half-in").finished, 60)


def test_fm39_a_job_created_again_under_its_name_is_another_workload(stage: Stage) -> None:
    same = make_job("same").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build()
    stage.apply(same)
    first = stage.until_state("same", State.RUNNING).fluxjob
    stage.kubectl("delete", "job", "same", "--wait=true")
    stage.apply(same)
    second = stage.until(
        "the second one runs",
        lambda: next((row for row in stage.rows()[1:] if row.state == State.RUNNING), None),
        60,
    )
    assert first is not None
    assert second is not None
    assert second.fluxjob is not None
    assert (first.metadata.name, first.status.jobid) != (
        second.fluxjob.metadata.name,
        second.fluxjob.status.jobid,
    )
    stage.until_consistent()


def fluxjob_of(stage: Stage, kind: str, name: str) -> FluxJob | None:
    refs = [
        found
        for found in stage.fluxjobs()
        if (found.spec.object_ref.kind, found.spec.object_ref.name) == (kind, name)
    ]
    return refs[0] if refs else None


def test_a_gang_of_a_statefulset_created_pod_by_pod_starts_only_if_all_of_it_fits(stage: Stage) -> None:
    stage.apply(make_job("blocker").cpu("8").indexed(6).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    gang = make_owner("StatefulSet", "ring", 3)
    gang["spec"]["template"]["metadata"]["annotations"] = {names.GANG_ANNOTATION: "true"}
    stage.apply(gang)

    def waits() -> FluxJob | None:
        found = fluxjob_of(stage, "StatefulSet", "ring")
        return found if found is not None and found.status.reason == "WaitingForNodes" else None

    waiting = stage.until("two free nodes are too few for three pods", waits)
    assert waiting is not None
    assert waiting.spec.pods == 3
    assert list(pods_of(stage, "ring").values()) == [None]
    stage.kubectl("delete", "job", "blocker")
    before = until_runs(stage, "ring", 3)
    stage.until(
        "the blocker has given back the rest", lambda: len({job.jobid for job in stage.fluxion_jobs()}) == 1
    )
    stage.until_consistent()
    stage.kubectl("delete", "pod", "ring-1", "--wait=false")
    stage.until("another pod runs", lambda: set(until_runs(stage, "ring", 3)) != set(before))
    assert sorted(map(str, until_runs(stage, "ring", 3).values())) == sorted(map(str, before.values()))
    stage.kubectl("scale", "statefulset", "ring", "--replicas=1")
    stage.until(
        "two places went back",
        lambda: sum(sum(share.slots.values()) for job in stage.fluxion_jobs() for share in job.shares) == 1,
    )


JOBSETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset", "listKind": "JobSetList"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@pytest.fixture
def _jobsets(stage: Stage) -> Iterator[None]:
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(JOBSETS))
    stage.kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=30s")
    yield
    stage.kubectl("delete", "jobs", "--all")
    stage.kubectl("delete", "crd", "jobsets.jobset.x-k8s.io")


def make_jobset(stage: Stage, **spec: Any) -> str:
    """Create a JobSet named train and return its uid."""
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": spec,
    }
    return str(
        json.loads(stage.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(made)).stdout)[
            "metadata"
        ]["uid"]
    )


def start_job_of(stage: Stage, uid: str, role: str, job: JobBuilder, total: int) -> str:
    """Create and resume a Job of a JobSet with its labels and owner,
    as the JobSet controller does at its turn, and return its name.
    """
    name = f"train-{role}"
    owners = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "train",
            "uid": uid,
            "controller": True,
        }
    ]
    labelled = (
        job.with_("metadata.name", name)
        .label(names.JOBSET_TOTAL_KEY, str(total))
        .label(names.JOBSET_ROLE_LABEL, role[:-2])
    )
    made = (
        labelled.pod_label(names.JOBSET_NAME_LABEL, "train")
        .namespace(stage.namespace)
        .with_("metadata.ownerReferences", owners)
    )
    stage.kubectl("create", "-f", "-", stdin=json.dumps(made.build()))
    stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}')
    return name


@pytest.mark.usefixtures("_jobsets")
def test_a_jobset_that_resumes_its_jobs_is_matched_as_one_gang(stage: Stage) -> None:
    """The test acts as its controller: it creates two Jobs and resumes them at once."""
    uid = make_jobset(stage)
    stage.apply(make_job("blocker").cpu("8").indexed(6).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    for role, pods in (("driver-0", 1), ("workers-0", 2)):
        start_job_of(
            stage, uid, role, make_job("j").cpu("8").indexed(pods).pod_annotation(RUN_SECONDS, "0.5"), 2
        )

    def waits() -> FluxJob | None:
        found = fluxjob_of(stage, "JobSet", "train")
        return found if found is not None and found.status.reason == "WaitingForNodes" else None

    waiting = stage.until(
        "two free nodes are too few for three pods",
        waits,
        said=lambda: [one.status for one in stage.fluxjobs()],
    )
    assert waiting is not None
    assert waiting.spec.pods == 3
    stage.until("one FluxJob is that of both", lambda: len(stage.fluxjobs()) == 2)
    stage.kubectl("delete", "job", "blocker")
    stage.until(
        "both Jobs are done",
        lambda: all(stage.job(f"train-{role}-0").finished for role in ("driver", "workers")),
        60,
    )


@pytest.mark.usefixtures("_jobsets")
def test_a_jobset_with_sequential_jobs_is_matched_as_one_gang_and_keeps_its_slots(stage: Stage) -> None:
    """The test acts as its controller: it creates the workers when the driver is complete."""
    job = make_job("j").cpu("8").indexed(1).pod_annotation(RUN_SECONDS, "1")
    template = {"spec": job.build()["spec"]}
    workers = {
        "name": "workers",
        "replicas": 2,
        "template": template,
        "dependsOn": [{"name": "driver", "status": "Complete"}],
    }
    uid = make_jobset(
        stage, replicatedJobs=[{"name": "driver", "replicas": 1, "template": template}, workers]
    )
    stage.apply(make_job("blocker").cpu("8").indexed(6).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    driver = start_job_of(stage, uid, "driver-0", job, 3)

    def waits() -> FluxJob | None:
        found = fluxjob_of(stage, "JobSet", "train")
        return found if found is not None and found.status.reason == "WaitingForNodes" else None

    waiting = stage.until(
        "two free nodes are too few for three pods",
        waits,
        said=lambda: [one.status for one in stage.fluxjobs()],
    )
    assert waiting is not None
    assert waiting.spec.pods == 3
    stage.kubectl("delete", "job", "blocker")
    stage.until("the driver is done", lambda: stage.job(driver).finished, 60)

    stage.apply(make_job("greedy").cpu("8").indexed(7).pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("greedy", Reason.WAITING_FOR_NODES)
    assert (found := fluxjob_of(stage, "JobSet", "train")) is not None
    assert (found.status.state, stage.row("greedy").state) == (State.RUNNING, State.PENDING)
    later = [start_job_of(stage, uid, f"workers-{index}", job, 3) for index in range(2)]
    stage.until("the workers ran", lambda: all(stage.job(name).finished for name in later), 60)
    assert all(stage.job(name).status.has_condition("Complete") for name in later)
    stage.until_state("greedy", State.COMPLETED)


def cronjob(name: str, policy: str, at: datetime) -> Json:
    job = make_job(name).cpu("8").pod_annotation(RUN_SECONDS, "1").build()
    spec = {
        "schedule": at_minute(at),
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": policy,
        "jobTemplate": {"spec": job["spec"]},
    }
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def at_minute(at: datetime) -> str:
    """Return a schedule of once a day at this minute."""
    return f"{at.minute} {at.hour} * * *"


def test_a_cronjob_with_a_queued_job_forbids_another_or_replaces_it(stage: Stage) -> None:
    """Both CronJobs get a schedule with a missed time, so that they create a Job at once.
    While it waits they get another missed time.
    """
    stage.apply(make_job("blocker").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    now = datetime.now(UTC)
    crons = ("forbids", "replaces")
    stage.apply(
        *(
            cronjob(name, policy, now - timedelta(minutes=9))
            for name, policy in zip(crons, ("Forbid", "Replace"), strict=True)
        )
    )
    for name in crons:
        missed = json.dumps(
            {"status": {"lastScheduleTime": (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}}
        )
        stage.kubectl("patch", "cronjob", name, "--subresource=status", "--type=merge", "-p", missed)

    def queued(name: str) -> str:
        """Return the uid of the Job of a CronJob if its FluxJob waits for nodes,
        otherwise an empty string.
        """
        found = [
            one
            for one in stage.fluxjobs()
            if one.spec.object_ref.name.startswith(name) and one.status.reason == "WaitingForNodes"
        ]
        return found[0].spec.object_ref.uid if len(found) == 1 else ""

    first = {name: stage.until(f"a Job of {name} waits", partial(queued, name)) for name in crons}
    for name in crons:
        stage.kubectl(
            "patch",
            "cronjob",
            name,
            "-p",
            json.dumps({"spec": {"schedule": at_minute(now - timedelta(minutes=4))}}),
        )
        # the controller reads a new schedule only at its next due time
        stage.kubectl("annotate", "cronjob", name, "told=again")
    second = stage.until(
        "another Job waits in place of the first",
        lambda: (found := queued("replaces")) != first["replaces"] and found,
    )
    assert second
    assert queued("forbids") == first["forbids"]
    stage.kubectl("delete", "job", "blocker")

    def done() -> bool:
        jobs = {job.metadata.uid: job.finished for job in stage.items("jobs", Job)}
        return jobs.get(first["forbids"], False) and jobs.get(second, False) and first["replaces"] not in jobs

    # the Job that was forbidden before may be created now
    stage.until("the two that were left are done", done, 60)
    stage.until_consistent()
