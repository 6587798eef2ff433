"""The Job of some calls as an object: what its pods request, and how it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fluxqueue.api import names
from fluxqueue.client.builders import check_amounts
from fluxqueue.kube.kinds import JOBS

__all__ = ["KEPT_S", "TaskPods", "job_manifest", "job_name"]

Json = dict[str, Any]
KEPT_S = 3_600
_FOLDER = "/var/run/fluxqueue-call"
_LOG = "/dev/termination-log"
_NOT_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class TaskPods:
    """The pods in which calls run.

    Attributes
    ----------
    image
        An image with Python, of the same minor version as the client's.
    python
        The program in it.
    cpu, memory, gpus
        What each pod requests: cores, a quantity such as ``4Gi``, whole GPUs.
    duration
        How long the calls of one pod take at most; then they are ended.
    env
        Variables of the container.
    annotations
        Of the pods.
    pod
        More fields of the pods' spec, such as ``volumes`` and ``nodeSelector``; ``volumeMounts`` are those of
        the container.
    """

    image: str
    python: str = "python3"
    cpu: float | str = 1
    memory: str | None = None
    gpus: int = 0
    duration: timedelta = timedelta(hours=1)
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse amounts that cannot be meant."""
        check_amounts("TaskPods", self.cpu, self.memory)


def job_manifest(pods: TaskPods, name: str, label: str, tasks: int, at_once: int) -> Json:
    """Return the Job of some tasks, one for each completion index.

    Parameters
    ----------
    pods
        Its pods.
    name
        Its name, and that of its Secret.
    label
        Value of the label that all pods of the executor have.
    tasks
        How many there are.
    at_once
        How many run at the same time.
    """
    requests = {"cpu": str(pods.cpu), **({"memory": pods.memory} if pods.memory else {})}
    limits = {"nvidia.com/gpu": str(pods.gpus)} if pods.gpus else {}
    more = dict(pods.pod)
    mount = {"name": "fluxqueue-call", "mountPath": _FOLDER, "readOnly": True}
    container: Json = {
        "name": "call",
        "image": pods.image,
        "command": [pods.python, f"{_FOLDER}/worker.pyz", _LOG],
        "env": [{"name": key, "value": str(value)} for key, value in pods.env.items()],
        "resources": {"requests": requests | limits, "limits": limits},
        "terminationMessagePath": _LOG,
        "volumeMounts": [mount, *more.pop("volumeMounts", ())],
    }
    volume = {"name": "fluxqueue-call", "secret": {"secretName": name, "defaultMode": 0o444}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **more,
        "containers": [container, *more.get("containers", ())],
        "volumes": [volume, *more.get("volumes", ())],
    }
    labels = {names.EXECUTOR_LABEL: label}
    rounds = math.ceil(tasks / at_once)
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": tasks,
            "parallelism": at_once,
            "backoffLimitPerIndex": 0,
            "activeDeadlineSeconds": max(1, math.ceil(pods.duration.total_seconds() * rounds)),
            "ttlSecondsAfterFinished": KEPT_S,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
                ]
            },
            "template": {"metadata": {"labels": labels, "annotations": dict(pods.annotations)}, "spec": spec},
        },
    }


def job_name(function: str, task: str) -> str:
    """Return the name of a Job: what is called, and which call it is."""
    return f"call-{_NOT_NAME.sub('-', function.lower()).strip('-')[:30].strip('-') or 'function'}-{task[:10]}"
