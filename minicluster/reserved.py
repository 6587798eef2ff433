"""Label and annotation keys that a MiniCluster may not set on its Job and pods.

The queue creates the Job of a MiniCluster with the labels and annotations of its spec. Keys that only the
queue may write (an allocation, the owner of a services pod), and keys that take pods out of the queue, must
not be set this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniClusterSpec

__all__ = ["reserved_problems"]

_RESERVED = frozenset(
    {
        *names.ALLOCATION_KEYS,
        names.SERVICES_OF_LABEL,
        names.EXEMPT_ANNOTATION,
        names.SUSPENDED_BY_ANNOTATION,
        names.SUBMITTED_BY_ANNOTATION,
    }
)


def reserved_problems(spec: MiniClusterSpec) -> Iterator[str]:
    """Yield a sentence for each reserved key."""
    metadata = _mapping((spec.pod_template or {}).get("metadata"))
    for path, entries in (
        ("spec.jobLabels", spec.job_labels),
        ("spec.pod.labels", spec.pod.labels),
        ("spec.pod.annotations", spec.pod.annotations),
        ("spec.podTemplate.metadata.labels", metadata.get("labels")),
        ("spec.podTemplate.metadata.annotations", metadata.get("annotations")),
    ):
        keys = _mapping(entries)
        for key in sorted(_RESERVED & keys.keys()):
            yield f"{path}: {key} is written by fluxqueue only: remove it"
        if keys.get(names.MANAGED_LABEL) == "false":
            yield (
                f"{path}: {names.MANAGED_LABEL} 'false' takes its pods out of the queue, "
                "which runs it: remove it"
            )
        if keys.get(names.KUEUE_QUEUE_LABEL):
            yield (
                f"{path}: {names.KUEUE_QUEUE_LABEL} gives its pods to another queue, "
                "and this one runs it: remove it"
            )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
