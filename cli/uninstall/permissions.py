"""Asks the API server whether the user may do everything that an uninstallation does,
before anything changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.transport import Api

__all__ = ["PermissionMissing", "PermissionNeed", "check_permissions"]

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class PermissionMissing(Exception):
    """The user may not do all of it; the message names what."""


@dataclass(frozen=True, slots=True)
class PermissionNeed:
    """Verbs on a kind, in one namespace or, if that is empty, in all of them."""

    kind: Kind[Any]
    verbs: tuple[str, ...]
    namespace: str = ""


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def check_permissions(api: Api, needs: Iterable[PermissionNeed]) -> None:
    """Return if all is allowed.

    Raises
    ------
    PermissionMissing
        With one sentence for all that is missing.
    """
    asked = [(need, verb) for need in needs for verb in need.verbs]
    answers = await asyncio.gather(*(_allowed(api, need, verb) for need, verb in asked))
    if missing := [
        _named(need, verb) for (need, verb), allowed in zip(asked, answers, strict=True) if not allowed
    ]:
        raise PermissionMissing(
            f"you may not {_listed(missing)}: nothing was changed; ask an administrator of the cluster"
        )


async def _allowed(api: Api, need: PermissionNeed, verb: str) -> bool:
    attributes = {
        "verb": verb,
        "group": need.kind.group,
        "resource": need.kind.plural,
        "namespace": need.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.decode(await api.request("POST", _PATH, body=body), type=_Review).status.allowed


def _named(need: PermissionNeed, verb: str) -> str:
    return (
        f"{verb} {need.kind.plural} in "
        f"{f'namespace {need.namespace}' if need.namespace else 'all namespaces'}"
    )


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
