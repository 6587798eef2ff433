"""Who the agent is for the API server, and the API server for the agent."""

from __future__ import annotations

from typing import Any

from fluxqueue.local.kubelet.addresses import NETWORKS, agent_address
from fluxqueue.local.pki import Authority

__all__ = ["AGENT_RIGHTS", "KUBELET_CLIENT", "issue_agent_certificates"]

KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The common name of the certificate with which the API server asks the agent."""
_USER = "fluxqueue-local:nodes"
AGENT_RIGHTS: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": _USER},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _USER}],
}
"""The agent has the rights of a kubelet, for all nodes."""


def issue_agent_certificates(authority: Authority) -> None:
    """Issue the agent's client and server certificates, and that of the API server as its client."""
    authority.issue_client("node-agent", _USER)
    authority.issue_client("kubelet-client", KUBELET_CLIENT)
    authority.issue_server("kubelet", [agent_address(network) for network in NETWORKS])
