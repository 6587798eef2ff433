import re

from support.dashboard_site import LISTS_ALL, Stage, at, job

from fluxqueue.dashboard.job_table import PAGE, TableQuery
from fluxqueue.dashboard.pages.queue_page import RowUpdates, queue_page
from fluxqueue.dashboard.site import Asked


async def asked(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> Asked:
    viewer = await stage.viewer("alice", *(rights or (LISTS_ALL,)))
    return Asked(viewer, await stage.site.visible(viewer), parameters)


async def test_the_table_has_the_rows_and_the_filters_of_the_address() -> None:
    stage = Stage()
    stage.show(job("a", reason="Held"), job("b", state="Running"), job("c", "red"))
    html = (
        await queue_page(stage.site, await asked(stage, q="blue", state="Running", sort="job", backwards="1"))
    ).html
    assert "job/b" in html
    assert "job/a" not in html
    assert "<option selected>Running</option>" in html
    assert 'aria-sort="descending"' in html
    assert '<input type="hidden" name="sort" value="job">' in html
    assert re.search("1 job, <a [^>]*>1 Running</a>", html)


async def test_choices_are_those_that_the_person_sees() -> None:
    stage = Stage()
    stage.show(job("a"), job("c", "red"))
    html = (await queue_page(stage.site, await asked(stage, ("list", "fluxjobs", "blue")))).html
    assert "<option>blue</option>" in html
    assert "red" not in html


async def test_an_empty_table_says_so() -> None:
    stage = Stage()
    assert "No job that you may see matches." in (await queue_page(stage.site, await asked(stage))).html


async def test_pages_lead_to_each_other() -> None:
    stage = Stage()
    stage.show(*(job(f"j{number:03}", position=number) for number in range(2 * PAGE + 1)))
    html = (await queue_page(stage.site, await asked(stage, page="2", q="j"))).html
    assert "page 2 of 3" in html
    assert 'href="?q=j" ' not in html
    assert 'rel="prev" href="?q=j"' in html
    assert 'rel="next" href="?q=j&amp;page=3"' in html


async def test_an_update_has_what_changed_and_the_order() -> None:
    stage = Stage()
    stage.show(job("a"), job("b"))
    question = await asked(stage)
    updates = RowUpdates(TableQuery(), fresh=False)
    first = updates.update(stage.site, question)
    assert first is not None
    assert set(first["rows"]) == {"blue-a", "blue-b"}
    assert updates.update(stage.site, question) is None
    stage.show(job("b", version=2, state="Running"))
    second = updates.update(stage.site, question)
    assert second is not None
    assert (set(second["rows"]), second["order"]) == ({"blue-b"}, ["blue-b", "blue-a"])
    assert "1 Running" in second["summary"]


async def test_a_change_that_another_one_sees_is_no_update() -> None:
    stage = Stage()
    stage.show(job("a"))
    question = await asked(stage, ("list", "fluxjobs", "blue"))
    updates = RowUpdates(TableQuery(), fresh=False)
    updates.update(stage.site, question)
    stage.show(job("secret", "red"))
    assert updates.update(stage.site, question) is None


async def test_without_scripts_running_work_shows_the_part_of_its_time_that_has_passed() -> None:
    stage = Stage()
    stage.show(job("half", state="Running", startedAt=at(-150)), job("waits"))
    html = (await queue_page(stage.site, await asked(stage))).html
    assert '<progress max="1" value="0.500" data-begin' in html
    stage.show(job("half", version=2, state="Running", startedAt=at(-600)))
    assert (
        '<progress class="over" max="1" value="1.000" data-begin'
        in (await queue_page(stage.site, await asked(stage))).html
    )
