"""What must have happened before a workload may start:
its annotations ``fluxqueue/after``, ``begin``, ``singleton`` and ``deadline``.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fluxqueue.api import names
from fluxqueue.api.dependencies import InvalidDependencies, is_object_name, parse_dependencies
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.starttimes import InvalidStartTime, parse_start_time
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.submission import Submission
from fluxqueue.queue.model.start_conditions import (
    NO_START_CONDITIONS,
    StartConditions,
    TrackedDependency,
    track,
)

__all__ = ["resolve_start"]

_NEVER_CREATED = datetime.fromtimestamp(0, UTC)


def resolve_start(submission: Submission) -> Resolved[StartConditions]:
    """Return what a workload waits for, as its object says it. Nothing is known of the dependencies yet."""
    meta = submission.meta
    texts = {key: text for key in names.START_ANNOTATIONS if (text := meta.annotation(key))}
    if not texts:
        return Resolved(NO_START_CONDITIONS)
    owner = meta.controller
    if owner is not None and owner.api_version.startswith("apps/"):
        message = (
            f"{submission.title}: its owner replaces its pods, so they cannot wait for others: "
            f"remove the annotation {', '.join(texts)}"
        )
        return Resolved(NO_START_CONDITIONS, (Problem(Reason.INVALID_REQUEST, message),))
    after: tuple[TrackedDependency, ...] = ()
    times: dict[str, datetime] = {}
    problems: list[Problem] = []

    def refuse(key: str, error: object) -> None:
        problems.append(Problem(Reason.INVALID_REQUEST, f"{submission.title}: annotation {key}: {error}"))

    try:
        after = tuple(track(each) for each in parse_dependencies(texts.get(names.AFTER_ANNOTATION, "")))
    except InvalidDependencies as error:
        refuse(names.AFTER_ANNOTATION, error)
    created = datetime.fromisoformat(meta.creation_timestamp) if meta.creation_timestamp else _NEVER_CREATED
    for key in (names.BEGIN_ANNOTATION, names.DEADLINE_ANNOTATION):
        try:
            if key in texts:
                times[key] = parse_start_time(texts[key], created)
        except InvalidStartTime as error:
            refuse(key, error)
    singleton = texts.get(names.SINGLETON_ANNOTATION, "")
    if singleton and not is_object_name(singleton):
        refuse(
            names.SINGLETON_ANNOTATION,
            f"{singleton[:80]!r} is not a name: write letters, digits, '-', '_' and '.'",
        )
        singleton = ""
    begin_at, deadline = times.get(names.BEGIN_ANNOTATION), times.get(names.DEADLINE_ANNOTATION)
    return Resolved(
        StartConditions(after=after, begin_at=begin_at, singleton=singleton, deadline=deadline),
        tuple(problems),
    )
