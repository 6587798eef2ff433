"""The doctor: where cluster, tables and graph differ, as the leading queue sees it;
asked in the name of the person.
"""

from __future__ import annotations

from fluxqueue.dashboard.questions import NoAnswer
from fluxqueue.dashboard.site import Asked, Content, Site, render
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["doctor_page"]


async def doctor_page(site: Site, asked: Asked) -> Content:
    """Return the findings, or why there are none to show."""
    viewer = asked.viewer
    try:
        answer = await site.questions.doctor(site.door.api(viewer), viewer.session.key)
    except (NoAnswer, NoApi) as error:
        return Content("Doctor", render("message.html", sentence=f"{str(error)[0].upper()}{str(error)[1:]}."))
    findings = [each for each in answer.get("findings") or () if isinstance(each, dict)]
    return Content("Doctor", render("doctor.html", findings=findings[:500], count=len(findings)))
