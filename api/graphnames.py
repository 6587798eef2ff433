"""The names of Kubernetes resources, labels and taints in the resource graph.

The graph (nodes) and the jobspec (requests and constraints) must use the same names, so both take them from
here. Each resource name has its own vertex type, and the name can be derived from the type. So an
``amd.com/gpu`` is never allocated for an ``nvidia.com/gpu``. A type cannot contain a slash, because vertices
have paths; it has a colon instead, which no resource name contains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fluxqueue.api.nodes import Taint

__all__ = [
    "CPU",
    "MEMORY",
    "POD_SLOTS",
    "ROUGH",
    "SET",
    "device_resource",
    "display_name",
    "is_countable",
    "is_device",
    "is_gpu",
    "is_port",
    "is_port_of_address",
    "is_volume",
    "label_property",
    "port_resource",
    "resource_name",
    "resource_type",
    "taint_property",
    "taints_in",
    "volume_resource",
]

CPU: Final = "cpu"
"""Vertex type of cores; counted in millicores."""
MEMORY: Final = "memory"
"""Vertex type of memory; counted in MiB."""
POD_SLOTS: Final = "pods"
"""Vertex type of pod slots; each pod takes one."""

ROUGH: Final = "~"
"""End of the tag of devices of which the queue cannot check all that is asked."""
SET: Final = "+"
"""End of the tag of sets of devices that a claim gets together."""
_COLON: Final = "_"
"""Stands for the colons of an address of IPv6."""
_TAINT: Final = "taint:"
_ROUGHLY: Final = " (counted without some of what is asked of them)"
_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


def resource_type(name: str) -> str:
    """Return the vertex type of a Kubernetes resource; each resource has its own.

    Parameters
    ----------
    name
        For example ``cpu``, ``nvidia.com/gpu`` or ``example.com/fpga``.

    Returns
    -------
    str
        The name with ``:`` in place of each slash (``nvidia.com:gpu``).
    """
    return name.replace("/", ":")


def resource_name(kind: str) -> str:
    """Return the Kubernetes resource of a vertex type."""
    return kind.replace(":", "/")


def is_gpu(name: str) -> bool:
    """True if a Kubernetes resource counts whole GPUs of a known vendor."""
    return name in _GPUS


def port_resource(protocol: str, number: int, address: str = "") -> str:
    """Return the resource name of a port of a node, or of one of its addresses;
    no Kubernetes resource has two slashes.
    """
    return f"hostport/{protocol}/{number}" + (f"/{address.replace(':', _COLON)}" if address else "")


def volume_resource(driver: str) -> str:
    """Return the resource name of one attached volume of a CSI driver."""
    return f"volumes/csi/{driver}"


def device_resource(device_class: str, tag: str) -> str:
    """Return the resource name of one device of a class;
    the tag tells apart the requests that select among its devices.
    """
    return f"devices/{device_class}/{tag}"


def is_device(kind: str) -> bool:
    """True if a vertex type counts devices that pods claim."""
    return kind.startswith("devices:") and kind.count(":") == 2


def is_port(kind: str) -> bool:
    """True if a vertex type is a port of a node, or of one of its addresses."""
    return kind.startswith("hostport:") and kind.count(":") in (2, 3)


def is_port_of_address(kind: str) -> bool:
    """True if a vertex type is a port of one address of a node."""
    return kind.startswith("hostport:") and kind.count(":") == 3


def is_volume(kind: str) -> bool:
    """True if a vertex type counts the volumes of a CSI driver."""
    return kind.startswith("volumes:csi:")


def is_countable(kind: str) -> bool:
    """True if a vertex type counts something that nodes do not report:
    a port, the volumes of a CSI driver, or devices of a class.
    """
    return is_port(kind) or is_device(kind) or is_volume(kind)


def display_name(kind: str) -> str:
    """Return the name of a vertex type for messages."""
    if is_port(kind):
        _, protocol, number, *address = kind.split(":")
        return " on ".join(
            [f"host port {number}/{protocol}", *(each.replace(_COLON, ":") for each in address)]
        )
    if is_device(kind):
        _, device_class, tag = kind.split(":")
        sets = "sets of " if tag.removesuffix(ROUGH).endswith(SET) else ""
        return f"{sets}devices of class {device_class}" + (_ROUGHLY if tag.endswith(ROUGH) else "")
    return f"volumes of {kind.removeprefix('volumes:csi:')}" if is_countable(kind) else resource_name(kind)


def label_property(key: str, value: str) -> str:
    """Return the property of a node that has this label (the bare key is another property)."""
    return f"{key}={value}"


def taint_property(taint: Taint) -> str:
    """Return the property of a node that has this taint."""
    return f"{_TAINT}{taint.key}={taint.value}:{taint.effect}"


def taints_in(properties: Iterable[str]) -> list[Taint]:
    """Return the taints among the properties of a node."""
    taints = []
    for text in properties:
        if text.startswith(_TAINT):
            what, _, effect = text.removeprefix(_TAINT).rpartition(":")
            key, _, value = what.partition("=")
            taints.append(Taint(key=key, value=value, effect=effect))
    return taints
