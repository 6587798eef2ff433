"""For each kind of object: pods run on the nodes of the allocation, none before all of it is allocated, and nothing is left at the end."""

import json
from pathlib import Path

import pytest
from builders import JobBuilder, Json, make_job, make_pod, make_queue
from end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State

MANIFESTS = Path(__file__).parent / "manifests"
RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, seconds: str = "2") -> JobBuilder:
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
        pytest.param(job("pieces").indexed(3).annotation(names.REPLACE_ANNOTATION, "pod").build(), id="Indexed Job released pod by pod"),
        pytest.param(make_pod("bare").cpu("2").annotation(RUN_SECONDS, "2").with_("spec.restartPolicy", "Never").build(), id="Pod"),
        pytest.param(owner("Deployment", "deployed", 3), id="Deployment"),
        pytest.param(owner("ReplicaSet", "replicated", 3), id="ReplicaSet"),
        pytest.param(owner("StatefulSet", "stateful", 2), id="StatefulSet"),
    ],
)
def test_pods_run_where_fluxion_put_them(thing: Json, stage: Stage) -> None:
    stage.apply(thing)
    assert wrong(stage.until_settled()) == []


def test_pods_that_keep_apart_from_their_own_job_have_a_node_each(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"job-name": "apart"}}, "topologyKey": names.HOSTNAME_LABEL}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.apply(job("apart").indexed(4).with_("spec.template.spec.affinity", rule).build())
    row = stage.until_state("apart", State.COMPLETED)
    assert len(set(row.hosts)) == 4
    assert wrong([row]) == []


def test_what_limit_ranges_will_add_to_pods_is_reserved_for_them(stage: Stage) -> None:
    """Two pods that say nothing of cpu are given more than half a node each: they cannot share one."""
    defaults = {"type": "Container", "defaultRequest": {"cpu": "5"}, "default": {"cpu": "6"}}
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": [defaults]}}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(limit_range))
    stage.apply(make_job("unsized").indexed(2).suspended().pod_annotation(RUN_SECONDS, "2").build())
    stage.until("it asks for 5 cpu", lambda: (found := stage.row("unsized").fluxjob) is not None and '"count":5000' in found.spec.jobspec)
    stage.kubectl("patch", "job", "unsized", "-p", '{"spec":{"suspend":false}}')
    row = stage.until_state("unsized", State.COMPLETED)
    assert len(set(row.hosts)) == 2
    assert wrong([row]) == []


def test_fluxion_holds_the_nodes_that_the_fluxjob_names_while_it_runs(stage: Stage) -> None:
    stage.apply(job("held", "forever").indexed(4).build())
    row = stage.until_state("held", State.RUNNING)
    assert row.fluxjob is not None
    (live,) = stage.fluxion_jobs()
    assert live.jobid == row.fluxjob.status.jobid
    assert sum(sum(share.slots.values()) for share in live.shares) == 4
    assert {share.node for share in live.shares} == set(row.hosts)


@pytest.mark.parametrize("shape", ["pinned", "gated"])
def test_no_pod_of_a_group_is_bound_while_one_of_it_has_no_node(shape: str, stage: Stage) -> None:
    """Seven of eight nodes are free, the group wants eight."""
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
    stage.apply(job("occupies", "3").cpu("8").label(names.QUEUE_LABEL, queue).build())
    stage.until_state("occupies", State.RUNNING)
    stage.apply(job("wide").cpu("8").indexed(8).label(names.QUEUE_LABEL, queue).build())
    stage.until_reason("wide", "WaitingForNodes")
    stage.apply(job("narrow").label(names.QUEUE_LABEL, queue).build())
    stage.until_reason("narrow", "WaitingForNodes")
    stage.until_settled(90)
    wide, narrow = stage.row("wide").fluxjob, stage.row("narrow").fluxjob
    assert wide is not None
    assert narrow is not None
    assert (wide.status.allocated_at or "") <= (narrow.status.allocated_at or "")
    assert wrong(stage.rows()) == []
    stage.kubectl("delete", "fluxqueue", queue)


@pytest.mark.parametrize("manifest", sorted(path.name for path in MANIFESTS.glob("*.yaml")))
def test_upstreams_scenarios_apply_run_delete(manifest: str, stage: Stage) -> None:
    """A named pod, an Indexed Job of one, a Deployment, a ReplicaSet, a StatefulSet of one."""
    (applied,) = stage.apply(MANIFESTS / manifest)
    stage.until_state(applied.name, State.RUNNING)
    rows = [row for row in stage.rows() if row.example == applied]
    assert len(rows) == applied.replicas
    assert all(row.ran_on == row.hosts != [] for row in rows)
    stage.clear()


def test_an_object_in_a_namespace_that_is_not_managed_is_left_alone(stage: Stage) -> None:
    stage.kubectl("label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}-")
    stage.apply(job("free").build())
    stage.until("the Job completes by itself", lambda: stage.job("free").finished)
    assert stage.fluxjobs() == []


def test_a_pod_template_may_opt_out(stage: Stage) -> None:
    stage.apply(job("out").pod_label(names.MANAGED_LABEL, "false").build())
    stage.until("the Job completes by itself", lambda: stage.job("out").finished)
    assert stage.fluxjobs() == []
