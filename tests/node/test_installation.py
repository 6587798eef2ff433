"""What `helm install` leaves on real nodes."""

from __future__ import annotations

from support.chart_rendering import NAMESPACE
from support.end_to_end import wrong
from support.real_nodes import NodeStage, RealCluster


def test_every_program_is_ready_and_none_was_started_twice(release: RealCluster) -> None:
    pods = release.pods()
    components = sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods)
    assert components == ["postgres", "queue", "queue", "webhook", "webhook"]
    statuses = [status for pod in pods for status in pod["status"]["containerStatuses"]]
    assert {(status["name"], status["ready"], status["restartCount"]) for status in statuses} == {
        (name, True, 0) for name in ("fluxion", "postgres", "queue", "webhook")
    }


def test_replicas_are_on_different_nodes(release: RealCluster) -> None:
    for component in ("queue", "webhook"):
        assert sorted(pod["spec"]["nodeName"] for pod in release.pods(component)) == ["n1", "n2"]


def test_no_pod_violates_the_restricted_pod_security_standard(release: RealCluster) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    said = release.kubectl("label", "--dry-run=server", "--overwrite", "namespace", NAMESPACE, label)
    assert said.stderr == ""


def test_the_doctor_agrees(release: RealCluster) -> None:
    release.until_agreed()


def test_memory_of_idle_and_busy_containers_is_within_their_limits(stage: NodeStage) -> None:
    stage.real.note_memory("idle")
    stage.apply_all(*(stage.make_job(f"job-{number}", "sleep 1") for number in range(60)))
    assert wrong(stage.until_settled(300)) == []
    stage.real.note_memory("after 60 Jobs")
    ends = [
        status["lastState"].get("terminated", {})
        for pod in stage.real.pods()
        for status in pod["status"]["containerStatuses"]
    ]
    assert [end for end in ends if end.get("reason") == "OOMKilled"] == []
