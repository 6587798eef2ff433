"""PodGroup of the scheduler plugins (``scheduling.x-k8s.io/v1alpha1``): pods name it by a label, and it says
how many start together.

``scheduleTimeoutSeconds`` is how long the plugin holds nodes for an incomplete group. The queue holds none.
It reports a group that is incomplete for so long. ``minResources`` is not read: the requests of the pods
count.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.sources.gang_sources import (
    ANY_ROLE,
    Gang,
    GangSource,
    Resource,
    Role,
    SizedObject,
    named,
    whole_number,
)

__all__ = ["SCHEDULER_PLUGINS"]

_LABEL = "scheduling.x-k8s.io/pod-group"


class _Spec(PartialObject, frozen=True):
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None


class _PodGroup(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return named(pod.metadata.label(_LABEL))


def _read(_pods: Sequence[Pod], group: _PodGroup) -> Gang:
    size = whole_number(group.spec.min_member, "spec.minMember")
    late_s = group.spec.schedule_timeout_seconds
    return Gang((Role(ANY_ROLE, size),), late_after_s=float(late_s) if late_s and late_s > 0 else None)


SCHEDULER_PLUGINS = GangSource(
    name="scheduler-plugins",
    api_version="scheduling.x-k8s.io/v1alpha1",
    kind="PodGroup",
    group_of=_group_of,
    read=_read,
    marks=frozenset({_LABEL}),
    resource=Resource("scheduling.x-k8s.io", "podgroups", "PodGroup", ("v1alpha1",), _PodGroup),
    counts_succeeded=False,
)
