"""Nodes that are drained, and kubelets that are restarted, with work running on them."""

from __future__ import annotations

from collections import Counter

from support.real_nodes import NodeStage

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.nodes.programs import NodeProgram


def test_evicted_work_of_a_drained_node_runs_on_another_one(stage: NodeStage) -> None:
    drained = other(_node_of_postgres(stage))
    try:
        stage.kubectl("cordon", other(drained))
        stage.apply(
            stage.make_job("moved", "trap 'exit 143' TERM; sleep 600 & wait", backoffLimit=4),
            stage.make_deployment("service", 2, "sleep 600"),
        )
        stage.until("all work is on one node", lambda: _running_on(stage) == {drained: 3}, 60)
        stage.until_state("moved", State.RUNNING, 60)
        stage.until_state("service", State.RUNNING, 60)
    finally:
        stage.kubectl("uncordon", other(drained))
    try:
        stage.kubectl(
            "drain",
            drained,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--pod-selector=!k8s-app",
            "--timeout=120s",
        )
        stage.until("all work is on the other node", lambda: _running_on(stage) == {other(drained): 3}, 120)
        stage.until_consistent()
    finally:
        stage.kubectl("uncordon", drained)
    stage.real.until("every program is Ready again", lambda: _all_ready(stage), 180)
    stage.until_consistent()


def test_work_that_fits_nowhere_else_waits_with_the_reason(stage: NodeStage) -> None:
    both = stage.make_job("both", "sleep 600", pods=2, backoffLimit=4)
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    both["spec"]["template"]["metadata"]["labels"] = {"app": "both"}
    both["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {**spread, "labelSelector": {"matchLabels": {"app": "both"}}}
    ]
    stage.kubectl("cordon", "n2")
    try:
        stage.apply(both)
        stage.until(
            "it waits with a reason", lambda: (one := stage.row("both").fluxjob) and one.status.reason, 30
        )
        assert stage.row("both").state == State.PENDING
    finally:
        stage.kubectl("uncordon", "n2")
    stage.until_state("both", State.RUNNING, 60)
    assert sorted(stage.row("both").ran_on) == ["n1", "n2"]
    stage.until_consistent()


def test_work_goes_on_while_its_kubelet_is_restarted(stage: NodeStage) -> None:
    stage.apply(stage.make_job("gang", "while :; do sleep 1; done", pods=4))
    stage.until("every process of the gang runs", lambda: _running_on(stage).total() == 4, 60)
    row = stage.until_state("gang", State.RUNNING, 60)
    before = {pod.metadata.uid: pod.spec.node_name for pod in row.pods}
    nodes = stage.real.nodes
    nodes.stop_program("n2", NodeProgram.KUBELET)
    stage.apply(stage.make_job("meanwhile", "echo done", pods=2))
    nodes.continue_program("n2", NodeProgram.KUBELET)
    stage.until_state("meanwhile", State.COMPLETED, 120)
    row = stage.row("gang")
    assert {pod.metadata.uid: pod.spec.node_name for pod in row.pods} == before
    assert row.requeues == 0
    restarts = stage.kubectl(
        "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    ).stdout.split()
    assert set(restarts) == {"0"}
    stage.until_consistent()


def other(node: str) -> str:
    return {"n1": "n2", "n2": "n1"}[node]


def _node_of_postgres(stage: NodeStage) -> str:
    """Return the node with the volume of the database, which is local to it:
    drained, it would have no database.
    """
    (pod,) = stage.real.pods("postgres")
    return str(pod["spec"]["nodeName"])


def _running_on(stage: NodeStage) -> Counter[str]:
    pods = stage.real.get("pods", "-n", stage.namespace, "--field-selector", "status.phase=Running")["items"]
    return Counter(pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"])


def _all_ready(stage: NodeStage) -> bool:
    statuses = [status for pod in stage.real.pods() for status in pod["status"].get("containerStatuses", [])]
    return len(stage.real.pods()) == 5 and all(status["ready"] for status in statuses)
