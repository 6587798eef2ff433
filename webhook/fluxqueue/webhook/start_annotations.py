"""Checks of the annotations that say what must have happened before a workload may start.

The webhook knows only the object itself. Whether the other objects exist, and whether they can still do what is awaited, the queue finds
out and shows on the FluxJob.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.api import names
from fluxqueue.api.dependencies import DependencyKind, InvalidDependencies, is_object_name, parse_dependencies
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.starttimes import InvalidStartTime, read_start_time

__all__ = ["start_problems"]

_KINDS = {"Job": DependencyKind.JOB, "MiniCluster": DependencyKind.MINICLUSTER}


def start_problems(kind: str, meta: ObjectMeta) -> Iterator[str]:
    """Yield a sentence for each annotation that cannot be read, beginning with the annotation.

    Parameters
    ----------
    kind, meta
        Of the object.
    """
    if (text := meta.annotation(names.AFTER_ANNOTATION)) is not None:
        yield from (f"annotation {names.AFTER_ANNOTATION}: {problem}" for problem in _after(text, kind, meta.name))
    if (text := meta.annotation(names.BEGIN_ANNOTATION)) is not None:
        try:
            read_start_time(text)
        except InvalidStartTime as error:
            yield f"annotation {names.BEGIN_ANNOTATION}: {error}"
    singleton = meta.annotation(names.SINGLETON_ANNOTATION)
    if singleton is not None and not is_object_name(singleton):
        yield f"annotation {names.SINGLETON_ANNOTATION}: {singleton[:80]!r} is not a name: write letters, digits, '-', '_' and '.'"


def _after(text: str, kind: str, name: str) -> Iterator[str]:
    try:
        dependencies = parse_dependencies(text)
    except InvalidDependencies as error:
        yield str(error)
        return
    own = [each for each in dependencies if name and each.kind is _KINDS.get(kind) and each.name == name]
    if own:
        yield f"'{own[0]}' is the object itself, so it would wait for ever: name another one"
