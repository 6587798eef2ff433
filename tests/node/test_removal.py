"""fluxqueue is removed while work runs and waits, and installed again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.builders import Json
from support.chart_rendering import NAMESPACE
from support.real_nodes import FIGURES, NodeStage

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.binaries import Tool

PROGRAM = Path(sys.executable).with_name("fluxqueue")


def uninstall(stage: NodeStage, held: str) -> str:
    """Run ``fluxqueue uninstall`` and return what it said."""
    real = stage.real
    command = [str(PROGRAM), "uninstall", held, "--yes", "--kubeconfig", str(real.kubeconfig)]
    environment = real.nodes.environment()
    environment["PATH"] = f"{Path(real.nodes.binaries[Tool.HELM]).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    real.until("the programs are gone", lambda: not real.pods("queue") + real.pods("webhook"), 120)
    FIGURES.append(f"left by uninstall {held}: {left(stage)}")
    return done.stdout


def left(stage: NodeStage) -> str:
    """Return the objects that are left of an installation."""
    real = stage.real
    inside = real.kubectl(
        "-n", NAMESPACE, "get", "pvc,secret,lease,configmap", "-o", "name", "--ignore-not-found", check=False
    ).stdout.split()
    kinds = "crd,clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration"
    everywhere = real.kubectl(
        "get", f"{kinds},validatingadmissionpolicy,priorityclass", "-o", "name"
    ).stdout.split()
    return (
        " ".join(
            [
                *(name for name in inside if "kube-root-ca" not in name),
                *(name for name in everywhere if "flux" in name),
            ]
        )
        or "nothing"
    )


def wide(stage: NodeStage, name: str) -> Json:
    """Return a Job that needs two nodes almost alone, so that it waits for the programs of fluxqueue."""
    job = stage.make_job(name, "echo started", pods=2)
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1900m"
    return job


def running(stage: NodeStage) -> set[str]:
    pods = stage.real.get("pods", "-n", stage.namespace, "--field-selector", "status.phase=Running")["items"]
    return {pod["metadata"]["uid"] for pod in pods}


def suspended(stage: NodeStage, name: str) -> bool:
    return bool(stage.real.get("job", name, "-n", stage.namespace)["spec"]["suspend"])


def started(stage: NodeStage) -> tuple[set[str], int]:
    """Start a gang, and a Job that has to wait; return the gang's pods and its job id."""
    stage.apply(stage.make_job("gang", "while :; do sleep 1; done", pods=2), wide(stage, "waits"))
    row = stage.until_state("gang", State.RUNNING, 90)
    stage.until(
        "the other Job waits with a reason",
        lambda: (one := stage.row("waits").fluxjob) and one.status.reason,
        60,
    )
    return {pod.metadata.uid for pod in row.pods}, row.jobid


def test_running_work_outlives_the_release_and_is_known_to_the_next_one(stage: NodeStage) -> None:
    before, jobid = started(stage)
    said = uninstall(stage, "--keep-held")
    assert "waits" in said
    assert running(stage) == before
    assert suspended(stage, "waits")
    stage.real.install()
    row = stage.until_state("gang", State.RUNNING, 90)
    assert ({pod.metadata.uid for pod in row.pods}, row.requeues) == (before, 0)
    stage.until("the other Job waits again", lambda: stage.row("waits").state == State.PENDING, 60)
    stage.until_consistent(120)
    FIGURES.append(f"job id of the running gang before and after reinstallation: {jobid} {row.jobid}")


def test_released_work_is_run_by_plain_kubernetes(stage: NodeStage) -> None:
    before, _ = started(stage)
    uninstall(stage, "--release-held")
    assert not suspended(stage, "waits")
    assert before <= running(stage)
    stage.real.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    stage.kubectl("delete", "job", "gang", "--wait=true", "--timeout=60s")
    stage.kubectl("wait", "job/waits", "--for=condition=Complete", "--timeout=90s")
    stage.real.install()
    stage.until_consistent(120)
