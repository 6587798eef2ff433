"""Manifests of the gangs, and of the waiting work, that benchmarks create."""

from __future__ import annotations

from typing import Any

from fluxqueue.api import names

__all__ = ["filling_job", "job", "member", "stateful_set", "unlike_job", "waiting_job"]


def pod_spec() -> dict[str, Any]:
    return {
        "containers": [
            {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}
        ]
    }


def template(**labels: str) -> dict[str, Any]:
    metadata = {"labels": labels, "annotations": {"fluxqueue.local/run-seconds": "100000"}}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", **pod_spec()}}


def job(name: str, pods: int, *, indexed: bool) -> dict[str, Any]:
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed" if indexed else "NonIndexed",
        "template": template(),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def stateful_set(name: str, pods: int) -> dict[str, Any]:
    of_gang = template(app=name)
    of_gang["metadata"]["annotations"][names.GANG_ANNOTATION] = "true"
    of_gang["spec"]["restartPolicy"] = "Always"
    spec = {
        "replicas": pods,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": name}},
        "template": of_gang,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": spec | {"serviceName": name},
    }


def member(group: str, pods: int, number: int) -> dict[str, Any]:
    body = template(**{names.POD_GROUP_LABEL: group})
    body["metadata"]["annotations"][names.POD_GROUP_SIZE_ANNOTATION] = str(pods)
    body["metadata"]["name"] = f"{group}-{number}"
    return {"apiVersion": "v1", "kind": "Pod", **body}


def waiting_job(name: str, number: int, node: str) -> dict[str, Any]:
    """Return a Job of one pod that asks for most of a node, and for other cores and memory than any other
    number below a million.
    """
    body = job(name, 1, indexed=False)
    _ask(body, node, cpu=f"{5_000 + 7_919 * number % 3_000}m", memory=f"{1_024 + 7_919 * number % 4_096}Mi")
    return body


def unlike_job(name: str, number: int, node: str) -> dict[str, Any]:
    """Return a Job of one pod that waits for a node, with a list of nodes of its own,
    so that its refusal says nothing about others.
    """
    body = job(name, 1, indexed=False)
    spec = body["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "5"}}
    term = {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node, f"absent-{number}"]}
        ]
    }
    spec["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return body


def filling_job(name: str, node: str) -> dict[str, Any]:
    """Return a Job that keeps `waiting_job` and `unlike_job` waiting."""
    body = job(name, 1, indexed=False)
    _ask(body, node, cpu="4", memory="1Gi")
    return body


def _ask(body: dict[str, Any], node: str, **requests: str) -> None:
    spec = body["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    spec["containers"][0]["resources"] = {"requests": requests}
