"""Who submitted workloads: the annotation that admission writes on their objects, read with the metadata of these.

A FluxJob does not have it. So the objects are listed when somebody asks for the work of a user, or for the wide table; where a kind may not
be listed, its work has no user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import PartialObject, PartialObjectMetadata
from fluxqueue.cli.api_client import ApiClient, ApiRefused

__all__ = ["SELF", "Submitters", "own_name"]

SELF = "\0me"
"""Stands for the name of who asks, where a user is selected."""
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_PAGE = "500"
_UNKNOWN = (403, 404)
_PATHS = {
    "Job": ("/apis/batch/v1", "jobs"),
    "Pod": ("/api/v1", "pods"),
    "PodGroup": ("/api/v1", "pods"),
    "MiniCluster": (f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}", names.MINICLUSTERS),
}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _Metas(PartialObject, frozen=True):
    items: tuple[PartialObjectMetadata, ...] | None = None
    metadata: dict[str, object] | None = None


def own_name(client: ApiClient) -> str:
    """Return the user name that the API server knows the person by.

    Raises
    ------
    ClusterError
        The server does not tell.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return str(json.loads(client.post(_REVIEWS, review))["status"]["userInfo"]["username"])


class Submitters:
    """The users of the workloads of a namespace (None: of all).

    Parameters
    ----------
    client, namespace
        The API server, and where the workloads are.
    """

    def __init__(self, client: ApiClient, namespace: str | None) -> None:
        self._client = client
        self._where = f"/namespaces/{namespace}" if namespace else ""
        self._users: dict[str, str] = {}

    def read(self, jobs: Iterable[FluxJob]) -> None:
        """List the objects of the kinds that some workloads have."""
        for group, plural in {_PATHS[job.spec.object_ref.kind] for job in jobs if job.spec.object_ref.kind in _PATHS}:
            try:
                self._list(f"{group}{self._where}/{plural}")
            except ApiRefused as refused:
                if refused.status not in _UNKNOWN:
                    raise

    def of(self, job: FluxJob) -> str:
        """Return who submitted a workload; empty if it is not known."""
        concerned = (job.spec.object_ref.uid, *(owner.uid for owner in job.metadata.owner_references or ()))
        return next((self._users[uid] for uid in concerned if uid in self._users), "")

    def _list(self, path: str) -> None:
        params = {"limit": _PAGE}
        while True:
            page = msgspec.json.decode(self._client.get(path, params, _METADATA), type=_Metas)
            for each in page.items or ():
                if user := each.metadata.annotation(names.SUBMITTED_BY_ANNOTATION):
                    self._users[each.metadata.uid] = user
            token = str((page.metadata or {}).get("continue") or "")
            if not token:
                return
            params = {"limit": _PAGE, "continue": token}
