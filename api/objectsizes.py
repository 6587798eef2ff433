"""How much of one object is kept in memory, whoever wrote it.

The API server accepts objects of 1.5 MiB of its own encoding. A list of 200,000 tolerations fits into that,
and takes 29 MiB as Python objects; so do a million bytes of labels, on any object and at any time. No real
pod comes near these bounds. What is beyond them is dropped where the object is decoded, so the memory that a
number of objects takes is bounded (docs/capacity.md).

- Of labels, the first ones stay, and all that the project reads. Of owners, the first ones and the
  controller.
- An annotation that is read is cut. Nothing that is cut can be read as what it asks for, so its work waits
  with a sentence.
- A spec that is too long keeps what it requests and where it runs: it still counts on its node. Its rules
  about nodes become one that no node meets (`is_cut`), and its work waits as `InvalidRequest`.
- A MiniCluster with more than any has (`too_large`) keeps its numbers, and the sentence that its status says:
  its Job stays as it is.
- Of claims, objects with the size of a gang, budgets of disruption and the like, one that is too long is not
  read at all (`too_long`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

from fluxqueue.api import names
from fluxqueue.api.annotations import READ_ANNOTATIONS
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import MiniClusterSpec
from fluxqueue.api.pods import Container, PodSpec, ResourceRequirements
from fluxqueue.api.requests import InvalidRequest, pod_requests
from fluxqueue.api.storedjson import StoredJson, plain, stored

__all__ = [
    "LONGEST_RULES",
    "MOST_LABELS",
    "MOST_OF_SPEC",
    "bound_metadata",
    "bounded_minicluster",
    "bounded_spec",
    "is_cut",
    "too_large",
    "too_long",
]

LONGEST_RULES: Final = 16_384
"""Bytes of a pod's own rules about nodes: they are checked for each node."""
MOST_OF_SPEC: Final = 49_152
"""Bytes of all that is read of a spec, as JSON without blanks;
its affinity, which is compressed, does not count."""
MOST_LABELS: Final = 256
_MOST_OWNERS: Final = 256
_MOST_FINALIZERS: Final = 64
_MOST_RESOURCES: Final = 64
_LONGEST_ANNOTATION: Final = 1_024
_LONGEST_OF: Final = {names.AFTER_ANNOTATION: 32_768, names.INJECTION_ANNOTATION: 32_768}
_WHOLE: Final = frozenset((*names.ALLOCATION_ANNOTATIONS, names.ACKNOWLEDGED_ANNOTATION))
"""What only the queue writes: policies refuse it of others."""
_LONGEST_TEXT: Final = 262_144
_ALL_TEXT: Final = 524_288
_MOST_ENTRIES: Final = 1_000
_MOST_VALUES: Final = 10_000
_DEEPEST: Final = 32
_PATH_SHOWN: Final = 200
_NUL: Final = "\0"
_NO_NODE: Final = {"nodeSelectorTerms": [], "": "x" * LONGEST_RULES}
_CUT: Final = stored({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _NO_NODE}})
"""No node has it, so a pod that is matched by what is left of its spec runs nowhere."""


def bound_metadata(meta: ObjectMeta) -> None:
    """Drop what is too much from the metadata of an object that has just been decoded."""
    if meta.labels is not None and len(meta.labels) > MOST_LABELS:
        first = [*meta.labels][:MOST_LABELS]
        kept = {
            key: meta.labels[key] for key in dict.fromkeys((*first, *READ_ANNOTATIONS)) if key in meta.labels
        }
        msgspec.structs.force_setattr(meta, "labels", kept)
    for key, text in (meta.annotations or {}).items():
        longest = _LONGEST_OF.get(key, _LONGEST_ANNOTATION)
        if len(text) > longest and key not in _WHOLE and meta.annotations is not None:
            meta.annotations[key] = text[: longest + 1]
    if meta.owner_references is not None and len(meta.owner_references) > _MOST_OWNERS:
        controller = [owner for owner in meta.owner_references if owner.controller][:1]
        msgspec.structs.force_setattr(
            meta, "owner_references", [*controller, *meta.owner_references[:_MOST_OWNERS]]
        )
    if meta.finalizers is not None and len(meta.finalizers) > _MOST_FINALIZERS:
        msgspec.structs.force_setattr(meta, "finalizers", meta.finalizers[:_MOST_FINALIZERS])


def bounded_spec(spec: PodSpec) -> PodSpec:
    """Return the same spec, or what is kept of one that is too long."""
    affinity = spec.affinity.size if isinstance(spec.affinity, StoredJson) else 0
    if (
        len(
            msgspec.json.encode(
                spec if not affinity else msgspec.structs.replace(spec, affinity=None), enc_hook=plain
            )
        )
        <= MOST_OF_SPEC
    ):
        return spec
    return PodSpec(
        containers=[Container(name="all", resources=ResourceRequirements(requests=_requests(spec)))],
        node_name=spec.node_name,
        affinity=_CUT,
        scheduling_gates=(spec.scheduling_gates or [])[:_MOST_RESOURCES] or None,
        scheduler_name=spec.scheduler_name,
        restart_policy=spec.restart_policy,
        priority_class_name=spec.priority_class_name,
        priority=spec.priority,
        active_deadline_seconds=spec.active_deadline_seconds,
    )


def bounded_minicluster(spec: MiniClusterSpec) -> MiniClusterSpec:
    """Return the same spec, or what is kept of one that is too large:
    its numbers, and why the rest is not known.
    """
    if len(msgspec.json.encode(spec)) <= MOST_OF_SPEC or not (problem := too_large(spec)):
        return spec
    return MiniClusterSpec(
        size=spec.size,
        max_size=spec.max_size,
        min_size=spec.min_size,
        deadline_seconds=spec.deadline_seconds,
        cleanup=spec.cleanup,
        form_timeout_seconds=spec.form_timeout_seconds,
        pod_template={_NUL: problem},
    )


def is_cut(spec: PodSpec) -> bool:
    """True if a spec was too long, so that only a part of it is known."""
    return spec.affinity is not None and spec.affinity == _CUT


def too_long(obj: object, most: int) -> str:
    """Return why an object is not read at all, as more of it would be kept than ``most`` bytes of JSON;
    empty if it is read.
    """
    size = len(msgspec.json.encode(obj, enc_hook=plain))
    return f"what is read of it has {size} bytes, and no more than {most} are kept" if size > most else ""


def too_large(spec: MiniClusterSpec) -> str:
    """Return which limit of the whole a spec exceeds; empty if none.

    Returns
    -------
    str
        One sentence with the field's path and the remedy. Unless it is empty, no other code may read the
        spec.
    """
    if isinstance(problem := (spec.pod_template or {}).get(_NUL), str):
        return problem  # which was found when it was cut
    text = values = 0
    waiting: list[tuple[str, Any, int]] = [("spec", msgspec.to_builtins(spec), 0)]
    while waiting:
        path, value, depth = waiting.pop()
        values += 1
        if isinstance(value, str):
            text += len(value)
            if len(value) > _LONGEST_TEXT:
                return (
                    f"{_shown(path)} is {len(value)} characters long: use at most {_LONGEST_TEXT}, "
                    "and a volume for more"
                )
            if _NUL in value:
                return f"{_shown(path)} contains a NUL character, which no program can be given: remove it"
        elif isinstance(value, dict | list):
            if len(value) > _MOST_ENTRIES:
                return f"{_shown(path)} has {len(value)} entries: use at most {_MOST_ENTRIES}"
            if depth == _DEEPEST:
                return f"{_shown(path)} is nested more than {_DEEPEST} deep: no pod has such a field"
            if isinstance(value, dict):
                text += sum(map(len, value))
                if any(_NUL in key for key in value):
                    return f"{_shown(path)} has a name that contains a NUL character: remove it"
                waiting += [(f"{path}.{key[:64]}", each, depth + 1) for key, each in value.items()]
            else:
                waiting += [(f"{path}[{place}]", each, depth + 1) for place, each in enumerate(value)]
        if values > _MOST_VALUES:
            return (
                f"spec has more than {_MOST_VALUES} values: make it smaller, "
                "and keep what is large in ConfigMaps or volumes"
            )
        if text > _ALL_TEXT:
            return (
                f"spec has more than {_ALL_TEXT} characters: make it smaller, "
                "and keep what is large in ConfigMaps or volumes"
            )
    return ""


def _shown(path: str) -> str:
    return path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}..."


def _requests(spec: PodSpec) -> dict[str, str | int | float]:
    """Return what all containers request together, of so many resources: cpu and memory first."""
    try:
        amounts = pod_requests(spec)
    except InvalidRequest:
        return {}
    ordered = sorted(amounts, key=lambda name: (name not in ("cpu", "memory"), name))
    return {name: _text(amounts[name]) for name in ordered[:_MOST_RESOURCES]}


def _text(amount: Decimal) -> str:
    return f"{amount:f}"
