"""Merging of one pod template into another, so that a MiniCluster can set any pod field.

Objects are merged member by member, and ``null`` removes a member (RFC 7386). Lists with a key in Kubernetes
are merged by that key, as in a strategic merge. So ``podTemplate.spec.containers: [{name: lammps, env:
[...]}]`` adds to the existing container, and a container with another name is added. Lists without a key are
replaced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api.metadata import PartialObject

__all__ = ["merge_template", "overlay_problem"]

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "hostAliases": "ip",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
_APPENDED = frozenset({"tolerations", "envFrom", "readinessGates"})


class _Named(PartialObject, frozen=True):
    name: str


class _Metadata(PartialObject, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _PodSpec(PartialObject, frozen=True):
    containers: list[_Named] = msgspec.field(default_factory=list)
    init_containers: list[_Named] = msgspec.field(default_factory=list)
    volumes: list[_Named] = msgspec.field(default_factory=list)
    security_context: dict[str, Any] | None = None
    node_selector: dict[str, str] | None = None
    termination_grace_period_seconds: int | None = None


class _Overlay(PartialObject, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


def overlay_problem(over: dict[str, Any]) -> str:
    """Return which part of a pod template has the wrong form; empty if none.

    An overlay can add to what the brokers' template needs (its metadata, containers and volumes), but not
    remove it.
    """
    try:
        msgspec.convert(over, _Overlay)
    except msgspec.ValidationError as error:
        return str(error).replace("`$.", "`").replace("`", "")
    return ""


def merge_template(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge ``over`` into ``base``.

    Parameters
    ----------
    base, over
        Decoded JSON; neither is changed.
    """
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(key, merged.get(key), value)
    return merged


def _merge(field: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return merge_template(old if isinstance(old, dict) else {}, new)
    if not isinstance(new, list) or not isinstance(old, list):
        return new
    if field in _APPENDED:
        return [*old, *(each for each in new if each not in old)]
    key = _KEYS.get(field)
    if key is None or not all(isinstance(each, dict) and key in each for each in (*old, *new)):
        return new
    named = {each[key]: each for each in old}
    for each in new:
        named[each[key]] = merge_template(named.get(each[key], {}), each)
    return list(named.values())
