"""Checks of our annotations and labels on the objects that people apply.

A duration that cannot be read is best refused at ``kubectl apply``, where the person sees the sentence. No
person waits for an object that a controller creates: its pods were described once, in a template, and
refusing them would only stall the controller. Such objects pass with a warning, and the queue reports the
same problem as reason ``InvalidRequest`` on the FluxJob.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.keys import unread_keys
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.priorities import InvalidPriority, parse_priority
from fluxqueue.api.schedulers import invalid_scheduler_label
from fluxqueue.api.topology import unreadable_topology
from fluxqueue.webhook.decisions import AdmissionRefusal, AdmissionSettings
from fluxqueue.webhook.reviews import Review, ReviewedJob
from fluxqueue.webhook.start_annotations import start_problems

__all__ = ["NOT_INSTALLED", "carried_keys", "crowded", "forged", "not_installed", "unread", "unreadable"]

_MOST_WARNINGS = 8
_MOST_BYTES = 256 * 1024
"""Kubernetes' limit for the keys and values of all annotations of an object."""
_OUR_BYTES = 4 * 1024
"""What the queue adds to a template; if more nodes are listed, they may need more."""
NOT_INSTALLED = "no scheduler of fluxqueue is installed here (scheduler.enabled of its chart)"


def unreadable(
    review: Review, settings: AdmissionSettings, meta: ObjectMeta, template: ObjectMeta | None = None
) -> tuple[str, ...]:
    """Return sentences about our annotations and labels that cannot be read.

    Parameters
    ----------
    review
        The review, for the object's name.
    settings
        The levels of the topology.
    meta
        Metadata of the object.
    template
        Metadata of its pods, which may choose the scheduler and ask for a topology.

    Returns
    -------
    tuple of str
        One sentence for each problem, naming object, field and remedy.
    """
    problems = []
    if _chooses_scheduler(meta) or _chooses_scheduler(template):
        problem = invalid_scheduler_label(review.describe(), meta, template)
        problems += [problem] if problem is not None else []
    below = unreadable_topology(
        meta.annotations, template.annotations if template is not None else None, levels=settings.levels
    )
    problems += [f"{review.describe()}: {problem}" for problem in below]
    if not meta.annotations:
        return tuple(problems)
    try:
        if (text := meta.annotation(names.DURATION_ANNOTATION)) is not None:
            parse_duration(text)
    except InvalidDuration as error:
        problems.append(f"{review.describe()}: annotation {names.DURATION_ANNOTATION}: {error}")
    try:
        if (text := meta.annotation(names.PRIORITY_ANNOTATION)) is not None:
            parse_priority(text)
    except InvalidPriority as error:
        problems.append(f"{review.describe()}: annotation {names.PRIORITY_ANNOTATION}: {error}")
    try:
        if (text := meta.annotation(names.POD_GROUP_SIZE_ANNOTATION)) is not None:
            parse_group_size(text)
    except InvalidGroupSize as error:
        problems.append(f"{review.describe()}: annotation {names.POD_GROUP_SIZE_ANNOTATION}: {error}")
    problems += [f"{review.describe()}: {problem}" for problem in start_problems(review.kind, meta)]
    return tuple(problems)


def crowded(review: Review, template: ObjectMeta | None) -> tuple[str, ...]:
    """Return why the annotations of a Job's template leave no room for those of the queue, which adds them
    when it releases the Job.
    """
    annotations = (template.annotations if template else None) or {}
    size = sum(len(text.encode()) for pair in annotations.items() for text in pair)
    most = _MOST_BYTES - _OUR_BYTES
    if size <= most:
        return ()
    return (
        (
            f"{review.describe()}: the annotations of spec.template.metadata have {size} bytes: shorten them "
            f"to {most}, because the queue adds its own and Kubernetes takes {_MOST_BYTES}"
        ),
    )


def unread(review: Review) -> tuple[str, ...]:
    """Return sentences about keys with our prefix that nobody reads, on the object and its template;
    few, since a person reads them.
    """
    obj = review.object
    if obj is None or obj.metadata.controller is not None:
        return ()
    template = obj.spec.template.metadata if isinstance(obj, ReviewedJob) else None
    sentences = [
        sentence
        for meta in (obj.metadata, template)
        if meta is not None
        for sentence in unread_keys(meta.labels, meta.annotations)
    ]
    return tuple(dict.fromkeys(sentences))[:_MOST_WARNINGS]


def _chooses_scheduler(meta: ObjectMeta | None) -> bool:
    return meta is not None and meta.labels is not None and names.SCHEDULER_LABEL in meta.labels


def not_installed(
    review: Review, scheduler_name: str | None, meta: ObjectMeta, template: ObjectMeta | None = None
) -> tuple[str, ...]:
    """Warn a person who requests our scheduler where it is not installed.

    Parameters
    ----------
    review
        The review, for the object's name.
    scheduler_name
        ``spec.schedulerName`` of the pod or template.
    meta, template
        Metadata of the object and of its pods. Objects with a controller get no warning, because no person
        would see it.
    """
    named = scheduler_name == names.SCHEDULER_NAME
    chosen = [
        part.label(names.SCHEDULER_LABEL) for part in (meta, template) if part is not None and part.labels
    ]
    if not (named or SchedulerName.FLUXION in chosen) or meta.controller is not None:
        return ()
    if named:
        return (
            (
                f"{review.describe()}: {NOT_INSTALLED}, so nothing may ever bind its pods: leave "
                f"schedulerName {scheduler_name} out"
            ),
        )
    return (
        (
            f"{review.describe()}: label {names.SCHEDULER_LABEL}: {NOT_INSTALLED}: "
            "the cluster's own scheduler binds its pods"
        ),
    )


def carried_keys(meta: ObjectMeta | None) -> tuple[str, ...]:
    """Return the allocation keys on this metadata, as label or annotation.
    An empty value does not count, as in the policy.
    """
    if meta is None or not (meta.labels or meta.annotations):
        return ()
    return tuple(key for key in names.ALLOCATION_KEYS if meta.label(key) or meta.annotation(key))


def forged(review: Review, keys: tuple[str, ...]) -> AdmissionRefusal:
    """Refuse an object that claims an allocation which the queue did not give it.

    The ValidatingAdmissionPolicy of the chart refuses the same objects independently, and it sees them after
    our patch. If the webhook removed the keys, the policy would accept the object, and the same manifest
    would fail at its next ``kubectl apply``, as an update. The same response from both is easier to
    understand.
    """
    return AdmissionRefusal(
        "Forbidden",
        f"{review.describe()}: {', '.join(keys)} {'is' if len(keys) == 1 else 'are'} written by fluxqueue "
        f"only, not by {review.requester}:"
        " remove it from the manifest and its pod template",
    )
