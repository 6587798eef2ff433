"""What helps against an error of the cluster, added to kubectl's message: whom to ask for a right, where
names are listed.

kubectl's messages say what was refused, and people know them. They do not say what to do. All functions are
pure functions of the error.
"""

from __future__ import annotations

import re

from fluxqueue.api import names
from fluxqueue.cli.api_client import (
    ApiRefused,
    ClusterError,
    NoSuchResource,
    ObjectNotFound,
    ServerUnreachable,
)

__all__ = ["INSTALL", "UNREACHABLE", "described", "not_found"]

INSTALL = (
    "is fluxqueue installed in this cluster? An administrator installs it with its Helm chart, "
    "docs/install.md"
)
UNREACHABLE = "kubectl cluster-info asks the same server; --context or --kubeconfig choose another"
_REFUSED = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?'
)
_DOWN = (502, 503, 504)
_READS = ("get", "list", "watch")
_OF_CLUSTER = (names.FLUXQUEUES, names.FLUXACCOUNTS, names.FLUXRESERVATIONS)
_LISTED_BY = {
    f"{names.FLUXQUEUES}.{names.GROUP}": "kubectl fluxqueue queues lists the queues",
    "nodes": "kubectl fluxqueue nodes lists the nodes",
}
_WORK = "kubectl fluxqueue jobs lists the work of the namespace; -n NAME chooses another"
_MISSING = re.compile(r'(?P<resource>\S+) "[^"]*" not found$')


def described(error: ClusterError) -> str:
    """Return the message of an error in one sentence with what helps;
    a message that has its remedy already is unchanged.
    """
    helps = _remedy(error)
    return f"{error} ({helps})" if helps else str(error)


def not_found(resource: str, name: str) -> ObjectNotFound:
    """Return the error for a name that a list does not have, as the API server words it."""
    return ObjectNotFound(404, "NotFound", f'{resource} "{name}" not found')


def _remedy(error: ClusterError) -> str:
    if isinstance(error, ServerUnreachable):
        return UNREACHABLE
    if isinstance(error, NoSuchResource):
        return INSTALL
    if isinstance(error, ObjectNotFound):
        missing = _MISSING.search(str(error))
        if missing is not None and missing["resource"] == "services":
            return INSTALL
        return _LISTED_BY.get(missing["resource"], _WORK) if missing else _WORK
    if not isinstance(error, ApiRefused):
        return ""
    if error.status == 401:
        return "log in to the cluster again, or choose other credentials with --context or --kubeconfig"
    if error.status in _DOWN:
        return (
            "the program that answers this is down or starts: "
            "kubectl fluxqueue version shows the replicas of the queue"
        )
    if error.status == 403 and (refused := _REFUSED.search(str(error))) is not None:
        return f"an administrator gives you the right by: kubectl create {_grant(refused)}"
    return ""


def _grant(refused: re.Match[str]) -> str:
    """Return the binding that gives the right that was missing."""
    reads, namespace = refused["verb"] in _READS, refused["namespace"]
    if refused["group"] == names.GROUP and refused["resource"] in _OF_CLUSTER:
        return (
            f"clusterrolebinding NAME --clusterrole=fluxqueue-{'fluxqueues-view' if reads else 'operator'} "
            "--user=YOU"
        )
    role = "view" if reads else "edit"
    if namespace:
        return f"rolebinding NAME -n {namespace} --clusterrole={role} --user=YOU"
    return f"clusterrolebinding NAME --clusterrole={role} --user=YOU; without -A you see one namespace"
