"""What a workload waits for, as people write it: ``ok:job/prepare, any:pod-group/mesh,
start:minicluster/server+5m``.

Each entry is a condition, a kind, a name in the same namespace, and optionally a delay. All entries must be
satisfied. The conditions are those of Slurm under shorter names: ``ok`` is afterok, ``any`` is afterany,
``fail`` is afternotok, ``start`` is after.
"""

from __future__ import annotations

import enum
import re

import msgspec

from fluxqueue.api.durations import InvalidDuration, parse_duration

__all__ = [
    "MAX_DEPENDENCIES",
    "DependencyCondition",
    "DependencyKind",
    "InvalidDependencies",
    "WorkloadDependency",
    "is_object_name",
    "parse_dependencies",
]

MAX_DEPENDENCIES = 1_000
"""Entries in one annotation."""
_LONGEST_TEXT = 32_768
"""So much of the annotation is kept in memory (`fluxqueue.api.objectsizes`)."""
_LONGEST_NAME = 253
_SHOWN = 80

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENTRY = re.compile(
    r"(?P<condition>[^:/+\s]+)\s*:\s*(?P<kind>[^:/+\s]+)/(?P<name>[^:/+\s]+)(?:\+(?P<delay>[^+\s]+))?"
)
_FORM = (
    "write for example ok:job/NAME, any:pod-group/NAME or start:minicluster/NAME+10m, with commas in between"
)


class DependencyCondition(enum.StrEnum):
    """What must have happened to the other workload."""

    OK = "ok"
    """It ended with success."""
    ANY = "any"
    """It ended."""
    FAIL = "fail"
    """It ended without success: failed, cancelled or deleted."""
    START = "start"
    """All its pods were on their nodes, or it ended."""


class DependencyKind(enum.StrEnum):
    """What kind of object a name belongs to."""

    JOB = "job"
    POD_GROUP = "pod-group"
    MINICLUSTER = "minicluster"


class InvalidDependencies(ValueError):
    """The text is not a list of dependencies."""


class WorkloadDependency(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One entry.

    Attributes
    ----------
    condition, kind, name
        What must have happened to which object of the same namespace.
    delay_s
        Seconds from that event to the earliest start.
    """

    condition: DependencyCondition
    kind: DependencyKind
    name: str
    delay_s: int = 0

    def __str__(self) -> str:
        return f"{self.condition}:{self.kind}/{self.name}{f'+{self.delay_s}s' if self.delay_s else ''}"


def parse_dependencies(text: str) -> tuple[WorkloadDependency, ...]:
    """Parse the annotation ``fluxqueue/after``.

    Parameters
    ----------
    text
        Entries with commas in between; space around them is ignored. An empty text has none. A repeated entry
        counts once.

    Returns
    -------
    tuple of WorkloadDependency
        In the order of the text.

    Raises
    ------
    InvalidDependencies
        With the entry, what is wrong with it, and the accepted forms.
    """
    if len(text) > _LONGEST_TEXT:
        raise InvalidDependencies(
            f"it has more than {_LONGEST_TEXT} characters: no more are read, so name fewer objects"
        )
    if not text.strip():
        return ()
    entries = text.split(",")
    if len(entries) > MAX_DEPENDENCIES:
        raise InvalidDependencies(
            f"it has {len(entries)} entries: at most {MAX_DEPENDENCIES} are possible, "
            "so let one of them wait for the others"
        )
    return tuple(dict.fromkeys(_parse_entry(entry.strip()) for entry in entries))


def is_object_name(text: str) -> bool:
    """True if a Job, MiniCluster or pod group can have this name."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _parse_entry(entry: str) -> WorkloadDependency:
    shown = f"{entry[:_SHOWN]!r}"
    if (parts := _ENTRY.fullmatch(entry)) is None:
        raise InvalidDependencies(f"{shown} is not a dependency: {_FORM}")
    if (condition := parts["condition"]) not in list(DependencyCondition):
        raise InvalidDependencies(
            f"{shown}: {condition[:_SHOWN]!r} is no condition: write {_words(DependencyCondition)}"
        )
    if (kind := parts["kind"]) not in list(DependencyKind):
        raise InvalidDependencies(
            f"{shown}: nothing can wait for a {kind[:_SHOWN]!r}: write {_words(DependencyKind)}"
        )
    if not is_object_name(name := parts["name"]):
        raise InvalidDependencies(f"{shown}: no object can have the name {name[:_SHOWN]!r}: correct it")
    try:
        delay_s = parse_duration(parts["delay"]) if parts["delay"] is not None else 0
    except InvalidDuration as error:
        raise InvalidDependencies(f"{shown}: {error}") from None
    return WorkloadDependency(
        condition=DependencyCondition(condition), kind=DependencyKind(kind), name=name, delay_s=delay_s
    )


def _words(choices: type[enum.StrEnum]) -> str:
    *others, last = (str(choice) for choice in choices)
    return f"{', '.join(others)} or {last}"
