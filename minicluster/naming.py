"""Names and owners of the objects of a Flux cluster.

A Flux cluster belongs to a MiniCluster, or to an Indexed Job annotated as one. Objects that others find by
name keep the names of the Flux Operator: the Job (and with it the host names), the headless Service, the
services pod. Names that only fluxqueue uses contain five characters derived from the owner's uid. So a
MiniCluster created again under the same name never gets the certificate of the former one, which the garbage
collector has not removed yet.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from fluxqueue.api import names

__all__ = ["Identity"]

_LABEL = 63


@dataclass(frozen=True, slots=True)
class Identity:
    """The object that owns a Flux cluster.

    Attributes
    ----------
    api_version, kind, name, namespace, uid
        Of the MiniCluster or Job. Its name is that of the Job, and its hosts are ``<name>-<index>``.
    headless
        Name of the headless Service, if the owner chose one.
    """

    name: str
    namespace: str
    uid: str
    api_version: str = f"{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}"
    kind: str = "MiniCluster"
    headless: str = ""

    @property
    def _suffix(self) -> str:
        return hashlib.sha256(self.uid.encode()).hexdigest()[:5]

    @property
    def files(self) -> str:
        """Name of the ConfigMap: scripts, settings, broker configuration."""
        return f"{self.name}-{self._suffix}-flux"

    @property
    def certificate(self) -> str:
        """Name of the Secret with ``curve.cert``."""
        return f"{self.name}-{self._suffix}-curve"

    @property
    def token(self) -> str:
        """Name of the Secret with the REST service's ``token``, unless the spec names one."""
        return f"{self.name}-{self._suffix}-rest"

    @property
    def service(self) -> str:
        """Name of the headless Service, which is the subdomain of every pod.

        That of a MiniCluster has its name, as users' programs expect. That of a Job has a name for this run
        only, so that no stale DNS record of a former run can answer for it.
        """
        if self.headless:
            return self.headless
        if self.kind == "MiniCluster":
            return self.name
        return f"{self.name[: _LABEL - 6]}-{self._suffix}"

    @property
    def services_pod(self) -> str:
        """Name of the pod of ``spec.services``."""
        return f"{self.name}-services"

    @property
    def rest(self) -> str:
        """Name of Service and NetworkPolicy of the REST service."""
        return f"{self.name}-rest"

    def sidecar(self, container: str) -> str:
        """Return the name of the Service of a sidecar's ports."""
        return f"{self.name}-{container}"

    def host(self, index: int) -> str:
        """Return the host name of the pod of this index, as the Job controller sets it."""
        return f"{self.name}-{index}"

    def domain(self, cluster_domain: str) -> str:
        """Return the domain after ``<host>.`` in the full name of a pod."""
        return f"{self.service}.{self.namespace}.svc.{cluster_domain}"

    def metadata(self, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
        """Return metadata of an object that is deleted with its owner."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {
                "app.kubernetes.io/name": self.name,
                "app.kubernetes.io/managed-by": "fluxqueue",
                **(labels or {}),
            },
            "ownerReferences": [
                {
                    "apiVersion": self.api_version,
                    "kind": self.kind,
                    "name": self.name,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
