"""Upper bounds of what one object may request.

Kubernetes does not limit quantities: ``cpu: 19P`` is valid. The queue's numbers are limited: a count in a
jobspec has 32 bits, an amount in a message or a column has 64. So the request of each pod and of each
workload is bounded. The bounds of a pod are above the size of any node, and low enough that every product and
sum of them fits into 53 bits. A larger request is refused, with the name of its field, where the object is
read.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

__all__ = [
    "DEFAULT_MAX_PODS",
    "MAX_BYTES",
    "MAX_CPUS",
    "MAX_POD_SIZES",
    "MAX_UNITS",
    "MOST_PODS",
    "is_measured_in_bytes",
    "limit_pods",
    "max_pods",
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
DEFAULT_MAX_PODS: Final = 20_000
"""Pods that one workload may run at the same time, unless the installation says otherwise."""
MOST_PODS: Final = 100_000
"""The largest number that an installation may say:
the steps of a workload are linear in it, and larger ones were not tried."""
MAX_POD_SIZES: Final = 64
"""Different pod sizes that one workload may have. Each one makes a match more expensive."""


_max_pods = DEFAULT_MAX_PODS


def max_pods() -> int:
    """Return how many pods one workload may run at the same time."""
    return _max_pods


def limit_pods(most: int) -> None:
    """Set `max_pods` for this process: a program does it once, at its start, before it reads objects."""
    global _max_pods
    _max_pods = most


def too_many_pods(count: int) -> str:
    """Return why a workload of so many pods is refused; empty if it is not."""
    if count <= _max_pods:
        return ""
    return (
        f"it wants {count} pods at once, the most of one workload is {_max_pods} (queue.config.maxPods of "
        "the installation): "
        "lower its parallelism or replicas, or divide it"
    )


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
