"""Asking the webhook's decision as the API server would: review in, patched object out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from builders import USER, Builder, Json, make_review
from json_patches import apply_patch

from fluxqueue.webhook.decide import Decision, Settings, decide
from fluxqueue.webhook.reviews import read_review

DEFAULTS = Settings()


@dataclass(frozen=True)
class Admitted:
    """What was decided, and the object as the API server would store it."""

    decision: Decision
    before: Json
    after: Json

    @property
    def patch(self) -> list[dict[str, Any]]:
        return operations_of(self.decision)

    @property
    def labels(self) -> dict[str, str]:
        return self.after["metadata"].get("labels") or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.after["metadata"].get("annotations") or {}

    @property
    def gates(self) -> list[str]:
        return [gate["name"] for gate in self.after["spec"].get("schedulingGates") or []]

    @property
    def terms(self) -> list[dict[str, Any]]:
        affinity = (self.after["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        return list(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"])

    @property
    def sentence(self) -> str:
        assert self.decision.refusal is not None
        return self.decision.refusal.message


def operations_of(decision: Decision) -> list[dict[str, Any]]:
    """The patch as it goes over the wire."""
    return list(msgspec.json.decode(msgspec.json.encode(decision.operations)))


def admit(thing: Builder | Json, *, user: str = USER, settings: Settings = DEFAULTS) -> Admitted:
    """Decide about the creation of an object, and apply the patch."""
    before = thing.build() if isinstance(thing, Builder) else thing
    decision = decide(read_review(make_review(before, user=user).body()), settings)
    return Admitted(decision, before, apply_patch(before, operations_of(decision)))
