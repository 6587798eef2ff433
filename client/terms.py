"""The terms of work: queue, priority, duration, and what it waits for. They are keys of its object, whatever
its kind.

Durations are `datetime.timedelta`, or text as in the annotation. Times are `datetime.datetime` with a time
zone, or a `timedelta` after the creation of the object. What it waits for is another workload, or text as in
``fluxqueue/after``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypedDict, runtime_checkable

from fluxqueue.api import names
from fluxqueue.api.dependencies import (
    DependencyCondition,
    DependencyKind,
    InvalidDependencies,
    WorkloadDependency,
    parse_dependencies,
)
from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.starttimes import InvalidStartTime, read_start_time
from fluxqueue.client.arguments import check_text, check_whole, many
from fluxqueue.client.errors import InvalidWork

__all__ = [
    "After",
    "Dependent",
    "Terms",
    "Time",
    "ended",
    "failed",
    "ok",
    "started",
    "with_lists",
    "with_terms",
]

Json = dict[str, Any]
Duration = timedelta | str
Time = datetime | timedelta | str


@runtime_checkable
class Dependent(Protocol):
    """Work that other work can wait for: a workload of the client."""

    @property
    def kind(self) -> str:
        """Kind of its object."""

    @property
    def name(self) -> str:
        """Name of its object."""

    @property
    def namespace(self) -> str:
        """Namespace of its object."""


After = str | Dependent | WorkloadDependency
"""One condition: ``ok:job/prepare``, or a workload that has to end with success,
or what `ok` and its siblings return."""


class Terms(TypedDict, total=False):
    """The terms that every submission accepts.

    Attributes
    ----------
    queue
        Name of the FluxQueue.
    priority
        Higher starts earlier.
    duration
        How long the work runs at most.
    after
        What must have started or ended before; a single condition, or several.
    begin
        The earliest start.
    deadline
        When it is to be done; it keeps nothing from starting.
    singleton
        Of the work of a namespace with this name, one runs at a time.
    """

    queue: str
    priority: int
    duration: Duration
    after: After | Iterable[After]
    begin: Time
    deadline: Time
    singleton: str


class _Placed(WorkloadDependency, frozen=True, omit_defaults=True, kw_only=True):
    """A condition that remembers the namespace of the workload from which it was made."""

    namespace: str = ""


_KINDS = {
    "Job": DependencyKind.JOB,
    "MiniCluster": DependencyKind.MINICLUSTER,
    "PodGroup": DependencyKind.POD_GROUP,
}


def ok(work: Dependent, delay: timedelta | None = None) -> WorkloadDependency:
    """Wait until other work has ended with success, and then for ``delay``."""
    return _dependency(DependencyCondition.OK, work, delay)


def ended(work: Dependent, delay: timedelta | None = None) -> WorkloadDependency:
    """Wait until other work has ended, in whatever way, and then for ``delay``."""
    return _dependency(DependencyCondition.ANY, work, delay)


def failed(work: Dependent, delay: timedelta | None = None) -> WorkloadDependency:
    """Wait until other work has ended without success, and then for ``delay``."""
    return _dependency(DependencyCondition.FAIL, work, delay)


def started(work: Dependent, delay: timedelta | None = None) -> WorkloadDependency:
    """Wait until all pods of other work are on their nodes, and then for ``delay``."""
    return _dependency(DependencyCondition.START, work, delay)


def with_lists(terms: Terms) -> Terms:
    """Return terms that can be read several times: `after` may be an iterator,
    and all of some workloads wait for what it yields.
    """
    after = terms.get("after")
    if after is None or isinstance(after, str | Dependent | WorkloadDependency):
        return terms
    return {**terms, "after": [*many("after", after, "a workload, or text such as 'ok:job/prepare'")]}


def with_terms(manifest: Json, terms: Terms) -> Json:
    """Return a manifest with terms.

    Parameters
    ----------
    manifest
        A Job, Pod or MiniCluster.
    terms
        Each replaces what the manifest says about it; None in a term leaves the manifest as it is.

    Raises
    ------
    InvalidWork
        A term cannot be read, or is not known.
    """
    given = {key: value for key, value in terms.items() if value is not None}
    if unknown := [key for key in given if key not in Terms.__annotations__]:
        raise InvalidWork(f"{unknown[0]}: no such term: write {', '.join(Terms.__annotations__)}")
    meta = dict(manifest.get("metadata") or {})
    flux = manifest.get("kind") == "MiniCluster"
    annotations = {
        **(meta.get("annotations") or {}),
        **_start_annotations(given, str(meta.get("namespace") or "")),
    }
    labels = dict(meta.get("labels") or {})
    spec = dict(manifest.get("spec") or {})
    if (queue := given.get("queue")) is not None:
        check_text("queue", queue, "night")
        (spec if flux else labels)["queue" if flux else names.QUEUE_LABEL] = str(queue)
    if (priority := given.get("priority")) is not None:
        check_whole("priority", priority)
        (spec if flux else annotations)["priority" if flux else names.PRIORITY_ANNOTATION] = (
            priority if flux else str(priority)
        )
    if (duration := given.get("duration")) is not None:
        (spec if flux else annotations)["duration" if flux else names.DURATION_ANNOTATION] = duration_text(
            duration
        )
    meta |= {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}
    return {**manifest, "metadata": meta, "spec": spec}


def duration_text(duration: Any) -> str:
    """Return a duration as the annotation has it, in seconds, rounded up.

    Raises
    ------
    InvalidWork
        It cannot be read, or is not positive.
    """
    if not isinstance(duration, timedelta | str):
        raise InvalidWork(f"duration: {duration!r} is neither a timedelta nor text such as 30m")
    text = duration if isinstance(duration, str) else str(math.ceil(duration.total_seconds()))
    try:
        return f"{parse_duration(text)}s"
    except InvalidDuration as error:
        raise InvalidWork(f"duration: {error}") from None


def _start_annotations(given: Json, namespace: str) -> dict[str, str]:
    annotations: dict[str, str] = {}
    if (after := given.get("after")) is not None:
        annotations[names.AFTER_ANNOTATION] = _after_text(after, namespace)
    for term, key in (("begin", names.BEGIN_ANNOTATION), ("deadline", names.DEADLINE_ANNOTATION)):
        if (time := given.get(term)) is not None:
            annotations[key] = _time_text(term, time)
    if (singleton := given.get("singleton")) is not None:
        annotations[names.SINGLETON_ANNOTATION] = str(singleton)
    return annotations


def _after_text(after: Any, namespace: str) -> str:
    entries = [after] if isinstance(after, str | Dependent | WorkloadDependency) else list(after)
    found: list[WorkloadDependency] = []
    for entry in entries:
        if isinstance(entry, WorkloadDependency):
            found.append(entry)
        elif isinstance(entry, str):
            try:
                found += parse_dependencies(entry)
            except InvalidDependencies as error:
                raise InvalidWork(f"after: {error}") from None
        elif isinstance(entry, Dependent):
            found.append(ok(entry))
        else:
            raise InvalidWork(f"after: {entry!r} is neither a workload nor text such as ok:job/prepare")
    for each in found:
        if namespace and isinstance(each, _Placed) and each.namespace != namespace:
            raise InvalidWork(
                f"after: {each.kind} {each.namespace}/{each.name} is in another namespace than the work "
                f"({namespace}): "
                "work can only wait for work of its own namespace"
            )
    text = ", ".join(dict.fromkeys(map(str, found)))
    try:
        parse_dependencies(text)
    except InvalidDependencies as error:
        raise InvalidWork(f"after: {error}") from None
    return text


def _dependency(
    condition: DependencyCondition, work: Dependent, delay: timedelta | None
) -> WorkloadDependency:
    if (kind := _KINDS.get(work.kind)) is None:
        raise InvalidWork(
            f"after: nothing can wait for a {work.kind} ({work.name}): only for a Job, "
            "a pod group or a MiniCluster"
        )
    seconds = math.ceil(delay.total_seconds()) if delay is not None else 0
    if seconds < 0:
        raise InvalidWork(f"after: the delay after {work.name} is negative")
    return _Placed(condition=condition, kind=kind, name=work.name, delay_s=seconds, namespace=work.namespace)


def _time_text(term: str, time: Any) -> str:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidWork(f"{term}: {time!r} has no time zone: use datetime.now(UTC), or .astimezone()")
        return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    text = f"+{math.ceil(time.total_seconds())}s" if isinstance(time, timedelta) else time
    if not isinstance(text, str):
        raise InvalidWork(f"{term}: {time!r} is neither a datetime, a timedelta nor text such as +2h")
    try:
        read_start_time(text)
    except InvalidStartTime as error:
        raise InvalidWork(f"{term}: {error}") from None
    return text
