"""What the objects of a Flux cluster are called, and whose they are.

Two kinds of owner have a Flux cluster: a MiniCluster, and an Indexed Job annotated as one. What others find by name keeps the names of the
Flux Operator (the Job and so the host names, the headless Service, the services pod); what only we refer to carries five characters of the
owner's uid, so that a MiniCluster made again under its old name never meets the certificate of the one before it, which the garbage
collector is still about to remove.
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
    """The object that a Flux cluster belongs to.

    Attributes
    ----------
    api_version, kind, name, namespace, uid
        Of the MiniCluster or Job. Its name is the Job's, and ``<name>-<index>`` are the hosts.
    headless
        Name of the headless Service, where the owner chose one.
    """

    name: str
    namespace: str
    uid: str
    api_version: str = f"{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}"
    kind: str = "MiniCluster"
    headless: str = ""

    @property
    def _mark(self) -> str:
        return hashlib.sha256(self.uid.encode()).hexdigest()[:5]

    @property
    def files(self) -> str:
        """The ConfigMap: scripts, settings, broker configuration."""
        return f"{self.name}-{self._mark}-flux"

    @property
    def certificate(self) -> str:
        """The Secret with ``curve.cert``."""
        return f"{self.name}-{self._mark}-curve"

    @property
    def token(self) -> str:
        """The Secret with the REST service's ``token``, where none is named."""
        return f"{self.name}-{self._mark}-rest"

    @property
    def service(self) -> str:
        """The headless Service, subdomain of every pod.

        A MiniCluster's is named like it, as its users' programs expect. A Job's is named for this one run, so that no stale record of a
        run before can answer for it.
        """
        if self.headless:
            return self.headless
        if self.kind == "MiniCluster":
            return self.name
        return f"{self.name[: _LABEL - 6]}-{self._mark}"

    @property
    def services_pod(self) -> str:
        """The pod of ``spec.services``."""
        return f"{self.name}-services"

    @property
    def rest(self) -> str:
        """Service and NetworkPolicy of the REST service."""
        return f"{self.name}-rest"

    def sidecar(self, container: str) -> str:
        """The Service of a sidecar's ports."""
        return f"{self.name}-{container}"

    def host(self, index: int) -> str:
        """Host name of the pod of this index, as the Job controller sets it."""
        return f"{self.name}-{index}"

    def domain(self, cluster_domain: str) -> str:
        """What follows ``<host>.`` in the full name of a pod."""
        return f"{self.service}.{self.namespace}.svc.{cluster_domain}"

    def metadata(self, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
        """Metadata of an object that goes when the owner goes."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {"app.kubernetes.io/name": self.name, "app.kubernetes.io/managed-by": "fluxqueue", **(labels or {})},
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
