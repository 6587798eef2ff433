"""Whether an object of our own kinds makes sense: what a schema cannot say, judged kind by kind.

``/validate`` is asked about CREATE and UPDATE. The API server has checked types, enums and the CEL rules of the CRD by then; what is
left are rules that need the text of a field to be understood (is this a label? can a pod be named like that?). Each kind has one pure
function from the object to an `Opinion`, and `RULES` names them all: to add a kind is to add a line there, and its resource to the
chart's ValidatingWebhookConfiguration.

An object that was stored before a rule existed must not become impossible to touch: what its former state did wrong already is told as
a warning on an update, not as an error. An object that is being deleted always passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.webhook.decisions import Decision, Outcome, Refusal
from fluxqueue.webhook.fluxqueues import judge_fluxqueue
from fluxqueue.webhook.miniclusters import judge_minicluster, judge_minicluster_edit
from fluxqueue.webhook.opinions import Opinion
from fluxqueue.webhook.reviews import Review, decode

__all__ = ["RULES", "Rule", "validate"]

_OPERATIONS = frozenset({"CREATE", "UPDATE"})


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind is judged.

    Attributes
    ----------
    kind
        Struct its documents are decoded as; it has ``metadata``.
    judge
        From such a struct to an `Opinion`.
    judge_edit
        From what was stored and what is to be to the errors of the change itself, where not every change can be applied.
    """

    kind: type[Any]
    judge: Callable[[Any], Opinion]
    judge_edit: Callable[[Any, Any], tuple[str, ...]] | None = None


RULES: Mapping[tuple[str, str], Rule] = {
    (names.GROUP, "FluxQueue"): Rule(FluxQueue, judge_fluxqueue),
    (names.MINICLUSTER_GROUP, "MiniCluster"): Rule(MiniCluster, judge_minicluster, judge_minicluster_edit),
}
"""By API group and kind."""


def validate(review: Review) -> Decision:
    """Decide one review of ``/validate``.

    Parameters
    ----------
    review
        As `fluxqueue.webhook.reviews.read_review` returns it.

    Returns
    -------
    Decision
        Allowed, perhaps with warnings, or refused with every error in one message. Kinds and operations without a rule pass.

    Raises
    ------
    MalformedReview
        The object is not what its kind says.
    """
    rule = RULES.get((review.group, review.kind))
    if rule is None or review.operation not in _OPERATIONS or review.subresource:
        return Decision(Outcome.PASSED)
    found = decode(_decoder(rule.kind), review.document, f"object of kind {review.kind}")
    if found.metadata.deletion_timestamp is not None:
        return Decision(Outcome.PASSED)
    opinion = rule.judge(found)
    known: frozenset[str] = frozenset()
    edit: tuple[str, ...] = ()
    if review.operation == "UPDATE" and (opinion.errors or rule.judge_edit is not None):
        former = decode(_decoder(rule.kind), review.former, f"former object of kind {review.kind}")
        known = frozenset(rule.judge(former).errors) if opinion.errors else known
        edit = rule.judge_edit(former, found) if rule.judge_edit is not None else ()
    errors = [*(error for error in opinion.errors if error not in known), *edit]
    if errors:
        where = f"{review.kind} {found.metadata.namespace}/{found.metadata.name}".replace(" /", " ")
        return Decision(Outcome.REFUSED, refusal=Refusal("Invalid", f"{where}: {'; '.join(errors)}"))
    return Decision(Outcome.PASSED, warnings=(*(error for error in opinion.errors if error in known), *opinion.warnings))


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found
