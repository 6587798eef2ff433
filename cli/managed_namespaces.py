"""Whether fluxqueue manages a namespace, for a person whose work is not in the queue.

The label of the namespace says it where it is set. Where it is not, it depends on the chart (all namespaces,
or only labelled ones), and a dry run of a Job shows whether admission sees it. Nothing is said to a person
who may ask neither.
"""

from __future__ import annotations

import json
from typing import Any

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiClient, ClusterError

__all__ = ["not_managed", "why_nothing_waits"]

_PROBE: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "fluxqueue-probe-"},
    "spec": {
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none.invalid/none"}]}
        }
    },
}


def not_managed(namespace: str) -> str:
    """Return what is said of a namespace that fluxqueue does not manage, with the remedy."""
    return (
        f"fluxqueue does not manage namespace {namespace}, so nothing in it waits for its turn: an "
        f"administrator manages it by: kubectl label --overwrite namespace {namespace} "
        f"{names.MANAGED_LABEL}=true"
    )


def why_nothing_waits(client: ApiClient, namespace: str) -> str:
    """Return that a namespace does not exist or is not managed, with the remedy;
    empty if neither is known.
    """
    path = f"/api/v1/namespaces/{namespace}"
    try:
        labels = json.loads(client.get(path))["metadata"].get("labels") or {}
    except ClusterError as error:
        if 'namespaces "' in str(error) and "not found" in str(error):
            return (
                f"there is no namespace {namespace}: kubectl get namespaces lists them; "
                "-n NAME chooses another"
            )
        labels = {}
    if (label := labels.get(names.MANAGED_LABEL)) is not None:
        return "" if label == "true" else not_managed(namespace)
    try:
        job = json.loads(
            client.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", _PROBE, params={"dryRun": "All"})
        )
    except ClusterError:
        return ""
    return "" if names.SEEN_LABEL in (job["metadata"].get("labels") or {}) else not_managed(namespace)
