"""The switch of an owner by which all its pods go and come again, where to evict them would count as
failures: ``suspend``.

The pods of a JobSet and of an MPIJob belong to Jobs, and each pod of a Job that is evicted is a failure of
that. Kubeflow's jobs have the same switch. A JobSet that a TrainJob controls is suspended through that,
because Trainer would set it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fluxqueue.api.metadata import ObjectMeta, OwnerReference, PartialObject
from fluxqueue.queue.model.sources.gang_sources import api_group

__all__ = ["HANDLES", "OwnerHandle", "SuspendableObject", "handle_of", "handle_of_owner", "is_suspended"]

_SPEC = ("suspend",)
_RUN_POLICY = ("runPolicy", "suspend")


class SuspendableObject(PartialObject, frozen=True):
    """An object that can be suspended; its spec stays decoded JSON."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OwnerHandle:
    """A kind that can be suspended, and the field of its spec that says so."""

    group: str
    version: str
    plural: str
    kind: str
    field: tuple[str, ...] = _SPEC

    def spec(self, *, suspend: bool) -> dict[str, Any]:
        """Return the part of a spec that sets the field."""
        value: Any = suspend
        for name in reversed(self.field):
            value = {name: value}
        return dict(value)


HANDLES: tuple[OwnerHandle, ...] = (
    OwnerHandle("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    OwnerHandle("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
    OwnerHandle("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", _RUN_POLICY),
    *(
        OwnerHandle("kubeflow.org", "v1", f"{kind.lower()}s", kind, _RUN_POLICY)
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
    ),
)
_BY_KIND = {(each.group, each.kind): each for each in HANDLES}


def handle_of(api_version: str, kind: str) -> OwnerHandle | None:
    """Return the handle of a workload's object; None if there is none."""
    return _BY_KIND.get((api_group(api_version), kind))


def handle_of_owner(owner: OwnerReference | None) -> OwnerHandle | None:
    """Return the handle of an owner; None if there is none."""
    return handle_of(owner.api_version, owner.kind) if owner is not None else None


def is_suspended(handle: OwnerHandle, obj: SuspendableObject) -> bool:
    """True if an object is suspended."""
    value: Any = obj.spec or {}
    for name in handle.field:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value is True
