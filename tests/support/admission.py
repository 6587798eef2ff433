"""The webhook's decision as the API server gets it: from a review to the patched object."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import msgspec
from support.builders import USER, Builder, Json, make_review
from support.json_patches import apply_patch

from fluxqueue.webhook.decide import AdmissionSettings, Decision, decide
from fluxqueue.webhook.reviews import read_review

DEFAULTS = AdmissionSettings()
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Admitted:
    """The decision, and the object as the API server would store it."""

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
    """Return the patch as it is sent."""
    return list(msgspec.json.decode(msgspec.json.encode(decision.operations)))


def admit(
    thing: Builder | Json, *, user: str = USER, settings: AdmissionSettings = DEFAULTS, now: dt.datetime = NOW
) -> Admitted:
    """Decide on the creation of an object at this time, and apply the patch."""
    before = thing.build() if isinstance(thing, Builder) else thing
    decision = decide(read_review(make_review(before, user=user).body()), settings, now)
    return Admitted(decision, before, apply_patch(before, operations_of(decision)))
