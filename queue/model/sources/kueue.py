"""Kueue's pod groups: plain pods with the label ``kueue.x-k8s.io/pod-group-name`` and their number as an
annotation.

Pods that name a queue of Kueue (``kueue.x-k8s.io/queue-name``) are Kueue's, as all its work, and never reach
the queue. So these are groups that are written in Kueue's words for a cluster without Kueue, or for no queue
of its.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.sources.gang_sources import ANY_ROLE, Gang, GangSource, InvalidGang, Role, named

__all__ = ["KUEUE_POD_GROUPS"]

_NAME = "kueue.x-k8s.io/pod-group-name"
_COUNT = "kueue.x-k8s.io/pod-group-total-count"


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return named(pod.metadata.label(_NAME))


def _read(pods: Sequence[Pod], _object: None) -> Gang:
    counts: dict[int, str] = {}
    for pod in pods:
        text = pod.metadata.annotation(_COUNT)
        if text is None:
            raise InvalidGang(
                f"pod {pod.metadata.name} has no annotation {_COUNT}: "
                "write the number of pods of the group on each"
            )
        try:
            counts.setdefault(parse_group_size(text), pod.metadata.name)
        except InvalidGroupSize as error:
            raise InvalidGang(f"annotation {_COUNT} of pod {pod.metadata.name}: {error}") from error
    if len(counts) > 1:
        stated = ", ".join(f"{count} (pod {name})" for count, name in sorted(counts.items()))
        raise InvalidGang(f"its pods name different sizes, {stated}: write the same {_COUNT} on all")
    (count,) = counts
    return Gang((Role(ANY_ROLE, count),))


KUEUE_POD_GROUPS = GangSource(
    name="kueue",
    api_version="kueue.x-k8s.io/v1beta1",
    kind="PodGroup",
    group_of=_group_of,
    read=_read,
    marks=frozenset({_NAME}),
)
