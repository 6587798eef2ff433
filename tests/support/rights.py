"""The rights of the project's programs: what the chart's roles grant,
and what the audit log shows as used or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.audit_log import AuditEvent, ObjectReference, read_audit_log
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster

__all__ = ["Right", "granted", "refused", "used"]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"


@dataclass(frozen=True, order=True)
class Right:
    """A verb on a resource (``jobs/status``) of a group, for a program's ServiceAccount."""

    account: str
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def granted(client: ApiServerClient) -> set[Right]:
    """Return every right that a role gives to a ServiceAccount of the release."""
    rules: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for kind, plural in (("ClusterRole", "clusterroles"), ("Role", "roles")):
        for role in client.get(f"{_RBAC}/{plural}")["items"]:
            meta = role["metadata"]
            rules[kind, meta.get("namespace", ""), meta["name"]] = role.get("rules") or []
    return {
        Right(account, verb, group, resource)
        for binding in _bindings(client)
        for account in _accounts(binding)
        for rule in rules.get(_role_of(binding), ())
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def _bindings(client: ApiServerClient) -> Iterator[Mapping[str, Any]]:
    for plural in ("clusterrolebindings", "rolebindings"):
        yield from client.get(f"{_RBAC}/{plural}")["items"]


def _accounts(binding: Mapping[str, Any]) -> list[str]:
    subjects = binding.get("subjects") or ()
    return [
        each["name"]
        for each in subjects
        if each["kind"] == "ServiceAccount" and each.get("namespace") == NAMESPACE
    ]


def _role_of(binding: Mapping[str, Any]) -> tuple[str, str, str]:
    kind = binding["roleRef"]["kind"]
    return (
        kind,
        binding["metadata"].get("namespace", "") if kind == "Role" else "",
        binding["roleRef"]["name"],
    )


def used(cluster: InProcessCluster) -> set[Right]:
    """Return every right that a program has used so far. The cluster needs ``audit``."""
    return {_right(event) for event in _events(cluster) if not event.forbidden}


def refused(cluster: InProcessCluster) -> set[Right]:
    """Return what RBAC or a policy has refused to programs."""
    return {
        _right(event) for event in _events(cluster) if event.forbidden or event.code == HTTPStatus.FORBIDDEN
    }


def _events(cluster: InProcessCluster) -> Iterator[AuditEvent]:
    for event in read_audit_log(cluster.control_plane.folder / "audit.log", containing=_ACCOUNTS.encode()):
        if event.user.username.startswith(_ACCOUNTS) and event.object_ref is not None:
            yield event


def _right(event: AuditEvent) -> Right:
    target = event.object_ref or ObjectReference()
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    return Right(event.user.username.removeprefix(_ACCOUNTS), event.verb, target.api_group, resource)
