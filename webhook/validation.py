"""Validation of objects of our own kinds: the rules that a schema cannot express, kind by kind.

``/validate`` receives CREATE and UPDATE. The API server has checked types, enums and the CEL rules of the CRD
before. The remaining rules need to understand the text of a field (is this a label? can a pod have this
name?). Each kind has one pure function from the object to `ObjectProblems`, and `RULES` lists them. A new
kind needs one line there, and its resource in the chart's ValidatingWebhookConfiguration.

An object that was stored before a rule existed must remain editable. On an update, a problem that its former
state already had is a warning, not an error. An object that is being deleted always passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.webhook.decisions import AdmissionOutcome, AdmissionRefusal, AdmissionSettings, Decision
from fluxqueue.webhook.fluxqueues import validate_fluxqueue
from fluxqueue.webhook.fluxreservations import validate_fluxreservation
from fluxqueue.webhook.miniclusters import validate_minicluster, validate_minicluster_edit
from fluxqueue.webhook.problems import ObjectProblems
from fluxqueue.webhook.reviews import Review, decode

__all__ = ["RULES", "Rule", "validate"]

_OPERATIONS = frozenset({"CREATE", "UPDATE"})


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind is validated.

    Attributes
    ----------
    kind
        The struct of its objects; it has ``metadata``.
    validate
        From such a struct, and the settings, to `ObjectProblems`.
    validate_edit
        From the former and the new object to the errors of the change itself; None if every change can be
        applied.
    """

    kind: type[Any]
    validate: Callable[[Any, AdmissionSettings], ObjectProblems]
    validate_edit: Callable[[Any, Any], tuple[str, ...]] | None = None


RULES: Mapping[tuple[str, str], Rule] = {
    (names.GROUP, "FluxQueue"): Rule(FluxQueue, validate_fluxqueue),
    (names.GROUP, "FluxReservation"): Rule(FluxReservation, validate_fluxreservation),
    (names.MINICLUSTER_GROUP, "MiniCluster"): Rule(
        MiniCluster, validate_minicluster, validate_minicluster_edit
    ),
}
"""Rules by API group and kind."""


def validate(review: Review, settings: AdmissionSettings) -> Decision:
    """Decide one review of ``/validate``.

    Parameters
    ----------
    review
        The review, from `fluxqueue.webhook.reviews.read_review`.
    settings
        Whether a scheduler of ours is installed.

    Returns
    -------
    Decision
        Allowed, possibly with warnings, or refused with all errors in one message. Kinds and operations
        without a rule pass.

    Raises
    ------
    MalformedReview
        The object does not match its kind.
    """
    rule = RULES.get((review.group, review.kind))
    if rule is None or review.operation not in _OPERATIONS or review.subresource:
        return Decision(AdmissionOutcome.PASSED)
    obj = decode(_decoder(rule.kind), review.document, f"object of kind {review.kind}")
    if obj.metadata.deletion_timestamp is not None:
        return Decision(AdmissionOutcome.PASSED)
    problems = rule.validate(obj, settings)
    known: frozenset[str] = frozenset()
    edit: tuple[str, ...] = ()
    if review.operation == "UPDATE" and (problems.errors or rule.validate_edit is not None):
        former = decode(_decoder(rule.kind), review.former, f"former object of kind {review.kind}")
        known = frozenset(rule.validate(former, settings).errors) if problems.errors else known
        edit = rule.validate_edit(former, obj) if rule.validate_edit is not None else ()
    errors = [*(error for error in problems.errors if error not in known), *edit]
    if errors:
        where = f"{review.kind} {obj.metadata.namespace}/{obj.metadata.name}".replace(" /", " ")
        return Decision(
            AdmissionOutcome.REFUSED, refusal=AdmissionRefusal("Invalid", f"{where}: {'; '.join(errors)}")
        )
    return Decision(
        AdmissionOutcome.PASSED,
        warnings=(*(error for error in problems.errors if error in known), *problems.warnings),
    )


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    return decoder
