"""Why a workload waits, as data and as the text of ``kubectl fluxqueue explain``."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.api.reasons import REASONS
from fluxqueue.cli.explain import Observed, explain
from fluxqueue.client.statuses import WorkStatus, status_of

__all__ = ["Explanation", "explained"]


@dataclass(frozen=True)
class Explanation:
    """An explanation; as text, that of the plugin.

    Attributes
    ----------
    text
        All that ``kubectl fluxqueue explain`` prints.
    status
        The status that is explained.
    why
        One sentence; empty if the work does not wait.
    remedy
        What helps; empty if nothing is needed or known.
    """

    text: str
    status: WorkStatus
    why: str
    remedy: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def explained(fluxjob: FluxJob, job: Job | None, pods: Sequence[Pod], now: datetime) -> Explanation:
    """Return the explanation of a workload.

    Parameters
    ----------
    fluxjob
        Its FluxJob.
    job
        Its Job, if it is one.
    pods
        Its pods.
    now
        The present time, with a time zone, in which times are shown.
    """
    status = status_of(fluxjob)
    template = job.spec.template.spec if job is not None else pods[0].spec if pods else None
    source = job.metadata if job is not None else pods[0].metadata if pods else None
    limit = (
        job.spec.active_deadline_seconds
        if job is not None
        else template.active_deadline_seconds
        if template is not None
        else None
    )
    stated = limit is not None or (
        source is not None and source.annotation(names.DURATION_ANNOTATION) is not None
    )
    reason = Reason(status.reason) if status.reason in list(Reason) else Reason.NONE
    waits = not status.ended and bool(status.reason)
    return Explanation(
        text=explain(Observed(fluxjob, template, stated, pods), now),
        status=status,
        why=(status.message or REASONS[reason].why) if waits else "",
        remedy=REASONS[reason].helps if waits else "",
    )
