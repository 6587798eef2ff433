"""The choice of the scheduler that binds a pod: the cluster's own, or the project's.

The queue chooses for the pods of a Job when it releases the Job; the webhook chooses for pods that are gated
at their creation. Both use this module, so that they decide alike. The order of precedence is: the scheduler
that the pod names, because ``spec.schedulerName`` cannot be changed later; the label; the FluxQueue; the
installation's default. If the project's scheduler is not installed, it gets only pods that name it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.metadata import ObjectMeta

__all__ = [
    "DEFAULT_SCHEDULER_NAME",
    "InvalidScheduler",
    "choose_scheduler",
    "invalid_scheduler_label",
    "parse_scheduler",
    "queue_name_of",
]

DEFAULT_SCHEDULER_NAME = "default-scheduler"
"""``spec.schedulerName`` of a pod that names none; the API server writes it before admission."""


class InvalidScheduler(ValueError):
    """The text is not the name of a scheduler."""


def parse_scheduler(text: str) -> SchedulerName:
    """Parse the label ``fluxqueue/scheduler``.

    Parameters
    ----------
    text
        ``stock`` or ``fluxion``.

    Raises
    ------
    InvalidScheduler
        With the text and the accepted names.
    """
    try:
        return SchedulerName(text)
    except ValueError:
        raise InvalidScheduler(f"{text!r} is no scheduler: write {' or '.join(SchedulerName)}") from None


def invalid_scheduler_label(where: str, *metas: ObjectMeta | None) -> str | None:
    """Describe the first invalid label ``fluxqueue/scheduler``; None if all are valid.

    Parameters
    ----------
    where
        Kind, namespace and name of the object, for the message.
    metas
        The metadata of the object and of its pod template.
    """
    for meta in metas:
        text = meta.label(names.SCHEDULER_LABEL) if meta is not None else None
        if text is not None:
            try:
                parse_scheduler(text)
            except InvalidScheduler as error:
                return f"{where}: label {names.SCHEDULER_LABEL}: {error}"
    return None


def choose_scheduler(
    scheduler_name: str | None, label: str | None, queue: SchedulerName | None, default: SchedulerName | None
) -> SchedulerName:
    """Choose the scheduler that binds a pod.

    Parameters
    ----------
    scheduler_name
        ``spec.schedulerName``, as a person or the API server wrote it.
    label
        Value of the label ``fluxqueue/scheduler`` of the pod or of its Job. An invalid value is ignored.
    queue
        ``spec.scheduler`` of its FluxQueue.
    default
        The installation's default; None if the project's scheduler is not installed.
    """
    if scheduler_name == names.SCHEDULER_NAME:
        return SchedulerName.FLUXION
    if scheduler_name not in (None, "", DEFAULT_SCHEDULER_NAME) or default is None:
        return SchedulerName.STOCK
    if label is not None:
        try:
            return parse_scheduler(label)
        except InvalidScheduler:
            pass
    return queue or default


def queue_name_of(meta: ObjectMeta, namespace_labels: Mapping[str, str]) -> str:
    """Return the queue that an object names: by its own label, by its namespace's label,
    or the default queue.
    """
    return meta.label(names.QUEUE_LABEL) or namespace_labels.get(names.QUEUE_LABEL) or names.DEFAULT_QUEUE
