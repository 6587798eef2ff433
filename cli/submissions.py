"""The Job that `kubectl fluxqueue submit` creates: pure functions of what was asked for.

``-N 4`` are four pods, each on another node, as with ``flux submit -N`` and ``sbatch -N``; ``--pods`` are
pods wherever there is room. They are the indexes of one Indexed Job, so that they start together, and each
knows its rank (``JOB_COMPLETION_INDEX``). Requests are limits too, except for cpu, which is shared by
requests.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.durations import MAX_DURATION_S, parse_duration
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.arrays import TaskArray

__all__ = ["MOST_TYPED", "Submission", "job_manifest", "job_name", "job_yaml"]

MOST_TYPED = 1_000_000
"""The largest whole number that is read."""
_NOT_DNS = re.compile(r"[^a-z0-9-]+")
_LONGEST_STEM = 57
"""Of a name that the API server makes unique with six more characters."""
_CONTAINER = "main"


@dataclass(frozen=True)
class Submission:
    """What was asked for.

    Attributes
    ----------
    image, command
        Of the container; without a command, that of the image runs.
    name
        Of the Job; empty: one that the API server makes of ``stem``.
    stem
        What the name is made of.
    nodes, pods
        Pods on different nodes, and pods in all; None: not stated.
    array
        Pods that are tasks of their own, instead of pods that start together.
    cpu, memory, gpus, gpu_resource
        Of each pod: quantities of Kubernetes, and a number of pieces of a resource.
    annotations, labels
        Of the Job: duration, priority, dependencies, queue and so on.
    environment
        Of the container.
    retries
        How often failed pods are replaced.
    service_account
        Of the pods; empty: that of the namespace.
    keep_s
        The Job is deleted so long after its end; None: never.
    """

    image: str
    command: tuple[str, ...] = ()
    name: str = ""
    stem: str = "job"
    nodes: int | None = None
    pods: int | None = None
    array: TaskArray | None = None
    cpu: str = "1"
    memory: str = ""
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    service_account: str = ""
    keep_s: int | None = None

    @property
    def pod_count(self) -> int:
        """How many pods there are."""
        return self.pods or self.nodes or 1


def job_name(text: str) -> str:
    """Return a text as the beginning of the name of a Job:
    letters without their accents, and hyphens for what no name has.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode() or text
    return _NOT_DNS.sub("-", plain.lower()).strip("-")[:_LONGEST_STEM].rstrip("-") or "job"


def job_manifest(asked: Submission, namespace: str) -> dict[str, Any]:
    """Return the Job.

    Raises
    ------
    ClusterError
        The pods cannot be divided among the nodes, or an array is to have nodes.
    """
    pods = at_once = asked.pod_count
    annotations = dict(asked.annotations)
    if asked.array is not None:
        if asked.nodes is not None or asked.pods is not None:
            raise ClusterError(
                "error: each task of --array is one pod, wherever there is room: leave -N and --pods out"
            )
        pods, at_once = asked.array.tasks, asked.array.at_once or asked.array.tasks
        annotations |= _array_annotations(asked.array, annotations)
    if asked.nodes is not None:
        if pods % asked.nodes:
            less, more = pods - pods % asked.nodes, pods + asked.nodes - pods % asked.nodes
            choices = " or ".join(f"--pods {each}" for each in (less, more) if each)
            raise ClusterError(
                f"error: {pods} pods (--pods) cannot be divided among {asked.nodes} nodes (-N): "
                "each node has as many: "
                f"ask for {choices}, or leave -N out"
            )
        annotations[names.PODS_PER_NODE_ANNOTATION] = str(pods // asked.nodes)
    metadata: dict[str, Any] = {"name": asked.name} if asked.name else {"generateName": f"{asked.stem}-"}
    metadata["namespace"] = namespace
    if asked.labels:
        metadata["labels"] = dict(asked.labels)
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {
        "parallelism": at_once,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": asked.retries,
        "template": {"spec": _pod_spec(asked)},
    }
    if asked.keep_s is not None:
        spec["ttlSecondsAfterFinished"] = asked.keep_s
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _array_annotations(array: TaskArray, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return what an array needs: room for one task, or the duration of all rounds,
    since ``-t`` is that of a task.
    """
    if array.at_once is None:
        return {names.MIN_PODS_ANNOTATION: "1"} if array.tasks > 1 else {}
    duration = annotations.get(names.DURATION_ANNOTATION)
    rounds = math.ceil(array.tasks / array.at_once)
    if duration is None:
        return {}
    seconds = parse_duration(duration) * rounds
    if seconds > MAX_DURATION_S:
        raise ClusterError(
            f"error: {rounds} rounds of {duration} are longer than ten years: run more at once, "
            "or leave -t out"
        )
    return {names.DURATION_ANNOTATION: f"{seconds}s"}


def _pod_spec(asked: Submission) -> dict[str, Any]:
    amounts = {"cpu": asked.cpu} | ({"memory": asked.memory} if asked.memory else {})
    if asked.gpus:
        amounts[asked.gpu_resource] = str(asked.gpus)
    # A limit of cpu throttles without helping anybody; memory and devices need one.
    limits = {name: amount for name, amount in amounts.items() if name != "cpu"}
    container: dict[str, Any] = {"name": _CONTAINER, "image": asked.image, "resources": {"requests": amounts}}
    if limits:
        container["resources"]["limits"] = limits
    if asked.command:
        container["command"] = list(asked.command)
    if asked.environment:
        container["env"] = [{"name": name, "value": value} for name, value in asked.environment.items()]
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if asked.service_account:
        spec["serviceAccountName"] = asked.service_account
    return spec


def job_yaml(job: dict[str, Any]) -> str:
    """Return a Job as YAML, in which a script has its lines."""
    import yaml

    class _Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    _Dumper.add_representer(str, text)
    return str(yaml.dump(job, Dumper=_Dumper, sort_keys=False, width=140))
