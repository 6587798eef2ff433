"""PodDisruptionBudget (``policy/v1``), as far as the choice of work to preempt depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fluxqueue.api.metadata import ObjectMeta, PartialObject

__all__ = ["PodDisruptionBudget"]


class _Spec(PartialObject, frozen=True):
    selector: Mapping[str, Any] | None = None


class _Status(PartialObject, frozen=True):
    disruptions_allowed: int = 0


class PodDisruptionBudget(PartialObject, frozen=True):
    """A budget: which pods it selects (decoded JSON), and how many of them may be disrupted now."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    most_bytes: ClassVar[int] = 131_072

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()
