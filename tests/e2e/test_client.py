"""The Python client against everything: submission, waiting, verbs, all kinds,
and what it says when something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kubernetes import client as models
from support.builders import make_job
from support.end_to_end import Stage
from support.replicas import queue_environment

from fluxqueue.api.names import HISTORY_ACCOUNT
from fluxqueue.client import (
    AsyncClient,
    Client,
    FluxQueueError,
    Job,
    MiniCluster,
    NameTaken,
    NoSuchWork,
    NotManaged,
    NotPermitted,
    NotPossible,
    Pod,
    PodGroup,
    Refused,
    State,
    SubmissionFailed,
    WaitTimeout,
    WorkFailed,
    WorkGone,
    Workload,
    started,
)

RUN_SECONDS = "fluxqueue.local/run-seconds"
MINUTE = timedelta(minutes=1.5)


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    """A client of the test's namespace. What it submits is followed by the stage."""
    with Client(stage.cluster.kubeconfig, namespace=stage.namespace) as client:
        yield client


def lasting(name: str, seconds: str = "0", pods: int = 1, cpu: int = 1) -> dict[str, object]:
    """A Job whose pods run for some seconds on nodes without machines."""
    builder = make_job(name).cpu(str(cpu)).pod_annotation(RUN_SECONDS, seconds).without("metadata.namespace")
    return (builder.indexed(pods) if pods > 1 else builder).build()


def adopted(stage: Stage, *works: Workload) -> None:
    """Let the stage delete these objects at the end."""
    for work in works:
        kind = {"Job": "jobs.batch", "MiniCluster": "miniclusters", "Pod": "pods"}[work.kind]
        stage.adopt(json.loads(stage.kubectl("get", kind, work.name, "-o", "json").stdout))


def test_a_pipeline_from_python_runs_in_its_order(stage: Stage, client: Client) -> None:
    prepare = client.submit(lasting("prepare", "1"))
    solvers = client.submit_all([lasting(f"solver-{number}", pods=2) for number in range(3)], after=prepare)
    report = client.submit(
        lasting("report"), after=[*solvers, started(prepare)], duration=timedelta(minutes=5), priority=3
    )
    adopted(stage, prepare, report, *solvers)
    assert report.state() == State.PENDING
    assert "Job" in report.explain().text
    statuses = client.wait([prepare, *solvers, report], timeout=MINUTE, check=True)
    assert {status.state for status in statuses} == {State.COMPLETED}
    ends = [status.finished_at for status in statuses if status.finished_at is not None]
    assert len(ends) == len(statuses)
    assert ends[0] <= min(ends[1:])
    assert max(ends) == ends[-1]
    assert statuses[-1].priority == 3
    assert {work.name for work in client.as_ended(solvers)} == {f"solver-{number}" for number in range(3)}
    *_, last = client.progress([prepare, *solvers], timeout=MINUTE)
    assert (last.completed, last.total) == (4, 4)


def answered(client: Client) -> bool:
    """True once the API server knows what the account of the history may read."""
    try:
        client.history()
    except FluxQueueError:
        return False
    return True


def test_nodes_and_the_history_are_listed(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in queue_environment(stage.cluster).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotPermitted, match=f"create serviceaccount {HISTORY_ACCOUNT}"):
        client.history()
    reads = (f"--clusterrole={HISTORY_ACCOUNT}", f"--serviceaccount={stage.namespace}:{HISTORY_ACCOUNT}")
    stage.kubectl("create", "serviceaccount", HISTORY_ACCOUNT)
    stage.kubectl("create", "rolebinding", HISTORY_ACCOUNT, *reads)
    ended, lasts = client.submit(lasting("ended", "1")), client.submit(lasting("lasts", "forever", cpu=2))
    adopted(stage, ended, lasts)
    ended.wait(timeout=MINUTE, check=True)
    node = lasts.wait(started=True, timeout=MINUTE).nodes[0]
    used = {each.name: each for each in client.nodes(states=["mixed", "allocated"])}
    assert used[node].cores_used >= 2
    assert used[node].work[f"{stage.namespace}/job/lasts"] == 1
    stage.until("the account may read", lambda: answered(client))
    (past,) = client.history(states=["completed"])
    assert (past.title, past.outcome, len(past.nodes)) == ("job/ended", "Succeeded", 1)
    assert past.run is not None
    assert past.run > timedelta(0)
    assert {each.title for each in client.history(since=timedelta(hours=1))} == {"job/ended", "job/lasts"}
    lasts.cancel()
    lasts.wait(timeout=MINUTE)
    (cancelled,) = client.history(states=["cancelled"])
    assert (cancelled.title, cancelled.nodes, cancelled.reason) == ("job/lasts", (node,), ""), (
        "its run is in the history"
    )
    assert cancelled.run is not None
    assert cancelled.wait is not None


def test_all_kinds_are_submitted_from_all_forms_and_followed(stage: Stage, client: Client) -> None:
    group = client.submit(PodGroup(name="mesh", image="mpi", pods=2, cpu=1, annotations={RUN_SECONDS: "1"}))
    pod = client.submit(Pod(name="single", image="tool", cpu=1, annotations={RUN_SECONDS: "1"}))
    runs_for_two_seconds = {"pod": {"annotations": {RUN_SECONDS: "2"}}}
    flux = client.submit(
        MiniCluster(
            name="flux",
            image="ubuntu",
            command=["echo", "it works"],
            pods=2,
            cpu=1,
            spec=runs_for_two_seconds,
        ),
        duration="10m",
    )
    template = models.V1PodTemplateSpec(
        metadata=models.V1ObjectMeta(annotations={RUN_SECONDS: "1"}),
        spec=models.V1PodSpec(
            restart_policy="Never",
            containers=[
                models.V1Container(
                    name="main", image="tool", resources=models.V1ResourceRequirements(requests={"cpu": "1"})
                )
            ],
        ),
    )
    official = client.submit(
        models.V1Job(metadata=models.V1ObjectMeta(name="official"), spec=models.V1JobSpec(template=template))
    )
    text = client.submit(Path("examples/10-job.yaml").read_text())
    works = [group, pod, flux, official, text]
    adopted(stage, flux, official, text, pod)
    statuses = client.wait(works, timeout=MINUTE)
    assert [status.state for status in statuses] == [State.COMPLETED] * len(works)
    assert all(status.nodes for status in statuses)
    assert client.get("pod-group/mesh").status().succeeded
    for each in stage.kubectl("get", "pods", "-l", "fluxqueue/pod-group=mesh", "-o", "name").stdout.split():
        stage.kubectl("delete", each, "--wait=false")


def test_waiting_work_is_held_released_and_given_a_priority(stage: Stage, client: Client) -> None:
    filling = client.submit(lasting("filling", "forever", pods=8, cpu=8))
    filling.wait(started=True, timeout=MINUTE)
    waiting = client.submit(lasting("waiting", cpu=8))
    adopted(stage, filling, waiting)
    with pytest.raises(WaitTimeout, match=r"Job e2e-\d+/waiting is still Pending"):
        waiting.wait(timeout=0.2)
    waiting.prioritize(7)
    waiting.hold()
    stage.until("it is held", lambda: waiting.status().reason == "Held" and waiting.status().priority == 7)
    explained = waiting.explain()
    assert explained.remedy == "kubectl fluxqueue release lets it start"
    assert "Held" in str(explained)
    waiting.release()
    stage.until("it has an estimate", lambda: waiting.eta())
    assert (waiting.eta() or datetime.min.replace(tzinfo=UTC)) > datetime.now(UTC)
    with pytest.raises(NotPossible, match="runs: only what waits can be held"):
        filling.hold()
    filling.cancel()
    with pytest.raises(WorkFailed, match="filling ended as Cancelled"):
        filling.wait(timeout=MINUTE, check=True)
    assert waiting.wait(timeout=MINUTE).succeeded


def test_work_that_is_deleted_ends_the_wait(stage: Stage, client: Client) -> None:
    lasts = client.submit(lasting("lasts", "forever"))
    lasts.wait(started=True, timeout=MINUTE)
    lasts.delete()
    with pytest.raises(WorkGone, match="lasts was deleted before its end was seen"):
        lasts.wait(timeout=MINUTE)
    with pytest.raises(NoSuchWork, match="check name and namespace"):
        client.get("job/lasts")


def test_what_is_refused_names_the_object_and_the_remedy(stage: Stage, client: Client) -> None:
    first = client.submit(lasting("twice"))
    adopted(stage, first)
    with pytest.raises(NameTaken, match="choose another name"):
        client.submit(lasting("twice"))
    wrong = make_job("wrong").without("metadata.namespace").annotation("fluxqueue/duration", "soon").build()
    with pytest.raises(Refused, match="fluxqueue/duration"):
        client.submit(wrong)
    with pytest.raises(SubmissionFailed) as caught:
        client.submit_all([lasting("fine"), lasting("twice")])
    (fine,) = (work for work in caught.value.submitted if isinstance(work, Workload))
    adopted(stage, fine)
    assert isinstance(caught.value.failures[1], NameTaken)
    assert client.wait([first, fine], timeout=MINUTE)


def test_nothing_is_created_in_a_namespace_that_is_not_managed(stage: Stage) -> None:
    with Client(stage.cluster.kubeconfig, namespace="default") as client:
        with pytest.raises(NotManaged, match=r"kubectl label namespace default fluxqueue/managed=true"):
            client.submit(Job(name="loose", image="tool"))
        with pytest.raises(NoSuchWork):
            client.get("loose")


async def test_the_asynchronous_client_waits_for_many_at_once_by_one_watch(stage: Stage) -> None:
    async with AsyncClient.connect(stage.cluster.kubeconfig, namespace=stage.namespace) as client:
        works = await client.submit_all([lasting(f"many-{number}") for number in range(20)])
        ended = [work.name async for work in client.as_ended(works, timeout=MINUTE)]
        assert sorted(ended) == sorted(work.name for work in works)
        assert client.api.calls["watch", "fluxjobs"] == 1
        for work in works:
            await work.delete()


def test_a_person_with_the_edit_role_can_do_everything(stage: Stage) -> None:
    stage.kubectl(
        "create", "rolebinding", "writes", "--clusterrole=edit", f"--serviceaccount={stage.namespace}:default"
    )
    with Client(stage.cluster.control_plane.service_account_kubeconfig(stage.namespace, "default")) as client:
        assert client.namespace == stage.namespace
        mine = client.submit(lasting("mine", "forever"))
        adopted(stage, mine)
        mine.wait(started=True, timeout=MINUTE)
        assert "runs" in mine.explain().text
        mine.cancel()
        assert mine.wait(timeout=MINUTE).state == State.CANCELLED


def test_somebody_without_rights_is_told_which_are_missing(stage: Stage) -> None:
    config = stage.cluster.control_plane.service_account_kubeconfig(stage.namespace, "default")
    with (
        Client(config) as client,
        pytest.raises(NotPermitted, match=r'cannot create resource "jobs".*ask for this right'),
    ):
        client.submit(lasting("mine"))
