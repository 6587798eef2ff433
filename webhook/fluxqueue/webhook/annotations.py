"""What people write on their objects, checked while they are still looking.

A duration that cannot be read is best refused at ``kubectl apply``, where the person sees the sentence. An object that a controller
makes has nobody in front of it: its pods were written once, in a template, and refusing them would only stall the controller. Those
pass with a warning, and the queue says the same as reason ``InvalidRequest`` where the person will look.
"""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.api.objects import ObjectMeta
from fluxqueue.api.priorities import InvalidPriority, parse_priority
from fluxqueue.webhook.decisions import Refusal
from fluxqueue.webhook.reviews import Review

__all__ = ["carried_keys", "forged", "unreadable"]


def unreadable(review: Review, meta: ObjectMeta) -> tuple[str, ...]:
    """Sentences about annotations of ours that cannot be read.

    Parameters
    ----------
    review
        For the object's name.
    meta
        Its metadata.

    Returns
    -------
    tuple of str
        One sentence each, naming object, field and remedy; empty when all is well.
    """
    if not meta.annotations:
        return ()
    problems = []
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
    return tuple(problems)


def carried_keys(meta: ObjectMeta | None) -> tuple[str, ...]:
    """The allocation keys that stand on this metadata, as label or annotation; an empty value is none, as in the policy."""
    if meta is None or not (meta.labels or meta.annotations):
        return ()
    return tuple(key for key in names.ALLOCATION_KEYS if meta.label(key) or meta.annotation(key))


def forged(review: Review, keys: tuple[str, ...]) -> Refusal:
    """Refuse an object that claims an allocation nobody gave it.

    The ValidatingAdmissionPolicy of the chart refuses the same objects on its own, and it sees what we leave of them. To strip the keys
    here would make the policy pass the object, and the same manifest would then fail at its next ``kubectl apply``, as an update: one
    answer at both doors is easier to understand.
    """
    return Refusal(
        "Forbidden",
        f"{review.describe()}: {', '.join(keys)} {'is' if len(keys) == 1 else 'are'} written by fluxqueue only, not by {review.requester}:"
        " remove it from the manifest and its pod template",
    )
