"""One pod template laid over another: whatever a pod may have, without a field in the MiniCluster for it.

Objects are merged member by member, ``null`` removes a member (RFC 7386), and lists that Kubernetes keys are merged by their key as its
strategic merge does. So ``podTemplate.spec.containers: [{name: lammps, env: [...]}]`` adds to the container that is there, and a
container of another name is one more. Lists without a key are replaced.
"""

from __future__ import annotations

from typing import Any

__all__ = ["lay_over"]

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


def lay_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge ``over`` into ``base``.

    Parameters
    ----------
    base, over
        Decoded JSON; neither is changed.

    Returns
    -------
    dict
        A new object.
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
        return lay_over(old if isinstance(old, dict) else {}, new)
    if not isinstance(new, list) or not isinstance(old, list):
        return new
    if field in _APPENDED:
        return [*old, *(each for each in new if each not in old)]
    key = _KEYS.get(field)
    if key is None or not all(isinstance(each, dict) and key in each for each in (*old, *new)):
        return new
    named = {each[key]: each for each in old}
    for each in new:
        named[each[key]] = lay_over(named.get(each[key], {}), each)
    return list(named.values())
