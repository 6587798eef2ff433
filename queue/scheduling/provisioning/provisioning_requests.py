"""Nodes by ProvisioningRequest, which the cluster autoscaler serves (docs/decisions, 0008).

A request names pod templates, one for each kind of pods, and the number of pods of each. No pod is ever
created from them. The FluxJob owns the request and the templates, so they are deleted with it in any case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from fluxqueue.api import names
from fluxqueue.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound
from fluxqueue.kube.kinds import FLUXJOBS, POD_TEMPLATES, PROVISIONING_REQUESTS, Key
from fluxqueue.kube.transport import Api
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.provisioning.node_requests import (
    NodeRequest,
    NotRequested,
    PodSetTemplate,
    PresentRequest,
    request_name,
)

__all__ = ["MOST_TEMPLATES", "PROVISIONING_CLASS", "ProvisioningRequests", "template_body"]

PROVISIONING_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""The autoscaler adds all requested nodes, or none."""

MOST_TEMPLATES = 32
"""Most pod sets of one ProvisioningRequest (maxItems of its podSets)."""


class ProvisioningRequests:
    """A `NodeRequester`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def key(self, workload: Workload) -> Key:
        """Return the namespace of the workload and the name of its request."""
        return workload.namespace, request_name(workload)

    def adopt(self, workload: Workload) -> None:
        """Do nothing: their number is not limited."""

    async def create(self, request: NodeRequest) -> None:
        """Create the templates and the request. Objects that exist already are the same."""
        if len(request.pod_sets) > MOST_TEMPLATES:
            raise NotRequested(
                f"its pods are of {len(request.pod_sets)} kinds: "
                f"a request to the autoscaler has at most {MOST_TEMPLATES}"
            )
        try:
            await self._create(request)
        except NotFound:
            kind = f"{PROVISIONING_REQUESTS.kind}s ({PROVISIONING_REQUESTS.api_version})"
            raise NotRequested(f"no nodes can be requested: this cluster serves no {kind}") from None
        except (Invalid, Forbidden) as error:
            raise NotRequested(f"no nodes could be requested from the autoscaler: {error}") from error

    async def _create(self, request: NodeRequest) -> None:
        namespace, name = request.key
        owner = [FLUXJOBS.reference(request.fluxjob, controller=True)]
        labels = {names.PROVISIONS_LABEL: request.workload.uid}
        sets: list[dict[str, Any]] = []
        for number, pod_set in enumerate(request.pod_sets):
            metadata = {"name": _template_name(name, number), "labels": labels, "ownerReferences": owner}
            with contextlib.suppress(AlreadyExists):
                await self._api.create(POD_TEMPLATES, template_body(pod_set, metadata), namespace)
            sets.append({"podTemplateRef": {"name": metadata["name"]}, "count": pod_set.count})
        body = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
            "spec": {"provisioningClassName": PROVISIONING_CLASS, "podSets": sets},
        }
        with contextlib.suppress(AlreadyExists):
            await self._api.create(PROVISIONING_REQUESTS, body, namespace)

    async def delete(self, key: Key) -> None:
        """Delete a request and its templates. Without the right to, these go with the FluxJob."""
        namespace, name = key
        with contextlib.suppress(NotFound):
            await self._api.delete(PROVISIONING_REQUESTS, name, namespace=namespace)
        for number in range(MOST_TEMPLATES):
            try:
                await self._api.delete(POD_TEMPLATES, _template_name(name, number), namespace=namespace)
            except (NotFound, Forbidden):
                return

    async def present(self) -> list[PresentRequest]:
        """Return all requests of the queue."""
        listed = await self._api.list(PROVISIONING_REQUESTS, label_selector=names.PROVISIONS_LABEL)
        return [
            PresentRequest(
                (each.metadata.namespace, each.metadata.name),
                failed=f"the autoscaler adds no nodes: {each.failed}" if each.failed else "",
            )
            for each in listed
        ]


def _template_name(request: str, number: int) -> str:
    return f"{request}-{number}"


def template_body(pod_set: PodSetTemplate, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PodTemplate of a pod set."""
    return {
        "metadata": metadata,
        "template": {
            "metadata": {"labels": {**pod_set.labels, **metadata.get("labels", {})}},
            "spec": pod_set.spec,
        },
    }
