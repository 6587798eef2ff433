"""What runs in the pods of a MiniCluster where there is no Flux: containers that say so, and wait."""

from __future__ import annotations

import shlex

import msgspec

from fluxqueue.api import names
from fluxqueue.local.kubelet.specs import Container, PodObject

__all__ = ["without_flux"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
_DEFAULT_S = "3"
_SENTENCE = (
    "There is no flux on the PATH of this machine: this broker is a stand-in, "
    "which only waits and computes nothing."
)


def without_flux(pod: PodObject) -> PodObject:
    """Return the pod of a broker with containers that only wait, for as long as a simulated pod does; any
    other pod as it is.

    The programs of a broker come with an image, and an image is only a name here. With a pod that cannot
    start, nobody would see how a MiniCluster is queued and placed.
    """
    annotations = pod.metadata.annotations or {}
    if annotations.get(names.MINICLUSTER_ANNOTATION) != "true":
        return pod
    wanted = annotations.get(RUN_SECONDS, "forever" if pod.spec.restart_policy == "Always" else _DEFAULT_S)
    seconds = "infinity" if wanted == "forever" else wanted
    script = f"echo {shlex.quote(_SENTENCE)}; exec sleep {shlex.quote(seconds)}"
    containers = [
        Container(name=each.name, image=each.image, command=["sh", "-c", script], resources=each.resources)
        for each in pod.spec.containers
    ]
    spec = msgspec.structs.replace(pod.spec, containers=containers, init_containers=None, volumes=None)
    return msgspec.structs.replace(pod, spec=spec, note=_SENTENCE)
