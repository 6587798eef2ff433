"""Work as Python objects: a Job, a pod group, a MiniCluster, with what most work needs. What else there is
goes into ``pod`` or ``spec``.

They are small on purpose: `manifest` is the object as kubectl would get it, so that nothing is hidden. Work
of any other shape is submitted as YAML, as a dictionary or as an object of the ``kubernetes`` package.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.typedvalues import cores_problem, memory_problem, name_problem
from fluxqueue.client.arguments import check_mapping, check_text, check_texts, check_whole
from fluxqueue.client.errors import InvalidWork

__all__ = ["Job", "MiniCluster", "Pod", "PodGroup", "check_amounts"]

Json = dict[str, Any]
Amount = int | float | str
_LONGEST_POD_NAME = 253
_LONGEST_NAME = 63
"""Of what is also a label, or a part of the names of pods."""


def check_amounts(title: str, cpu: Amount | None, memory: Amount | None) -> None:
    """Check what each pod requests, before the first request.

    Raises
    ------
    InvalidWork
        An amount cannot be read, or cannot be meant.
    """
    if cpu is not None and (problem := cores_problem(cpu)) is not None:
        raise InvalidWork(f"{title}: cpu: {problem}")
    if memory is not None and (problem := memory_problem(memory)) is not None:
        raise InvalidWork(f"{title}: memory: {problem}")


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What all kinds have.

    Attributes
    ----------
    name
        Name of the object. A name that ends in ``-`` is completed by the API server.
    image, command
        What runs in each pod. Without a command, the image's own.
    pods
        How many pods start together.
    cpu, memory, gpus
        What each pod requests: cores, a Kubernetes quantity such as ``16Gi``, and whole GPUs
        (``nvidia.com/gpu``).
    env
        Variables of the container.
    labels, annotations
        Of the object.
    """

    name: str
    image: str
    command: Sequence[str] = ()
    pods: int = 1
    cpu: Amount | None = None
    memory: Amount | None = None
    gpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def _check(self) -> None:
        kind = type(self).__name__
        if not self.name:
            raise InvalidWork(f"{kind}: give it a name")
        check_text(f"{kind}: name", self.name, "solver")
        title = f"{kind} {self.name}"
        if isinstance(self.command, str):
            raise InvalidWork(
                f"{title}: command is one text: write a list of words, such as ['bash', "
                f"'-c', {self.command!r}]"
            )
        check_text(f"{title}: image", self.image, "python:3.11")
        check_texts(f"{title}: command", self.command, "['bash', '-c', 'solve']")
        check_whole(f"{title}: pods", self.pods, least=1)
        check_whole(f"{title}: gpus", self.gpus, least=0)
        for field_name in ("env", "labels", "annotations"):
            check_mapping(f"{title}: {field_name}", getattr(self, field_name))
        longest = _LONGEST_POD_NAME if isinstance(self, Pod) else _LONGEST_NAME
        if (problem := name_problem(self.name.removesuffix("-"), longest)) is not None:
            raise InvalidWork(f"{kind}: name: {problem}")
        check_amounts(title, self.cpu, self.memory)

    def _metadata(self) -> Json:
        if self.name.endswith("-"):
            meta: Json = {"generateName": self.name}
        else:
            meta = {"name": self.name}
        if self.labels:
            meta["labels"] = dict(self.labels)
        if self.annotations:
            meta["annotations"] = dict(self.annotations)
        return meta

    def _container(self) -> Json:
        requests: Json = {}
        if self.cpu is not None:
            requests["cpu"] = str(self.cpu)
        if self.memory is not None:
            requests["memory"] = str(self.memory)
        limits = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        container: Json = {"name": "main", "image": self.image}
        if self.command:
            container["command"] = list(self.command)
        if self.env:
            container["env"] = [{"name": key, "value": str(value)} for key, value in self.env.items()]
        if requests or limits:
            container["resources"] = {
                key: each for key, each in (("requests", {**requests, **limits}), ("limits", limits)) if each
            }
        return container


@dataclass(frozen=True, kw_only=True)
class Job(_Work):
    """A ``batch/v1`` Job; with several pods an Indexed one, whose pods start together.

    Attributes
    ----------
    completions
        How many pods have to succeed, if more than run at once; by default ``pods``.
    retries
        How often a failed pod is replaced.
    ttl_s
        Seconds after its end until the Job is deleted by itself; None keeps it.
    pod
        More fields of the pods' spec, such as ``volumes`` or ``nodeSelector``; ``containers`` has additional
        ones.
    """

    completions: int | None = None
    retries: int = 0
    ttl_s: int | None = None
    pod: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self) -> Json:
        """Return the Job as kubectl would get it.

        Raises
        ------
        InvalidWork
            A field cannot be right.
        """
        self._check()
        check_whole(f"Job {self.name}: retries", self.retries, least=0)
        for field_name in ("completions", "ttl_s"):
            if (value := getattr(self, field_name)) is not None:
                check_whole(f"Job {self.name}: {field_name}", value, least=0)
        check_mapping(f"Job {self.name}: pod", self.pod)
        if self.completions is not None and self.completions < self.pods:
            raise InvalidWork(
                f"Job {self.name}: completions is {self.completions}, "
                f"fewer than the {self.pods} pods that run at once"
            )
        more = dict(self.pod)
        containers = [self._container(), *more.pop("containers", ())]
        spec: Json = {
            "parallelism": self.pods,
            "completions": self.completions or self.pods,
            "backoffLimit": self.retries,
            "template": {"spec": {"restartPolicy": "Never", **more, "containers": containers}},
        }
        if spec["completions"] > 1:
            spec["completionMode"] = "Indexed"
        if self.ttl_s is not None:
            spec["ttlSecondsAfterFinished"] = self.ttl_s
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": self._metadata(), "spec": spec}


@dataclass(frozen=True, kw_only=True)
class Pod(_Work):
    """A single bare Pod. ``pod`` has more fields of its spec."""

    pod: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self) -> Json:
        """Return the Pod as kubectl would get it.

        Raises
        ------
        InvalidWork
            It has several pods: use `PodGroup`.
        """
        self._check()
        if self.pods != 1:
            raise InvalidWork(f"Pod {self.name}: pods is {self.pods}: use PodGroup, or Job")
        more = dict(self.pod)
        containers = [self._container(), *more.pop("containers", ())]
        spec = {"restartPolicy": "Never", **more, "containers": containers}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(), "spec": spec}


@dataclass(frozen=True, kw_only=True)
class PodGroup(_Work):
    """Bare Pods that start together. ``pod`` has more fields of their spec.

    Every pod has its number as variable ``POD_GROUP_INDEX``.
    """

    pod: Mapping[str, Any] = field(default_factory=dict)

    def manifests(self) -> list[Json]:
        """Return the Pods as kubectl would get them.

        Raises
        ------
        InvalidWork
            A field cannot be right.
        """
        self._check()
        if self.name.endswith("-"):
            raise InvalidWork(f"PodGroup {self.name}: the name is the label of the group, so write it out")
        single = {**self.__dict__, "pods": 1}
        group = {names.POD_GROUP_LABEL: self.name}
        size = {names.POD_GROUP_SIZE_ANNOTATION: str(self.pods)}
        return [
            Pod(
                **{
                    **single,
                    "name": f"{self.name}-{index}",
                    "labels": {**self.labels, **group},
                    "annotations": {**self.annotations, **size},
                    "env": {**self.env, "POD_GROUP_INDEX": str(index)},
                }
            ).manifest()
            for index in range(self.pods)
        ]


@dataclass(frozen=True, kw_only=True)
class MiniCluster(_Work):
    """A Flux cluster of ``pods`` brokers; without a command an instance that serves its REST interface
    (docs/minicluster.md).

    Attributes
    ----------
    tasks
        Tasks of the command; 0 is one for each broker.
    interactive
        The instance stays when the command ends.
    rest
        Serve the REST interface, also with a command.
    spec
        More fields of the MiniCluster's spec.
    """

    tasks: int = 0
    interactive: bool = False
    rest: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self) -> Json:
        """Return the MiniCluster as kubectl would get it.

        Raises
        ------
        InvalidWork
            A field cannot be right.
        """
        self._check()
        container = self._container()
        del container["name"]
        if self.command:
            container["command"] = shlex.join(self.command)
        if "env" in container:
            container.pop("env")
            container["environment"] = {key: str(value) for key, value in self.env.items()}
        spec: Json = {"size": self.pods, "tasks": self.tasks or self.pods, "containers": [container]}
        if self.interactive:
            spec["interactive"] = True
        if self.rest:
            spec["restful"] = {"enabled": True}
        meta = self._metadata()
        if "generateName" in meta:
            raise InvalidWork(
                f"MiniCluster {self.name}: its objects are named after it, so write the name out"
            )
        return {
            "apiVersion": f"{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}",
            "kind": "MiniCluster",
            "metadata": meta,
            "spec": {**spec, **self.spec},
        }
