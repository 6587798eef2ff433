"""What a local cluster has for a person, and tests do without: the dashboard, the history of one namespace,
and how to sign in.

The demo and ``fluxqueue local up`` have the same, so a cluster looks the same whoever of them started it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FIRST_NAMESPACE", "VALUES", "dashboard_lines", "where_results_are"]

FIRST_NAMESPACE = "default"
"""Where a kubeconfig begins, and so does a person."""

VALUES: Mapping[str, Any] = {"dashboard": {"enabled": True}, "rbac": {"historyIn": [FIRST_NAMESPACE]}}
"""Helm values; those that the person gives override them."""

_ACCOUNT = "me"


def dashboard_lines(url: str) -> list[str]:
    """Return where the dashboard is, and the command that prints a token to sign in with."""
    bind = (
        f"kubectl create rolebinding {_ACCOUNT} --clusterrole=edit "
        f"--serviceaccount={FIRST_NAMESPACE}:{_ACCOUNT}"
    )
    return [
        (
            f"{url}   the dashboard; its certificate is the cluster's own. To sign in, a token (the last "
            "command is enough from then on):"
        ),
        f"kubectl create serviceaccount {_ACCOUNT} && {bind} && kubectl create token {_ACCOUNT}",
    ]


def where_results_are(url: str, *, keep: bool) -> str:
    """Return where the dashboard shows what the demo computed: in the logs of the pods of the Job ``pi``."""
    return (
        f"The dashboard has it in the log of job/pi: {url}/queue?q=pi"
        if keep
        else f"The dashboard had it in the log of job/pi ({url}): KEEP=1 make demo leaves it running"
    )
