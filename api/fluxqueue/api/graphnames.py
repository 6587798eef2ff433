"""What Kubernetes things are called in the resource graph.

The node side (graph) and the request side (jobspec, constraint) must spell alike, so both take the words from here.
"""

from __future__ import annotations

import re
from typing import Final

from fluxqueue.api.objects import Taint

__all__ = ["CPU", "GPU", "MEMORY", "POD_SLOTS", "label_property", "resource_type", "taint_property"]

CPU: Final = "cpu"
"""Vertices of this type are measured in millicores."""
MEMORY: Final = "memory"
"""Measured in MiB."""
GPU: Final = "gpu"
POD_SLOTS: Final = "pods"
"""Every pod takes one."""

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_NOT_TYPE = re.compile(r"[^A-Za-z0-9_-]+")


def resource_type(name: str) -> str:
    """The vertex type that stands for a Kubernetes resource.

    Parameters
    ----------
    name
        For example ``cpu``, ``nvidia.com/gpu`` or ``example.com/fpga``.

    Returns
    -------
    str
        ``cpu``, ``memory``, ``pods``; ``gpu`` for the whole GPUs of the known vendors; else the name with every run of characters that
        a jobspec type may not hold replaced by ``_`` (``example_com_fpga``).
    """
    return GPU if name in _GPUS else _NOT_TYPE.sub("_", name)


def label_property(key: str, value: str) -> str:
    """The property a node with this label has (beside the bare key)."""
    return f"{key}={value}"


def taint_property(taint: Taint) -> str:
    """The property a node with this taint has."""
    return f"taint:{taint.key}={taint.value}:{taint.effect}"
