"""The log of one pod, below the page of its job: its last lines, which the browser then follows
(`fluxqueue.dashboard.pod_logs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from markupsafe import Markup

from fluxqueue.dashboard.pages.job_page import find_job
from fluxqueue.dashboard.pod_logs import TAIL, NoLog, PodLog, find_log, tail
from fluxqueue.dashboard.rendering import job_link
from fluxqueue.dashboard.site import Asked, NoSuchPage, Site, render
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["job_log"]


async def job_log(site: Site, asked: Asked) -> Markup:
    """Return the part of the page; empty if the address names no pod, or the job has just gone."""
    if not asked.parameters.get("pod"):
        return Markup()
    try:
        job = find_job(site, asked)
    except NoSuchPage:
        return Markup()
    log: PodLog | None = None
    lines: Sequence[str] = ()
    problem = ""
    try:
        async with site.reading.turn(asked.viewer.person.party):
            api = site.door.api(asked.viewer)
            log = await find_log(api, job, asked.parameters)
            lines = await tail(api, log)
    except (NoLog, NoApi) as error:
        problem = f"{str(error)[:1].upper()}{str(error)[1:]}"
    address = ""
    if log is not None:
        chosen = {"pod": log.pod.metadata.name, "container": log.container}
        before = {"previous": "1"} if log.previous else {}
        address = (
            f"{job_link(job.metadata.namespace, job.metadata.name)}/log?{urlencode({**chosen, **before})}"
        )
    return render(
        "log.html",
        pod=asked.parameters["pod"][:253],
        log=log,
        lines=lines,
        most=TAIL,
        problem=problem,
        address=address,
    )
