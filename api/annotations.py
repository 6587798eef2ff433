"""The annotations that are read; all others are dropped while what people of a namespace create is decoded.

Anybody who creates an object may put 256 KiB of annotations on it and on its template, and tools do:
``kubectl apply`` repeats the whole object in one. The queue keeps these objects in memory, but reads few of
their annotations.
"""

from __future__ import annotations

from typing import Final

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta

__all__ = ["READ_ANNOTATIONS", "forget_unread"]

_OF_OTHERS: Final = (
    "kueue.x-k8s.io/pod-group-total-count",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/size",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "volume.kubernetes.io/selected-node",
)
"""How other projects describe gangs (`fluxqueue.queue.model.sources`),
and for which node a volume is provisioned."""

READ_ANNOTATIONS: Final = frozenset(
    (*(text for name, text in vars(names).items() if name.isupper() and isinstance(text, str)), *_OF_OTHERS)
)
"""All that is named in `fluxqueue.api.names`, and what belongs to other projects."""


def forget_unread(meta: ObjectMeta) -> None:
    """Remove annotations that nobody reads from the metadata of an object that has just been decoded.

    The map itself stays, also if it becomes empty: a patch that adds an annotation must know that there are
    some.
    """
    annotations = meta.annotations
    if annotations and not READ_ANNOTATIONS.issuperset(annotations):
        for key in [key for key in annotations if key not in READ_ANNOTATIONS]:
            del annotations[key]
