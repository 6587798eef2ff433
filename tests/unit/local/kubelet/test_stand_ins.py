"""What runs for the brokers of a MiniCluster where there is no Flux."""

from __future__ import annotations

import subprocess

import msgspec
import pytest

from fluxqueue.local.kubelet.specs import decode_pod
from fluxqueue.local.kubelet.stand_ins import without_flux


def broker(annotations: dict[str, str], policy: str = "Never") -> bytes:
    view = {"name": "flux-view", "image": "view", "command": ["/bin/bash"]}
    main = {
        "name": "main",
        "image": "ubuntu",
        "command": ["flux", "start"],
        "env": [{"name": "A", "value": "1"}],
        "workingDir": "/none",
        "readinessProbe": {"exec": {"command": ["flux", "uptime"]}},
        "volumeMounts": [{"name": "view", "mountPath": "/mnt/flux"}],
    }
    volumes = [{"name": "view", "hostPath": {"path": "/"}}]
    spec = {"containers": [main], "initContainers": [view], "volumes": volumes, "restartPolicy": policy}
    return msgspec.json.encode({"metadata": {"name": "flux-0", "annotations": annotations}, "spec": spec})


def test_a_broker_says_that_it_only_waits_and_ends_well() -> None:
    pod = without_flux(
        decode_pod(broker({"fluxqueue/minicluster": "true", "fluxqueue.local/run-seconds": "0.1"}))
    )
    assert pod.refusal == ""
    assert pod.spec.init_containers is None
    (container,) = pod.spec.containers
    assert (container.name, container.image, container.readiness_probe, container.volume_mounts) == (
        "main",
        "ubuntu",
        None,
        None,
    )
    done = subprocess.run(container.command or [], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert done.stdout == (
        "There is no flux on the PATH of this machine: this broker is a stand-in, "
        "which only waits and computes nothing.\n"
    )
    assert f"{pod.note}\n" == done.stdout, "its status says the same"


@pytest.mark.parametrize(
    ("run_seconds", "policy", "waits"),
    [
        (None, "Never", "3"),
        (None, "Always", "infinity"),
        ("forever", "Never", "infinity"),
        ("1; touch x", "Never", "'1; touch x'"),
    ],
)
def test_it_waits_as_long_as_a_simulated_pod(run_seconds: str | None, policy: str, waits: str) -> None:
    annotations = {"fluxqueue/minicluster": "true"} | (
        {"fluxqueue.local/run-seconds": run_seconds} if run_seconds else {}
    )
    pod = without_flux(decode_pod(broker(annotations, policy)))
    assert (pod.spec.containers[0].command or [""])[-1].endswith(f"; exec sleep {waits}")


def test_other_pods_stay_as_they_are() -> None:
    pod = decode_pod(broker({}))
    assert without_flux(pod) is pod
