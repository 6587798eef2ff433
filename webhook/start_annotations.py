"""Checks of the annotations that say what must have happened before a workload may start.

The webhook knows only the object itself. Whether the other objects exist, and whether they can still do what
is awaited, the queue finds out and shows on the FluxJob.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fluxqueue.api import names
from fluxqueue.api.dependencies import DependencyKind, InvalidDependencies, is_object_name, parse_dependencies
from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.starttimes import InvalidStartTime, parse_start_time, read_start_time

__all__ = ["deadline_warnings", "start_problems"]

_KINDS = {"Job": DependencyKind.JOB, "MiniCluster": DependencyKind.MINICLUSTER}


def start_problems(kind: str, meta: ObjectMeta) -> Iterator[str]:
    """Yield a sentence for each annotation that cannot be read, beginning with the annotation."""
    if (text := meta.annotation(names.AFTER_ANNOTATION)) is not None:
        yield from (
            f"annotation {names.AFTER_ANNOTATION}: {problem}" for problem in _after(text, kind, meta.name)
        )
    for key in (names.BEGIN_ANNOTATION, names.DEADLINE_ANNOTATION):
        try:
            if (text := meta.annotation(key)) is not None:
                read_start_time(text)
        except InvalidStartTime as error:
            yield f"annotation {key}: {error}"
    singleton = meta.annotation(names.SINGLETON_ANNOTATION)
    if singleton is not None and not is_object_name(singleton):
        yield (
            f"annotation {names.SINGLETON_ANNOTATION}: {singleton[:80]!r} is not a name: "
            "write letters, digits, '-', '_' and '.'"
        )


def deadline_warnings(meta: ObjectMeta, now: datetime) -> tuple[str, ...]:
    """Return why the deadline of an object that is being created cannot be met by its own annotations,
    whatever the cluster does.

    Parameters
    ----------
    meta
        Of the object; what cannot be read is reported elsewhere.
    now
        The time, with a zone. Relative times count from it.
    """
    text, begin_text = meta.annotation(names.DEADLINE_ANNOTATION), meta.annotation(names.BEGIN_ANNOTATION)
    if text is None:
        return ()
    try:
        deadline = parse_start_time(text, now)
        begin = max(parse_start_time(begin_text, now), now) if begin_text is not None else now
        duration_text = meta.annotation(names.DURATION_ANNOTATION)
        end = begin + timedelta(seconds=parse_duration(duration_text) if duration_text is not None else 0)
    except (InvalidStartTime, InvalidDuration, OverflowError):
        return ()
    if end <= deadline:
        return ()
    first = f" from {names.BEGIN_ANNOTATION} on" if begin > now else ""
    remedy = "move the deadline, or shorten the duration"
    return (
        (
            f"annotation {names.DEADLINE_ANNOTATION}: by its duration{first} it ends at "
            f"{end:%Y-%m-%dT%H:%M:%SZ} at the earliest: {remedy}"
        ),
    )


def _after(text: str, kind: str, name: str) -> Iterator[str]:
    try:
        dependencies = parse_dependencies(text)
    except InvalidDependencies as error:
        yield str(error)
        return
    own = [each for each in dependencies if name and each.kind is _KINDS.get(kind) and each.name == name]
    if own:
        yield f"'{own[0]}' is the object itself, so it would wait for ever: name another one"
