"""The variables of a container: fields of the pod, ConfigMaps and Secrets, and references to each other.

Everything here is pure: the objects that variables name are given as texts, and what is missing is an error
that names the variable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fluxqueue.api.quantities import parse_quantity
from fluxqueue.local.kubelet.specs import Container, EnvVar, PodObject
from fluxqueue.local.kubelet.volume_specs import FieldRef, ResourceRef

__all__ = ["MissingSource", "PodFacts", "container_variables", "expand", "field_text", "resource_text"]

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class MissingSource(Exception):
    """A ConfigMap, a Secret, a key or a field does not exist; the message names it."""


@dataclass(frozen=True)
class PodFacts:
    """What the node decides about a pod.

    Attributes
    ----------
    pod_ip, host_ip
        Its address, and that of the node.
    capacity
        The allocatable resources of the node, which stand for limits that are not set.
    """

    pod_ip: str
    host_ip: str
    capacity: Mapping[str, str] = field(default_factory=dict)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``, as the kubelet does: an unknown name is kept, and ``$$`` is one ``$``."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text)


def field_text(pod: PodObject, facts: PodFacts, reference: FieldRef) -> str:
    """Return a field of the pod.

    Raises
    ------
    MissingSource
        The downward API has no such field.
    """
    meta, path = pod.metadata, reference.field_path
    if entry := _ENTRY.fullmatch(path):
        return ((meta.labels if entry[1] == "labels" else meta.annotations) or {}).get(entry[2], "")
    texts: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: _pairs(meta.labels),
        "metadata.annotations": lambda: _pairs(meta.annotations),
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.podIP": lambda: facts.pod_ip,
        "status.podIPs": lambda: facts.pod_ip,
        "status.hostIP": lambda: facts.host_ip,
        "status.hostIPs": lambda: facts.host_ip,
    }
    if path not in texts:
        raise MissingSource(f"the downward API has no field {path}")
    return texts[path]()


def _pairs(values: Mapping[str, str] | None) -> str:
    return "\n".join(f'{key}="{_quoted(value)}"' for key, value in sorted((values or {}).items()))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_text(pod: PodObject, facts: PodFacts, container: Container, reference: ResourceRef) -> str:
    """Return a request or limit in units of its divisor, rounded up; a limit that is not set is the node's
    allocatable.

    Raises
    ------
    MissingSource
        It names another container that does not exist, or no request or limit.
    """
    if reference.container_name:
        everyone = (*(pod.spec.init_containers or ()), *pod.spec.containers)
        found = next((each for each in everyone if each.name == reference.container_name), None)
        if found is None:
            raise MissingSource(f"there is no container {reference.container_name}")
        container = found
    section, _, name = reference.resource.partition(".")
    if section not in ("requests", "limits") or not name:
        raise MissingSource(f"{reference.resource} is neither a request nor a limit")
    limits = container.resources.limits or {}
    if section == "limits":
        amount = limits.get(name, facts.capacity.get(name, "0"))
    else:
        amount = (container.resources.requests or {}).get(name, limits.get(name, "0"))
    divisor = parse_quantity(reference.divisor if reference.divisor not in ("", "0") else "1")
    return str(math.ceil(parse_quantity(amount) / divisor))


def container_variables(
    pod: PodObject,
    container: Container,
    facts: PodFacts,
    base: Mapping[str, str],
    sources: Mapping[tuple[str, str], Mapping[str, str] | None],
) -> dict[str, str]:
    """Return the variables of a container.

    Parameters
    ----------
    pod, container, facts
        Whose variables.
    base
        What every container has.
    sources
        The texts of each ConfigMap and Secret that it names, by (``configmaps`` or ``secrets``, name); None
        for one that does not exist.

    Raises
    ------
    MissingSource
        Something that is not optional does not exist.
    """
    found = dict(base)
    for each in container.env_from or ():
        for kind, source in (("configmaps", each.config_map_ref), ("secrets", each.secret_ref)):
            if source is None:
                continue
            texts = sources.get((kind, source.name))
            if texts is None and not source.optional:
                raise MissingSource(f"{kind.removesuffix('s')} {source.name} does not exist")
            found |= {
                each.prefix + key: text
                for key, text in (texts or {}).items()
                if _NAME.fullmatch(each.prefix + key)
            }
    for variable in container.env or ():
        value = _value(pod, container, facts, variable, found, sources)
        if value is not None:
            found[variable.name] = value
    return found


def _value(
    pod: PodObject,
    container: Container,
    facts: PodFacts,
    variable: EnvVar,
    before: Mapping[str, str],
    sources: Mapping[tuple[str, str], Mapping[str, str] | None],
) -> str | None:
    origin = variable.value_from
    if origin is None:
        return expand(variable.value, before)
    if origin.field_ref is not None:
        return field_text(pod, facts, origin.field_ref)
    if origin.resource_field_ref is not None:
        return resource_text(pod, facts, container, origin.resource_field_ref)
    for kind, reference in (("configmaps", origin.config_map_key_ref), ("secrets", origin.secret_key_ref)):
        if reference is None:
            continue
        texts = sources.get((kind, reference.name))
        text = (texts or {}).get(reference.key)
        if text is None and not reference.optional:
            problem = "does not exist" if texts is None else f"has no key {reference.key}"
            raise MissingSource(
                f"variable {variable.name}: {kind.removesuffix('s')} {reference.name} {problem}"
            )
        return text
    raise MissingSource(
        f"variable {variable.name}: its origin is of a kind that nodes of processes do not know"
    )
