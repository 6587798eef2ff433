from support.dashboard_site import LISTS_ALL, Stage, at, job

from fluxqueue.dashboard.pages.plan_page import plan_page
from fluxqueue.dashboard.site import Asked


async def html(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> str:
    viewer = await stage.viewer("alice", *rights)
    return str((await plan_page(stage.site, Asked(viewer, await stage.site.visible(viewer), parameters))).html)


async def test_the_chart_has_a_bar_for_each_job_that_is_seen() -> None:
    stage = Stage()
    stage.show(job("wrf", eta=at(600)), job("runs", state="Running", startedAt=at(-5)), job("secret", "red", eta=at(60)), job("no-plan"))
    text = await html(stage, ("list", "fluxjobs", "blue"))
    assert "job/wrf (blue): is estimated to start" in text
    assert "Gantt chart of 2 bars" in text
    assert "1 waiting job has no planned start" in text
    assert "secret" not in text


async def test_hours_are_those_that_are_offered() -> None:
    stage = Stage()
    assert '<option value="24" selected>' in await html(stage, LISTS_ALL, hours="24")
    assert " selected>" not in await html(stage, LISTS_ALL, hours="999999999")
    stage.show(job("wrf", eta=at(600)))
    assert 'data-kind="day"' in await html(stage, LISTS_ALL, hours="168")
    stage.state.jobs.remove(job("wrf"))
    assert "Nothing that you may see runs or is planned." in await html(stage, LISTS_ALL)


async def test_all_who_see_the_same_share_the_chart() -> None:
    stage = Stage()
    stage.show(job("wrf", eta=at(600)))
    await html(stage, LISTS_ALL)
    await html(stage, LISTS_ALL)
    assert stage.site.shared.made == 1
