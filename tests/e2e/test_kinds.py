"""Every kind of work that is more than a Job or a pod: groups, successors, growing Jobs. Failure modes are those of docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from builders import Json, PodBuilder, make_job, make_pod
from end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.objects import Job, Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"


def member(name: str, group: str = "mpi", size: int = 3, seconds: str = "2") -> PodBuilder:
    pod = make_pod(name).cpu("2").annotation(RUN_SECONDS, seconds).with_("spec.restartPolicy", "Never")
    return pod.label(names.POD_GROUP_LABEL, group).annotation(names.POD_GROUP_SIZE_ANNOTATION, str(size))


def group_of(stage: Stage, name: str = "mpi") -> FluxJob | None:
    """The FluxJob of a pod group."""
    refs = [found for found in stage.fluxjobs() if (found.spec.object_ref.kind, found.spec.object_ref.name) == ("PodGroup", name)]
    return refs[0] if refs else None


def until_group(stage: Stage, *, state: str = "", reason: str = "", name: str = "mpi") -> FluxJob:
    def come() -> FluxJob | None:
        found = group_of(stage, name)
        held = found is not None and (not state or found.status.state == state) and (not reason or found.status.reason == reason)
        return found if held else None

    found = stage.until(f"the group {name} is {state}{reason}", come, said=lambda: [one.status for one in stage.fluxjobs()])
    assert found is not None
    return found


def nodes_of(stage: Stage) -> dict[str, str | None]:
    """Node of each pod, None while it has none."""
    return {pod.metadata.name: pod.spec.node_name for pod in stage.items("pods", Pod) if not pod.terminal}


def test_a_pod_group_waits_for_its_last_pod_and_starts_as_one(stage: Stage) -> None:
    stage.apply(member("launcher").cpu("1").build(), member("w0").cpu("8").build())
    until_group(stage, reason="WaitingForGroup")
    stage.until("it says how many are there", lambda: (found := group_of(stage)) is not None and "2 of 3" in found.status.message)
    waiting = until_group(stage)
    assert [owner.kind for owner in waiting.metadata.owner_references or ()] == ["Pod"] * len(waiting.metadata.owner_references or ())
    assert stage.fluxion_jobs() == []
    stage.apply(member("w1").cpu("8").build())
    done = until_group(stage, state=State.COMPLETED)
    assert done.spec.pods == 3
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm04_a_pod_of_a_running_group_is_replaced_in_its_place(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", seconds="forever").cpu("8").build() for number in range(3)))
    until_group(stage, state=State.RUNNING)
    lost = nodes_of(stage)["p1"]
    stage.kubectl("delete", "pod", "p1")
    stage.apply(member("p1b", seconds="forever").cpu("8").build())
    stage.until("the newcomer stands where p1 stood", lambda: nodes_of(stage).get("p1b") == lost)
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm09_a_pod_too_many_gains_nothing_by_a_groups_name(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=2, seconds="forever").build() for number in range(2)))
    until_group(stage, state=State.RUNNING)
    stage.apply(member("stranger", size=2, seconds="forever").build())
    fluxjob = stage.until_reason("stranger", "InvalidRequest")
    assert "complete without it" in fluxjob.status.message
    assert nodes_of(stage)["stranger"] is None


def test_sizes_that_disagree_are_said_and_mended(stage: Stage) -> None:
    stage.apply(member("a", size=2).build(), member("b", size=3).build())
    assert "different sizes" in until_group(stage, reason="InvalidRequest").status.message
    stage.kubectl("annotate", "pod", "b", f"{names.POD_GROUP_SIZE_ANNOTATION}=2", "--overwrite")
    until_group(stage, state=State.COMPLETED)


def test_a_nonsense_size_is_refused_at_apply(stage: Stage) -> None:
    pod = member("a").annotation(names.POD_GROUP_SIZE_ANNOTATION, "three").namespace(stage.namespace).build()
    pod.pop("status")
    done = stage.kubectl("apply", "-f", "-", stdin=json.dumps(pod), check=False)
    assert done.returncode != 0
    assert "'three' is not the size of a group" in done.stderr


def test_a_queue_that_is_killed_while_a_group_starts_lets_all_of_it_go(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=12, seconds="forever").build() for number in range(12)))
    stage.kill("queue")
    stage.until_ready("queue")
    until_group(stage, state=State.RUNNING)
    stage.until_consistent()


def owner(kind: str, name: str, replicas: int, cpu: str = "8", **spec: Any) -> Json:
    pod = make_pod(name).cpu(cpu).build()
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {**pod["spec"], "restartPolicy": "Always", "terminationGracePeriodSeconds": 1},
    }
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    if kind == "StatefulSet":
        whole["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole}


def pods_of(stage: Stage, app: str) -> dict[str, str | None]:
    """Node by uid of the living pods of an owner."""
    found = [pod for pod in stage.items("pods", Pod) if pod.metadata.label("app") == app and not pod.terminal]
    return {pod.metadata.uid: pod.spec.node_name for pod in found if not pod.metadata.deletion_timestamp}


def until_runs(stage: Stage, app: str, pods: int, besides: Collection[str] = ()) -> dict[str, str | None]:
    """Wait until an owner has so many pods on nodes, none of them one of these."""

    def come() -> bool:
        now = pods_of(stage, app)
        return len(now) == pods and all(now.values()) and not set(besides) & set(now)

    stage.until(f"{pods} new pods of {app} are on nodes", come, 60, lambda: pods_of(stage, app))
    return pods_of(stage, app)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        pytest.param("Deployment", {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, id="Deployment without surge"),
        pytest.param("StatefulSet", {}, id="StatefulSet"),
    ],
)
def test_fm04_a_rollout_in_a_full_cluster_keeps_its_places(kind: str, strategy: Json, stage: Stage) -> None:
    """Eight nodes, all of them taken; a Job that waits for any of them gets none before the owner is scaled down."""
    stage.apply(owner(kind, "web", 8, **strategy))
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


def test_the_place_of_a_deleted_pod_is_its_successors(stage: Stage) -> None:
    stage.apply(owner("Deployment", "web", 8))
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
    stage.until("all four pods are on nodes", lambda: list(nodes_of(stage).values()).count(None) == 0 and len(nodes_of(stage)) == 4)
    stage.until_consistent()
    assert sum(sum(share.slots.values()) for job in stage.fluxion_jobs() for share in job.shares) == 4
    resize(stage, "elastic", 1)
    stage.until("one place is left", lambda: [share.slots for job in stage.fluxion_jobs() for share in job.shares] == [{"pod": 1}])
    stage.until_consistent()
    assert stage.row("elastic").state == State.RUNNING


def resize(stage: Stage, name: str, pods: int) -> None:
    stage.kubectl("patch", "job", name, "-p", json.dumps({"spec": {"parallelism": pods, "completions": pods}}))


def test_a_cancelled_job_that_its_user_resumes_is_matched_once_more(stage: Stage) -> None:
    stage.apply(make_job("again").cpu("2").pod_annotation(RUN_SECONDS, "2").suspended().build())
    found = stage.until_reason("again", "UserSuspended")
    stage.kubectl("patch", "fluxjob", found.metadata.name, "--type=merge", "-p", '{"spec":{"cancel":true}}')
    stage.until_state("again", State.CANCELLED)
    stage.kubectl("patch", "job", "again", "-p", '{"spec":{"suspend":false}}')
    assert stage.until_state("again", State.COMPLETED, 60).fluxjob is not None
    stage.until_consistent()


def test_a_job_that_is_removed_as_soon_as_it_is_done_leaves_nothing(stage: Stage) -> None:
    stage.apply(make_job("brief").cpu("2").indexed(2).pod_annotation(RUN_SECONDS, "1").with_("spec.ttlSecondsAfterFinished", 0).build())
    stage.until("the Job is gone", lambda: not stage.kubectl("get", "job", "brief", "--ignore-not-found").stdout, 60)
    stage.until_nothing_left()


def test_jobs_that_ran_before_the_namespace_was_managed_go_on_and_count_as_foreign(stage: Stage) -> None:
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.apply(make_job("former").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until("it runs", lambda: list(nodes_of(stage).values()).count(None) == 0 and len(nodes_of(stage)) == 8)
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}=true")
    stage.apply(make_job("later").cpu("8").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("later", "WaitingForNodes")
    stage.kubectl("delete", "job", "former")
    stage.until_state("later", State.COMPLETED)


def test_fm08_what_we_suspended_is_let_go_although_its_namespace_opted_out_meanwhile(stage: Stage) -> None:
    stage.apply(make_job("blocker").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    stage.apply(make_job("half-in").cpu("2").pod_annotation(RUN_SECONDS, "1").build())
    stage.until_reason("half-in", "WaitingForNodes")
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.kubectl("delete", "job", "blocker")
    stage.until("the Job completes", lambda: stage.job("half-in").finished, 60)


def test_fm39_a_job_made_anew_under_its_name_is_another_one(stage: Stage) -> None:
    same = make_job("same").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build()
    stage.apply(same)
    first = stage.until_state("same", State.RUNNING).fluxjob
    stage.kubectl("delete", "job", "same", "--wait=true")
    stage.apply(same)
    second = stage.until("the second one runs", lambda: next((row for row in stage.rows()[1:] if row.state == State.RUNNING), None), 60)
    assert first is not None
    assert second is not None
    assert second.fluxjob is not None
    assert (first.metadata.name, first.status.jobid) != (second.fluxjob.metadata.name, second.fluxjob.status.jobid)
    stage.until_consistent()


def fluxjob_of(stage: Stage, kind: str, name: str) -> FluxJob | None:
    refs = [found for found in stage.fluxjobs() if (found.spec.object_ref.kind, found.spec.object_ref.name) == (kind, name)]
    return refs[0] if refs else None


def test_a_gang_of_a_statefulset_that_comes_pod_by_pod_starts_only_when_all_of_it_fits(stage: Stage) -> None:
    stage.apply(make_job("blocker").cpu("8").indexed(6).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    gang = owner("StatefulSet", "ring", 3)
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
    stage.until_consistent()
    assert len({job.jobid for job in stage.fluxion_jobs()}) == 1
    stage.kubectl("delete", "pod", "ring-1", "--wait=false")
    stage.until("another pod runs", lambda: set(until_runs(stage, "ring", 3)) != set(before))
    assert sorted(map(str, until_runs(stage, "ring", 3).values())) == sorted(map(str, before.values()))
    stage.kubectl("scale", "statefulset", "ring", "--replicas=1")
    stage.until("two places went back", lambda: sum(sum(share.slots.values()) for job in stage.fluxion_jobs() for share in job.shares) == 1)


JOBSETS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}},
    "spec": {
        "group": "jobset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset", "listKind": "JobSetList"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_a_jobset_that_resumes_its_jobs_is_matched_as_one(stage: Stage) -> None:
    """Its controller is played by this test: two Jobs with its labels and owner, resumed as soon as they are there."""
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(JOBSETS))
    stage.kubectl("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=30s")
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    uid = json.loads(stage.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(made)).stdout)["metadata"]["uid"]
    stage.apply(make_job("blocker").cpu("8").indexed(6).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    for name, pods in (("train-driver-0", 1), ("train-workers-0", 2)):
        job = make_job(name).cpu("8").indexed(pods).pod_annotation(RUN_SECONDS, "2").owned_by("JobSet", "train")
        job = job.label(names.JOBSET_TOTAL_KEY, "2").pod_label(names.JOBSET_NAME_LABEL, "train")
        owners = [{**job.build()["metadata"]["ownerReferences"][0], "apiVersion": "jobset.x-k8s.io/v1alpha2", "uid": uid}]
        stage.kubectl(
            "create", "-f", "-", stdin=json.dumps(job.namespace(stage.namespace).with_("metadata.ownerReferences", owners).build())
        )
        stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}')

    def waits() -> FluxJob | None:
        found = fluxjob_of(stage, "JobSet", "train")
        return found if found is not None and found.status.reason == "WaitingForNodes" else None

    waiting = stage.until("two free nodes are too few for three pods", waits, said=lambda: [one.status for one in stage.fluxjobs()])
    assert waiting is not None
    assert (waiting.spec.pods, len(stage.fluxjobs())) == (3, 2)
    stage.kubectl("delete", "job", "blocker")
    stage.until("both Jobs are done", lambda: all(stage.job(f"train-{role}-0").finished for role in ("driver", "workers")), 60)
    stage.kubectl("delete", "jobs", "--all")
    stage.kubectl("delete", "crd", "jobsets.jobset.x-k8s.io")
    stage.until_nothing_left()


def cronjob(name: str, policy: str, at: datetime) -> Json:
    job = make_job(name).cpu("8").pod_annotation(RUN_SECONDS, "1").build()
    spec = {"schedule": at_minute(at), "timeZone": "Etc/UTC", "concurrencyPolicy": policy, "jobTemplate": {"spec": job["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def at_minute(at: datetime) -> str:
    """Once a day, at this minute."""
    return f"{at.minute} {at.hour} * * *"


def test_cronjobs_whose_job_is_queued_forbid_another_or_replace_it(stage: Stage) -> None:
    """Both are told that they missed a time, so that they make a Job at once; then another time that is over, while the first one waits."""
    stage.apply(make_job("blocker").cpu("8").indexed(8).pod_annotation(RUN_SECONDS, "forever").build())
    stage.until_state("blocker", State.RUNNING)
    now = datetime.now(UTC)
    crons = ("forbids", "replaces")
    stage.apply(*(cronjob(name, policy, now - timedelta(minutes=9)) for name, policy in zip(crons, ("Forbid", "Replace"), strict=True)))
    for name in crons:
        missed = json.dumps({"status": {"lastScheduleTime": (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}})
        stage.kubectl("patch", "cronjob", name, "--subresource=status", "--type=merge", "-p", missed)

    def queued(name: str) -> str:
        """The uid of the Job of a CronJob whose FluxJob says that it waits."""
        found = [one for one in stage.fluxjobs() if one.spec.object_ref.name.startswith(name) and one.status.reason == "WaitingForNodes"]
        return found[0].spec.object_ref.uid if len(found) == 1 else ""

    first = {name: stage.until(f"a Job of {name} waits", partial(queued, name)) for name in crons}
    for name in crons:
        stage.kubectl("patch", "cronjob", name, "-p", json.dumps({"spec": {"schedule": at_minute(now - timedelta(minutes=4))}}))
        stage.kubectl("annotate", "cronjob", name, "told=again")  # a new schedule alone is only looked at when it is next due
    second = stage.until("another Job waits in place of the first", lambda: (found := queued("replaces")) != first["replaces"] and found)
    assert second
    assert queued("forbids") == first["forbids"]
    stage.kubectl("delete", "job", "blocker")

    def done() -> bool:
        jobs = {job.metadata.uid: job.finished for job in stage.items("jobs", Job)}
        return jobs.get(first["forbids"], False) and jobs.get(second, False) and first["replaces"] not in jobs

    stage.until("the two that were left are done", done, 60)  # where another was forbidden, it may be made now
    stage.until_consistent()
