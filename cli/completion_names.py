"""Names of a cluster for the completion of command lines:
one page of each kind, decoded no further than needed.
"""

from __future__ import annotations

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import PartialObject, PartialObjectMetadata
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.listing import collection

__all__ = ["read_names"]

_PAGE = {"limit": "500"}
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_PATHS = {
    "queues": collection(names.FLUXQUEUES),
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
}


class _Metas(PartialObject, frozen=True):
    items: tuple[PartialObjectMetadata, ...] = ()


class _FluxJobs(PartialObject, frozen=True):
    items: tuple[FluxJob, ...] = ()


def read_names(client: ApiClient, kind: str, namespace: str) -> list[str]:
    """Return names.

    Parameters
    ----------
    client
        The API server.
    kind
        ``workloads`` (with a description after a tab), ``queues``, ``nodes`` or ``namespaces``.
    namespace
        Of the workloads.

    Raises
    ------
    ClusterError
        The server refuses or does not answer.
    """
    if kind == "workloads":
        listed = msgspec.json.decode(client.get(collection(names.FLUXJOBS, namespace), _PAGE), type=_FluxJobs)
        return [
            f"{object_name(job) or job.metadata.name}\t{state_of(job)} {job.status.reason}".rstrip()
            for job in listed.items
        ]
    page = msgspec.json.decode(client.get(_PATHS[kind], _PAGE, _METADATA), type=_Metas)
    return [each.metadata.name for each in page.items]
