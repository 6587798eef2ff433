"""An upgrade that replaces every pod, while work runs and more is admitted."""

from __future__ import annotations

from support.admission_load import AdmissionLoad
from support.builders import Json
from support.real_nodes import FIGURES, NodeStage, RealCluster

from fluxqueue.api.fluxjobs import State


def standing(real: RealCluster) -> list[Json]:
    """Return the pods of the queue and of the webhook that are not being deleted;
    an old webhook answers for a while after its deletion.
    """
    return [
        pod for pod in real.pods("queue") + real.pods("webhook") if "deletionTimestamp" not in pod["metadata"]
    ]


def test_an_upgrade_loses_no_admission_and_no_work(stage: NodeStage) -> None:
    real = stage.real
    stage.apply(
        stage.make_job("gang", "while :; do sleep 1; done", pods=4),
        stage.make_deployment("service", 2, "sleep 600"),
    )
    stage.until_state("gang", State.RUNNING, 60)
    stage.until_state("service", State.RUNNING, 60)
    before = {
        pod.metadata.uid: pod.spec.node_name for name in ("gang", "service") for pod in stage.row(name).pods
    }
    replaced = {pod["metadata"]["uid"] for pod in standing(real)}
    with AdmissionLoad(real.nodes.client, stage.namespace, per_second=10) as load:
        seconds = real.upgrade(
            webhook={"podAnnotations": {"turn": "two"}}, queue={"podAnnotations": {"turn": "two"}}
        )
        stage.apply(stage.make_job("after", "echo done", pods=2))
        stage.until_state("after", State.COMPLETED, 120)
    FIGURES.append(f"upgrade: {seconds:.1f} s; {load.summary()}")
    assert load.wrong == []
    assert not replaced & {pod["metadata"]["uid"] for pod in standing(real)}
    assert {
        pod.metadata.uid: pod.spec.node_name for name in ("gang", "service") for pod in stage.row(name).pods
    } == before
    assert stage.row("gang").requeues == 0
    stage.until_consistent(120)


def test_replicas_are_on_different_nodes_after_the_upgrade(stage: NodeStage) -> None:
    for component in ("queue", "webhook"):
        pods = [
            pod
            for pod in standing(stage.real)
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]
