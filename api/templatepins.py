"""A pod template that holds the one node of all its pods, so that nobody has to be asked when one of them is
created.

The release of a Job whose pods come one at a time writes the node into the template: as required node
affinity, which each pod then has from the beginning, and with the label ``fluxqueue/pinned``, which keeps the
admission webhook from being asked about these pods. Policies guard the label like the allocation beside it. A
pod of such a Job is never gated: it comes to the node of its Job's slot as long as the Job runs. So that slot
is not freed before the template is cleared, or the Job is over.

The pin is written only into a template without required node affinity of its own. A person who applies a
manifest again would replace that list, which a running Job refuses.

All functions are pure. The parts of affinity are decoded JSON, as in `fluxqueue.api.pods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import PodSpec, PodTemplateSpec

__all__ = ["affinity_patch_without_pin", "has_required_nodes", "is_pinned", "node_affinity", "without_pin"]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def is_pinned(meta: ObjectMeta) -> bool:
    """True for the metadata of a template that holds the node of its pods, and of such a pod."""
    return meta.label(names.PINNED_LABEL) == names.PINNED_VALUE


def has_required_nodes(spec: PodSpec) -> bool:
    """True if a pod has required node affinity."""
    return ((spec.affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED) is not None


def node_affinity(node: str) -> dict[str, Any]:
    """Return the required node affinity that ties a pod to exactly one node,
    to be merged into ``spec.affinity``.
    """
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [pin]}]}}}


def without_pin(template: PodTemplateSpec) -> PodTemplateSpec:
    """Return a template as it was before the node was written into it; the template itself if it holds none.

    What a person added to the affinity meanwhile stays.
    """
    if not is_pinned(template.metadata):
        return template
    labels = {
        key: value for key, value in (template.metadata.labels or {}).items() if key != names.PINNED_LABEL
    }
    return msgspec.structs.replace(
        template,
        metadata=msgspec.structs.replace(template.metadata, labels=labels),
        spec=msgspec.structs.replace(template.spec, affinity=_unpinned(template)),
    )


def affinity_patch_without_pin(template: PodTemplateSpec) -> dict[str, Any]:
    """Return the part of a strategic merge patch of a template's spec that removes the pin; empty if there is
    none.

    A part of the affinity that would be left empty is removed as well.
    """
    before, after = (
        template.spec.affinity,
        _unpinned(template) if is_pinned(template.metadata) else template.spec.affinity,
    )
    if before == after:
        return {}
    if after is None or before is None:
        return {"affinity": None}
    if "nodeAffinity" not in after:
        return {"affinity": {"nodeAffinity": None}}
    return {"affinity": {"nodeAffinity": {_REQUIRED: after["nodeAffinity"].get(_REQUIRED)}}}


def _unpinned(template: PodTemplateSpec) -> Mapping[str, Any] | None:
    affinity = template.spec.affinity or {}
    nodes = affinity.get("nodeAffinity") or {}
    required = nodes.get(_REQUIRED)
    if required is None:
        return template.spec.affinity
    pin = {
        "key": "metadata.name",
        "operator": "In",
        "values": [template.metadata.annotation(names.NODES_ANNOTATION)],
    }
    terms = [kept for term in required.get("nodeSelectorTerms") or () if (kept := _term_without(term, pin))]
    others = {key: value for key, value in nodes.items() if key != _REQUIRED}
    left = {**others, _REQUIRED: {"nodeSelectorTerms": terms}} if terms else others
    rest = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return {**rest, "nodeAffinity": left} if left else (rest or None)


def _term_without(term: dict[str, Any], pin: dict[str, Any]) -> dict[str, Any]:
    """Return a term without the pin; empty if nothing is left of it."""
    fields = [field for field in term.get("matchFields") or () if field != pin]
    rest = {key: value for key, value in term.items() if key != "matchFields"}
    return {**rest, "matchFields": fields} if fields else rest
