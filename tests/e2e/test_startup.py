"""Released work whose pods do not start: which work is evicted, which continues, and what is reported.

The tests use a local cluster of their own, where a start may take 3 s: six nodes of 8 cpu.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.builders import JobBuilder, Json, make_job, make_pod
from support.collectors import Collector, collector
from support.end_to_end import Stage, managed_namespace, scheduler_paused

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
START_TIMEOUT_S = 3
GRACE_S = 20


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as collecting:
        yield collecting


@pytest.fixture(scope="module")
def cluster(service_folder: Path, traces: Collector) -> Iterator[InProcessCluster]:
    config = {"startTimeoutSeconds": START_TIMEOUT_S, "successorGraceSeconds": GRACE_S, "pinWindowSeconds": 1}
    values = {"queue": {"config": config, "traces": {"endpoint": traces.endpoint}}}
    cluster = InProcessCluster(
        service_folder / "startup", ClusterOptions(nodes=6, durable=False, values=values)
    )
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage


def test_the_way_of_a_job_is_a_trace_with_the_bits_of_its_uid(stage: Stage, traces: Collector) -> None:
    stage.apply(job("traced", nodes=2).build())
    stage.until_settled(60)
    uid = stage.job("traced").metadata.uid
    root, *states = stage.until("the trace has arrived", lambda: traces.trace(uid), 60)
    assert [span.name for span in (root, *states)] == ["Job", "Pending", "Allocated", "Running"]
    assert {attribute.key: attribute.value.string_value for attribute in root.attributes}[
        "fluxqueue.outcome"
    ] == "Succeeded"
    assert [event.name for event in states[1].events] == ["released"]
    assert [span.end_time_unix_nano for span in states[:-1]] == [
        span.start_time_unix_nano for span in states[1:]
    ]
    assert (
        root.start_time_unix_nano
        <= states[0].start_time_unix_nano
        < states[-1].end_time_unix_nano
        <= root.end_time_unix_nano
    )


def job(name: str, nodes: int = 1, seconds: str = "0.5") -> JobBuilder:
    """A Job of whole nodes, one pod on each."""
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)


def deployment(name: str, replicas: int, **container: object) -> Json:
    """A Deployment of small pods that do not end."""
    resources = {"requests": {"cpu": "1"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {RUN_SECONDS: "forever"}},
                "spec": {
                    "containers": [{"name": "web", "image": "web", "resources": resources, **container}]
                },
            },
        },
    }


def bound(stage: Stage) -> dict[str, str]:
    """Return the node by name of each active pod that is bound."""
    return {
        pod.metadata.name: pod.spec.node_name
        for pod in stage.items("pods", Pod)
        if pod.active and pod.spec.node_name
    }


def released(stage: Stage, count: int) -> list[str]:
    """Return the pods (uids) without our gate, once there are this many."""
    uids = [pod.metadata.uid for pod in stage.items("pods", Pod) if not pod.held]
    return uids if len(uids) == count else []


def pods_of(stage: Stage, job: str) -> dict[str, Pod]:
    """Return the active pods of a Job, by uid."""
    name = "batch.kubernetes.io/job-name"
    return {
        pod.metadata.uid: pod
        for pod in stage.items("pods", Pod)
        if pod.metadata.label(name) == job and pod.active
    }


@contextmanager
def quota_of_pods(stage: Stage, pods: int) -> Iterator[None]:
    quota: Json = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(pods)}},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(quota))
    stage.until(
        "the quota counts",
        lambda: (
            "pods" in stage.kubectl("get", "resourcequota", "few", "-o", "jsonpath={.status.used}").stdout
        ),
    )
    try:
        yield
    finally:
        stage.kubectl("delete", "resourcequota", "few", "--ignore-not-found")


_INDEX = "batch.kubernetes.io/job-completion-index"
_LOW_INDEX = (
    f"!('{_INDEX}' in object.metadata.?annotations.orValue({{}})) || "
    f"int(object.metadata.annotations['{_INDEX}']) < 2"
)
_NO_HIGH_INDEX: Json = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-high-index"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "validations": [{"expression": _LOW_INDEX, "message": "no index above 1"}],
    },
}


@contextmanager
def only_two_indexes(stage: Stage) -> Iterator[None]:
    """Have the API server refuse all pods of Indexed Jobs in this namespace except those of index 0 and 1,
    until the end.
    """
    bound_here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}
    binding: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-high-index"},
        "spec": {"policyName": "no-high-index", "validationActions": ["Deny"], "matchResources": bound_here},
    }
    probe = make_pod("probe").with_("metadata.namespace", stage.namespace)
    probe = probe.annotation(_INDEX, "2")
    stage.kubectl(
        "apply",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [_NO_HIGH_INDEX, binding]}),
    )
    try:
        stage.until(
            "the policy counts",
            lambda: (
                "no index"
                in stage.kubectl(
                    "create", "--dry-run=server", "-f", "-", stdin=json.dumps(probe.build()), check=False
                ).stderr
            ),
        )
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            stage.kubectl("delete", kind, "no-high-index", "--ignore-not-found")


@contextmanager
def closed(stage: Stage, node: str, spec: Json) -> Iterator[None]:
    """Cordon or taint a node, so that it accepts no new pods until the end."""
    path = f"/api/v1/nodes/{node}"  # through the API: kubectl takes a while to start
    stage.cluster.control_plane.client.request("PATCH", path, {"spec": spec})
    try:
        yield
    finally:
        stage.cluster.control_plane.client.request("PATCH", path, {"spec": dict.fromkeys(spec)})


def test_fm28_work_beyond_a_quota_takes_no_nodes_until_the_quota_is_removed(stage: Stage) -> None:
    with quota_of_pods(stage, 0):
        stage.apply(job("pair", 2, "forever").build())
        fluxjob = stage.until_reason("pair", "QueueLimit")
        assert "the ResourceQuota 'few'" in fluxjob.status.message
        assert "asks for 2 pods: ask for less, or have the quota raised" in fluxjob.status.message
        assert not stage.fluxion_jobs()
    row = stage.until_state("pair", State.RUNNING)
    assert row.ran_on == row.hosts
    assert row.requeues == 0
    stage.until_consistent()


def test_of_jobs_that_share_a_quota_as_many_start_as_fit_and_no_start_is_refused(stage: Stage) -> None:
    with quota_of_pods(stage, 2), managed_namespace(stage.cluster) as other:
        stage.apply_all(*(job(f"j{number}", 1, "1").build() for number in range(6)))
        other.apply(job("neighbour", 4).build())
        neighbour = other.until_state("neighbour", State.COMPLETED)
        assert neighbour.requeues == 0
        rows = stage.until_settled()
        assert [(row.state, row.requeues) for row in rows] == [(State.COMPLETED, 0)] * 6
        assert (
            "exceeded quota"
            not in stage.kubectl("get", "events", "-o", "jsonpath={.items[*].message}").stdout
        )


def test_nodes_of_pods_that_the_api_server_refuses_are_given_back_and_the_others_run(stage: Stage) -> None:
    with only_two_indexes(stage):
        stage.apply(job("four", 4, "forever").build())
        fluxjob = stage.until_reason("four", "ReleaseFailed")
        assert "no index above 1" in fluxjob.status.message
        stage.until(
            "its other nodes are given back",
            lambda: "hold no nodes any more" in stage.fluxjobs()[0].status.message,
        )
        runs = pods_of(stage, "four").keys()
        assert len(runs) == 2
        stage.apply(
            job("other")
            .with_("spec.completionMode", "NonIndexed")
            .with_("spec.parallelism", 4)
            .with_("spec.completions", 4)
            .build()
        )
        stage.until_state("other", State.COMPLETED)
        assert pods_of(stage, "four").keys() == runs
    stage.until("all four run", lambda: len(bound(stage)) == 4, 120)
    assert len(set(bound(stage).values())) == 4
    assert runs < pods_of(stage, "four").keys()
    stage.until("nothing is the matter", lambda: not any(each.status.reason for each in stage.fluxjobs()))
    stage.until_consistent()


def test_a_job_whose_service_account_is_missing_starts_when_it_is_created(stage: Stage) -> None:
    stage.apply(job("robot", 2, "forever").with_("spec.template.spec.serviceAccountName", "robot").build())
    fluxjob = stage.until_reason("robot", "ReleaseFailed")
    assert 'serviceaccount "robot" not found' in fluxjob.status.message
    stage.kubectl("create", "serviceaccount", "robot")
    stage.until_state("robot", State.RUNNING)


def test_a_running_job_is_not_suspended_for_a_pod_that_does_not_start(stage: Stage) -> None:
    stage.apply(job("mpi", 2, "forever").annotation(names.REPLACE_ANNOTATION, "pod").build())
    before = stage.until_state("mpi", State.RUNNING).requeues
    (stays, fails) = pods_of(stage, "mpi").values()
    with scheduler_paused(stage):
        stage.kubectl(
            "patch",
            "pod",
            fails.metadata.name,
            "--subresource=status",
            "--type=merge",
            "-p",
            '{"status":{"phase":"Failed"}}',
        )
        retry = stage.until(
            "it is retried", lambda: [uid for uid in pods_of(stage, "mpi") if uid != stays.metadata.uid], 30
        )
        stage.until("the retry is replaced", lambda: not pods_of(stage, "mpi").keys() & {*retry}, 30)
        assert stays.metadata.uid in pods_of(stage, "mpi")
    assert (stage.row("mpi").requeues, stage.job("mpi").spec.suspend) == (before, False)
    assert stays.metadata.uid in pods_of(stage, "mpi")


def test_a_gang_of_which_no_pod_is_bound_is_matched_again_with_its_next_pods(stage: Stage) -> None:
    web = deployment("web", 2)
    web["spec"]["template"]["metadata"]["annotations"][names.GANG_ANNOTATION] = "true"
    with scheduler_paused(stage):
        stage.apply(web)
        first = stage.until("both were released", lambda: released(stage, 2))
        stage.until(
            "both were replaced",
            lambda: not {pod.metadata.uid for pod in stage.items("pods", Pod)} & {*first},
            60,
        )
    stage.until("both run", lambda: len(bound(stage)) == 2, 90)
    told = "it is tried again (start 2 of 3)"
    stage.until(
        "it says why",
        lambda: any(
            told in last.message for each in stage.fluxjobs() for last in each.status.requeue_reasons or ()
        ),
        60,
    )
    stage.until_consistent()


def test_a_pod_that_does_not_start_is_kept_if_its_deletion_would_fail_its_job(stage: Stage) -> None:
    stage.apply(
        job("grows", 2, "forever")
        .with_("spec.backoffLimit", 0)
        .annotation(names.REPLACE_ANNOTATION, "pod")
        .build()
    )
    stage.until_state("grows", State.RUNNING)
    with scheduler_paused(stage):
        stage.kubectl("patch", "job", "grows", "-p", '{"spec":{"parallelism":3,"completions":3}}')

        def explained() -> FluxJob | None:
            found = [each for each in stage.fluxjobs() if each.spec.object_ref.kind == "Pod"]
            return next((each for each in found if each.status.reason == "StartTimeout"), None)

        fluxjob = stage.until("the new pod says why it does not start", explained, 30)
        assert fluxjob is not None
        assert "to delete it would fail its Job (backoffLimit)" in fluxjob.status.message
        before = pods_of(stage, "grows").keys()
        assert len(before) == 3
    stage.until(
        "all three run", lambda: sum(1 for pod in pods_of(stage, "grows").values() if pod.spec.node_name) == 3
    )
    assert pods_of(stage, "grows").keys() == before
    stage.until("nothing is the matter", lambda: not any(each.status.reason for each in stage.fluxjobs()))


def test_work_evicted_by_a_no_execute_taint_runs_elsewhere_at_once(stage: Stage) -> None:
    stage.apply(deployment("web", 1))
    stage.until("it runs", lambda: len(bound(stage)) == 1)
    (node,) = bound(stage).values()
    with closed(stage, node, {"taints": [{"key": "broken", "effect": "NoExecute"}]}):
        stage.until("it runs elsewhere", lambda: {*bound(stage).values()} - {node})
        stage.until_consistent()


def test_a_no_execute_taint_costs_a_running_job_only_the_pod_on_that_node(stage: Stage) -> None:
    stage.apply(job("mpi", 2, "forever").build())
    row = stage.until_state("mpi", State.RUNNING)
    stays = next(pod for pod in row.pods if pod.spec.node_name == row.hosts[1])
    with closed(stage, row.hosts[0], {"taints": [{"key": "broken", "effect": "NoExecute"}]}):
        stage.until("index 0 runs elsewhere", lambda: len({*bound(stage).values()} - {row.hosts[0]}) == 2, 60)
        assert stays.metadata.uid in pods_of(stage, "mpi")
        assert (stage.row("mpi").requeues, stage.job("mpi").spec.suspend) == (row.requeues, False)
        stage.until_consistent()


def test_replicas_that_cannot_share_a_node_all_run_in_the_end(stage: Stage) -> None:
    """The first replica on a node takes a host port.
    The replacement of the second one records the refusal for its owner.
    """
    stage.apply(deployment("web", 3, ports=[{"containerPort": 80, "hostPort": 8080}]))
    stage.until("three replicas run", lambda: len(bound(stage)) == 3, 60)
    assert len(set(bound(stage).values())) == 3
    stage.until_consistent()


def test_the_slots_of_a_deployment_are_free_once_its_namespace_and_pods_are_deleted(stage: Stage) -> None:
    client = stage.cluster.control_plane.client
    with managed_namespace(stage.cluster) as other:
        other.apply(deployment("web", 2))
        other.until("both run", lambda: len(bound(other)) == 2)
        client.request("DELETE", f"/api/v1/namespaces/{other.namespace}")
        other.until("its pods are gone", lambda: not other.items("pods", Pod), 60)
        other.until(
            "no slot is kept for a replacement that cannot come",
            lambda: not other.fluxion_jobs(),
            GRACE_S - 5,
        )
        other.examples.clear()
