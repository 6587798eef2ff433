"""Which scheduler binds a pod, as far as admission can know.

``spec.schedulerName`` cannot be changed later, so it is set when the pod is created. The template of a
released Job contains what the queue decided. For other pods the queue's own rule applies
(`fluxqueue.api.schedulers`) to what is known here: the pod, the FluxQueues that choose a scheduler, and the
namespaces that name a queue. A watch fills both, if there is one. What is not known, or not known yet, counts
as not chosen: admission never waits.

Without a scheduler of ours there are no choices, and every pod is pinned to its node for the cluster's own
scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.schedulers import InvalidScheduler, choose_scheduler, parse_scheduler, queue_name_of

__all__ = ["SchedulerChoices"]


@dataclass(slots=True)
class SchedulerChoices:
    """The known choices of a scheduler.

    Attributes
    ----------
    default
        The default of the installation.
    queues
        ``spec.scheduler`` of the FluxQueues that set it, by name. The watch updates it while the server runs.
    namespaces
        The label ``fluxqueue/queue`` of the namespaces that carry it, by name. The watch updates it while the
        server runs.
    """

    default: SchedulerName
    queues: dict[str, SchedulerName] = field(default_factory=dict, compare=False)
    namespaces: dict[str, str] = field(default_factory=dict, compare=False)

    def of_pod(self, namespace: str, meta: ObjectMeta, scheduler_name: str | None) -> SchedulerName:
        """Return which scheduler binds a pod that is to be created.

        Parameters
        ----------
        namespace
            The namespace of the review; the pod need not contain it.
        meta, scheduler_name
            Metadata and ``spec.schedulerName`` of the pod.
        """
        labelled = self.namespaces.get(namespace)
        queue = queue_name_of(meta, {names.QUEUE_LABEL: labelled} if labelled else {})
        chosen = _decided(meta) or meta.label(names.SCHEDULER_LABEL)
        return choose_scheduler(scheduler_name, chosen, self.queues.get(queue), self.default)


def _decided(meta: ObjectMeta) -> SchedulerName | None:
    """Return what the queue wrote into the template of a released Job."""
    owner, text = meta.controller, meta.annotation(names.SCHEDULER_LABEL)
    if text is None or owner is None or owner.kind != "Job":
        return None
    try:
        return parse_scheduler(text)
    except InvalidScheduler:
        return None
