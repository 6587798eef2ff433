"""For each kind of object: pods run on the nodes of the allocation, none before the whole allocation exists,
and nothing is left over.
"""

import json
from pathlib import Path

import pytest
from support.builders import JobBuilder, Json, make_job, make_pod, make_queue
from support.end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State

MANIFESTS = Path(__file__).parent / "manifests"
RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


def owner(kind: str, name: str, replicas: int) -> Json:
    pod = make_pod(name).cpu("2").build()
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec | ({"serviceName": name} if kind == "StatefulSet" else {}),
    }


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(job("one").build(), id="Job of one pod"),
        pytest.param(job("indexed").indexed(4).build(), id="Indexed Job of four"),
        pytest.param(job("packed").indexed(12).build(), id="Indexed Job with several pods on a node"),
        pytest.param(job("together").pods(3, 3).build(), id="Job of three pods at once"),
        pytest.param(job("in-turn").pods(1, 3).build(), id="Job of one pod at a time"),
        pytest.param(job("more").pods(2, 5).build(), id="Job of more completions than pods at once"),
        pytest.param(
            job("pieces").indexed(3).annotation(names.REPLACE_ANNOTATION, "pod").build(),
            id="Indexed Job released pod by pod",
        ),
        pytest.param(
            make_pod("bare")
            .cpu("2")
            .annotation(RUN_SECONDS, "0.5")
            .with_("spec.restartPolicy", "Never")
            .build(),
            id="Pod",
        ),
        pytest.param(owner("Deployment", "deployed", 3), id="Deployment"),
        pytest.param(owner("ReplicaSet", "replicated", 3), id="ReplicaSet"),
        pytest.param(owner("StatefulSet", "stateful", 2), id="StatefulSet"),
    ],
)
def test_pods_run_on_the_nodes_of_their_allocation(thing: Json, stage: Stage) -> None:
    stage.apply(thing)
    assert wrong(stage.until_settled()) == []


def test_pods_with_anti_affinity_to_their_own_job_run_on_different_nodes(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"job-name": "apart"}}, "topologyKey": names.HOSTNAME_LABEL}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.apply(job("apart").indexed(4).with_("spec.template.spec.affinity", rule).build())
    row = stage.until_state("apart", State.COMPLETED)
    assert len(set(row.hosts)) == 4
    assert wrong([row]) == []


def test_requests_that_limit_ranges_add_to_pods_are_allocated(stage: Stage) -> None:
    """Two pods without a cpu request get more than half a node each, so they cannot share one."""
    defaults = {"type": "Container", "defaultRequest": {"cpu": "5"}, "default": {"cpu": "6"}}
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "sizes"},
        "spec": {"limits": [defaults]},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(limit_range))
    stage.apply(make_job("unsized").indexed(2).suspended().pod_annotation(RUN_SECONDS, "0.5").build())
    stage.until(
        "it asks for 5 cpu",
        lambda: (shown := stage.row("unsized").fluxjob) is not None and '"count":5000' in shown.spec.jobspec,
    )
    stage.kubectl("patch", "job", "unsized", "-p", '{"spec":{"suspend":false}}')
    row = stage.until_state("unsized", State.COMPLETED)
    assert len(set(row.hosts)) == 2
    assert wrong([row]) == []


def test_fluxion_holds_the_nodes_in_the_status_of_the_fluxjob_while_it_runs(stage: Stage) -> None:
    stage.apply(job("held", "forever").indexed(4).build())
    row = stage.until_state("held", State.RUNNING)
    assert row.fluxjob is not None
    (live,) = stage.fluxion_jobs()
    assert live.jobid == row.fluxjob.status.jobid
    assert sum(sum(share.slots.values()) for share in live.shares) == 4
    assert {share.node for share in live.shares} == set(row.hosts)


@pytest.mark.parametrize("shape", ["pinned", "gated"])
def test_no_pod_of_a_group_is_bound_while_one_of_them_has_no_node(shape: str, stage: Stage) -> None:
    """Seven of eight nodes are free, and the group needs eight."""
    stage.apply(job("first", "forever").cpu("8").build())
    stage.until_state("first", State.RUNNING)
    group = job("group").cpu("8")
    stage.apply(group.indexed(8).build() if shape == "pinned" else group.pods(8, 8).build())
    fluxjob = stage.until_reason("group", "WaitingForNodes")
    assert fluxjob.status.message
    assert stage.row("group").ran_on == []
    stage.kubectl("delete", "job", "first")
    stage.until_state("group", State.COMPLETED, 60)
    assert wrong([stage.row("group")]) == []


def test_a_fcfs_queue_is_strictly_first_come_first_served(stage: Stage) -> None:
    queue = f"strict-{stage.namespace}"
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(queue, policy="fcfs")))
    stage.apply(job("occupies", "forever").cpu("8").label(names.QUEUE_LABEL, queue).build())
    stage.until_state("occupies", State.RUNNING)
    stage.apply(job("wide").cpu("8").indexed(8).label(names.QUEUE_LABEL, queue).build())
    stage.until_reason("wide", "WaitingForNodes")
    stage.apply(job("narrow").label(names.QUEUE_LABEL, queue).build())
    stage.until_reason("narrow", "WaitingForNodes")
    stage.succeed("occupies")
    stage.until_settled(90)
    wide, narrow = stage.row("wide").fluxjob, stage.row("narrow").fluxjob
    assert wide is not None
    assert narrow is not None
    assert (wide.status.allocated_at or "") <= (narrow.status.allocated_at or "")
    assert wrong(stage.rows()) == []
    stage.kubectl("delete", "fluxqueue", queue)


@pytest.mark.parametrize("manifest", sorted(path.name for path in MANIFESTS.glob("*.yaml")))
def test_upstreams_scenarios_apply_run_delete(manifest: str, stage: Stage) -> None:
    """A named pod, an Indexed Job of one pod, a Deployment, a ReplicaSet and a StatefulSet of one pod."""
    (applied,) = stage.apply(MANIFESTS / manifest)
    stage.until_state(applied.name, State.RUNNING)
    rows = [row for row in stage.rows() if row.example == applied]
    assert len(rows) == applied.replicas
    assert all(row.ran_on == row.hosts != [] for row in rows)
    stage.clear()


def test_an_object_in_an_unmanaged_namespace_is_not_changed(stage: Stage) -> None:
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.apply(job("free").build())
    stage.until("the Job completes by itself", lambda: stage.job("free").finished)
    assert stage.fluxjobs() == []


def test_a_pod_template_may_opt_out(stage: Stage) -> None:
    stage.apply(job("out").pod_label(names.MANAGED_LABEL, "false").build())
    stage.until("the Job completes by itself", lambda: stage.job("out").finished)
    assert stage.fluxjobs() == []
