"""Upper bounds of what one object may request.

Kubernetes does not limit quantities: ``cpu: 19P`` is valid. The queue's numbers are limited: a count in a jobspec has 32 bits, an amount
in a message or a column has 64. So the request of each pod and of each workload is bounded. The bounds of a pod are above the size of any
node, and low enough that every product and sum of them fits into 53 bits. A larger request is refused, with the name of its field,
where the object is read.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

__all__ = [
    "MAX_BYTES",
    "MAX_CPUS",
    "MAX_PODS",
    "MAX_POD_SIZES",
    "MAX_UNITS",
    "is_measured_in_bytes",
    "maximum",
    "maximum_text",
    "too_many_pods",
]

MAX_CPUS: Final = 1_000_000
"""Cores that one pod may request."""
MAX_BYTES: Final = 2**50
"""Bytes of memory, ephemeral storage or huge pages that one pod may request: 1 PiB of each."""
MAX_UNITS: Final = 1_000_000_000
"""Units of any other resource that one pod may request."""
MAX_PODS: Final = 20_000
"""Pods that one workload may run at the same time: its steps are at most linear in this number, and short for others beside it."""
MAX_POD_SIZES: Final = 64
"""Different pod sizes that one workload may have. Each one makes a match more expensive."""


def too_many_pods(count: int) -> str:
    """Return why a workload of so many pods is refused; empty if it is not."""
    if count <= MAX_PODS:
        return ""
    return f"it wants {count} pods at once, the most of one workload is {MAX_PODS}: lower its parallelism or replicas, or divide it"


def is_measured_in_bytes(resource: str) -> bool:
    """True if a resource is measured in bytes."""
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def maximum(resource: str) -> Decimal:
    """Return the largest request of a resource that one pod may have, in its base unit."""
    if resource == "cpu":
        return Decimal(MAX_CPUS)
    return Decimal(MAX_BYTES if is_measured_in_bytes(resource) else MAX_UNITS)


def maximum_text(resource: str) -> str:
    """Return `maximum` in the form that people write in a manifest."""
    return "1Pi" if is_measured_in_bytes(resource) else str(maximum(resource))
