"""What all Kubernetes objects share: metadata, owners, conditions, label selectors; and Namespace and
PriorityClass.

The structs of this package describe the parts of objects that are read. Decoding only these fields is an
order of magnitude faster than decoding whole objects, and it drops managed fields at no cost. The structs are
partial, so they are never written back. Changes go out as patches of single fields, so a field that this
version does not know survives.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = [
    "LabelSelector",
    "LabelSelectorRequirement",
    "NamedObject",
    "Namespace",
    "ObjectCondition",
    "ObjectMeta",
    "OwnerReference",
    "PartialObject",
    "PartialObjectMetadata",
    "PriorityClass",
]


class PartialObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base class of the structs of API objects: camelCase names, and a default for each field that may be
    missing.

    What is decoded has no reference cycles, so the garbage collector need not look at it: of a hundred
    thousand waiting Jobs that takes seconds, in which no thread runs.
    """


class OwnerReference(PartialObject, frozen=True):
    """A reference from an object to its owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(PartialObject, frozen=True):
    """The metadata of an object; ``generation`` changes only with the spec."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    def label(self, key: str) -> str | None:
        """Return the value of a label; None if it is missing."""
        return (self.labels or {}).get(key)

    def annotation(self, key: str) -> str | None:
        """Return the value of an annotation; None if it is missing."""
        return (self.annotations or {}).get(key)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object; None if there is none."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class PartialObjectMetadata(PartialObject, frozen=True):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


class NamedObject(PartialObjectMetadata, frozen=True):
    """An object of which it is known that it is there, and no annotation that is not ours."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)


class LabelSelectorRequirement(PartialObject, frozen=True):
    """One requirement of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(PartialObject, frozen=True):
    """A selector of objects by their labels."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class ObjectCondition(PartialObject, frozen=True):
    """A condition in the status of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Namespace(PartialObject, frozen=True):
    """A Namespace; only its labels are used."""

    metadata: ObjectMeta = ObjectMeta()


class PriorityClass(PartialObject, frozen=True):
    """A PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
