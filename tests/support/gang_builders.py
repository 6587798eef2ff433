"""Pods and objects of other projects, as their controllers write them, for tests of gangs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from support.builders import PodBuilder, make_pod
from support.queue_builders import EPOCH, a_pod

from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.groups import GatheredGroup
from fluxqueue.queue.model.sources.gang_sources import GangSource
from fluxqueue.queue.model.sources.gathering import GangPods, gather_gang_of_source

__all__ = ["gather", "pod_builder", "pods_of", "read_object"]


def pod_builder(
    name: str, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> PodBuilder:
    """Return a pod that waits, with these labels and annotations."""
    builder = make_pod(name).gate("fluxqueue").cpu("1").with_("spec.restartPolicy", "Never")
    for key, value in (labels or {}).items():
        builder = builder.label(key, value)
    for key, value in (annotations or {}).items():
        builder = builder.annotation(key, value)
    return builder


def pods_of(*builders: PodBuilder) -> list[Pod]:
    """Return the pods of builders; the uid of each is its name."""
    return [a_pod(builder, uid=builder.build()["metadata"]["name"]) for builder in builders]


def read_object(source: GangSource, spec: Any, **metadata: Any) -> Any:
    """Return the object of a source with this spec, decoded as the queue decodes it."""
    assert source.resource is not None
    return msgspec.convert(
        {"metadata": {"name": "x", "namespace": "default", "uid": "x", **metadata}, "spec": spec},
        source.resource.struct,
    )


def gather(
    source: GangSource,
    waiting: Sequence[Pod],
    owner: Any = None,
    others: Sequence[Pod] = (),
    waited_s: float = 0,
) -> GatheredGroup | None:
    """Gather a gang ``default/x`` that got its row this long ago."""
    pods = GangPods(source, f"{source.kind} default/x", waiting, others)
    return gather_gang_of_source(pods, owner, EPOCH, EPOCH + timedelta(seconds=waited_s))
