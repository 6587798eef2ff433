"""One job: its way so far, why it waits, its pods, Events and objects, and the verbs;
of work that is gone, what the history has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fluxqueue.api.fluxjobs import LIVE, FluxJob, State
from fluxqueue.cli.efficiency import Fact, facts_of
from fluxqueue.cli.explain import Observed, facts_about, headline
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.pod_metrics import PodUse
from fluxqueue.cli.pod_placement import placement, pod_state
from fluxqueue.dashboard.access import patches
from fluxqueue.dashboard.ended_jobs import ended_job
from fluxqueue.dashboard.job_objects import JobObjects, read_objects
from fluxqueue.dashboard.job_rows import JobRow
from fluxqueue.dashboard.pages.shared import planned_start, visible_rows
from fluxqueue.dashboard.site import Asked, Content, NoSuchPage, Site, render
from fluxqueue.dashboard.timeline import timeline
from fluxqueue.dashboard.verbs import VERBS, consequences, objection
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["ended_job_page", "find_job", "job_page"]

_MOST_RANKS: Final = 200
_IN_TIMELINE: Final = ("Submitted", "Allocated", "Started", "Finished")
_AT_ONCE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _PodLine:
    rank: str
    node: str
    pod: str
    on: str
    state: str


def find_job(site: Site, asked: Asked) -> FluxJob:
    """Return the FluxJob of an address.

    Raises
    ------
    NoSuchPage
        There is none, or it is in a namespace that the person does not see.
    """
    namespace, name = asked.path.get("namespace", ""), asked.path.get("name", "")
    job = site.state.jobs.get(namespace, name) if asked.visible.shows(namespace) else None
    if job is None:
        raise NoSuchPage(
            f"There is no FluxJob {namespace}/{name} that you may see: if it was removed after its end, "
            "the page History has it."
        )
    return job


async def job_page(site: Site, asked: Asked) -> Content:
    """Return the page of one job."""
    job = find_job(site, asked)
    try:
        async with site.reading.turn(asked.viewer.person.party):
            objects = await read_objects(site.door.api(asked.viewer), job)
    except NoApi as error:
        objects = JobObjects(
            use=PodUse(unknown=str(error)), problems=[f"{str(error)[0].upper()}{str(error)[1:]}."]
        )
    may = await site.door.access.may(asked.viewer.person, patches(job.metadata.namespace, job.metadata.name))
    cost = await site.costs.of_job(site, asked, job)
    known = [("Cost", f"{cost} so far" if state_of(job) in LIVE else cost)] if cost else []
    use = facts_of(job, objects.use, site.clock())
    return _content(site, asked, job, objects, may=may, known=known, use=use)


async def ended_job_page(site: Site, asked: Asked) -> Content:
    """Return the page of work whose FluxJob is gone, as the history has it.

    Raises
    ------
    NoSuchPage
        The person cannot read a record of it.
    """
    job, known, use = await ended_job(site, asked)
    return _content(site, asked, job, JobObjects(), ended=True, known=known, use=use)


def _content(
    site: Site,
    asked: Asked,
    job: FluxJob,
    objects: JobObjects,
    *,
    may: bool = False,
    ended: bool = False,
    known: Sequence[tuple[str, str]] = (),
    use: Sequence[Fact] = (),
) -> Content:
    row = JobRow(job)
    seen, now = Observed(job, objects.template, pods=objects.pods or ()), site.clock()
    html = render(
        "job.html",
        job=job,
        status=job.status,
        row=row,
        headline=headline(job, now),
        facts=[*(each for each in facts_about(seen, now) if each[0] not in _IN_TIMELINE), *known],
        use=[each for each in use if each.name != "Time" or row.ends is None]
        if job.status.started_at
        else (),
        steps=timeline(job, objects.pods or ()),
        pods=_pod_lines(job, objects),
        objects=objects,
        chosen=asked.parameters.get("pod", ""),
        does=consequences(job, _behind(site, asked, row) if may else 0),
        objections={name: objection(name, job) for name in VERBS},
        may=may,
        ended=ended,
        csrf=asked.viewer.session.csrf,
        queues=sorted(queue.metadata.name for queue in site.state.queues.list())[:1_000]
        if asked.visible.queues
        else [],
    )
    return Content(object_name(job) or job.metadata.name, html)


def _behind(site: Site, asked: Asked, row: JobRow) -> int:
    """Return how many others that the person sees wait behind it in its queue, or start when it ends."""
    position, end = row.job.status.position, row.ends
    count = 0
    for each in visible_rows(site, asked.visible):
        if each.state != State.PENDING or each.uid == row.uid:
            continue
        status = each.job.status
        if row.state == State.PENDING:
            count += each.queue == row.queue and position is not None and (status.position or 0) > position
        elif end is not None and (start := planned_start(each.job)) is not None:
            count += abs(start - end) <= _AT_ONCE
    return count


def _pod_lines(job: FluxJob, objects: JobObjects) -> list[_PodLine]:
    lines = []
    for each in placement(job, objects.pods or ())[:_MOST_RANKS]:
        pod = each.pod
        on = pod.spec.node_name or "" if pod is not None else ""
        rank = "" if each.rank is None else str(each.rank)
        name, state = (pod.metadata.name, pod_state(pod)) if pod is not None else ("", "")
        lines.append(_PodLine(rank, each.node, name, on, state))
    return lines
