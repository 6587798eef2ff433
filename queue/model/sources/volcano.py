"""Volcano's PodGroup (``scheduling.volcano.sh/v1beta1``): pods name it by the annotation
``scheduling.k8s.io/group-name``.

Only ``spec.minMember`` is read. The roles of ``minTaskMember`` count there too, and the requests of the pods
count instead of ``minResources``.
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

__all__ = ["VOLCANO"]

_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")


class _Spec(PartialObject, frozen=True):
    min_member: int | None = None


class _PodGroup(SizedObject, frozen=True):
    spec: _Spec = _Spec()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return next((name for key in _ANNOTATIONS if (name := named(pod.metadata.annotation(key)))), None)


def _read(_pods: Sequence[Pod], group: _PodGroup) -> Gang:
    return Gang(
        (Role(ANY_ROLE, max(whole_number(group.spec.min_member, "spec.minMember", least=0, default=1), 1)),)
    )


VOLCANO = GangSource(
    name="volcano",
    api_version="scheduling.volcano.sh/v1beta1",
    kind="PodGroup",
    group_of=_group_of,
    read=_read,
    marks=frozenset(_ANNOTATIONS),
    resource=Resource("scheduling.volcano.sh", "podgroups", "PodGroup", ("v1beta1",), _PodGroup),
)
