import re
from html import unescape

import pytest
from support.dashboard_site import LISTS_ALL, Stage, at, job, node, query_of

from fluxqueue.dashboard.pages.plan_page import plan_page
from fluxqueue.dashboard.plan import MOST_LANES
from fluxqueue.dashboard.site import Asked


async def html(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> str:
    viewer = await stage.viewer("alice", *rights)
    return str(
        (await plan_page(stage.site, Asked(viewer, await stage.site.visible(viewer), parameters))).html
    )


async def test_the_chart_has_a_bar_for_each_job_that_is_seen() -> None:
    stage = Stage()
    stage.show(
        job("wrf", eta=at(600)),
        job("runs", state="Running", startedAt=at(-5)),
        job("secret", "red", eta=at(60)),
        job("no-plan"),
    )
    text = await html(stage, ("list", "fluxjobs", "blue"), by="work")
    assert "job/wrf (blue): is estimated to start" in text
    assert "Gantt chart of 2 jobs" in text
    assert "1 waiting job has no planned start" in text
    assert "secret" not in text


async def test_services_are_not_said_to_be_as_many_as_are_drawn() -> None:
    stage = Stage()
    endless = {"durationSeconds": 0}
    names = [f"service-{number}" for number in range(MOST_LANES + 1)]
    stage.show(*(job(name, state="Running", startedAt=at(-5), spec=endless) for name in names))
    text = await html(stage, LISTS_ALL, by="work")
    assert "<summary>Running without an end, such as services: 150 shown</summary>" in text
    assert "1 more lanes are not shown" in text


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


def two_nodes() -> Stage:
    stage = Stage()
    stage.state.nodes.apply(node("node-1"))
    stage.state.nodes.apply(node("node-2"))
    stage.show(job("runs", state="Running", nodes="node-1", startedAt=at(-5)))
    stage.show(job("secret", "red", state="Running", nodes="node-2", startedAt=at(-5)))
    return stage


async def test_who_may_not_list_nodes_has_lanes_for_those_of_the_work_that_he_sees() -> None:
    text = await html(two_nodes(), ("list", "fluxjobs", "blue"))
    assert "Gantt chart of 1 node" in text
    assert "node-2" not in text


async def test_nodes_have_lanes_without_the_work_of_others_and_are_filtered_by_name() -> None:
    rights = (("list", "fluxjobs", "blue"), ("list", "nodes", ""))
    text = await html(two_nodes(), *rights)
    assert "Gantt chart of 2 nodes" in text
    assert "secret" not in text
    assert "Gantt chart of 1 node" in await html(two_nodes(), *rights, q="NODE-1")


async def test_what_is_not_drawn_is_said() -> None:
    stage = two_nodes()
    for number in range(9):
        stage.show(job(f"small-{number}", state="Running", nodes="node-1", startedAt=at(-60 - number)))
    assert "2 more jobs on these nodes are not drawn" in await html(stage, LISTS_ALL, ("list", "nodes", ""))


async def test_work_on_the_last_of_many_nodes_is_shown() -> None:
    stage = Stage()
    for number in range(300):
        stage.state.nodes.apply(node(f"n{number}"))
    idle = await html(stage, LISTS_ALL, ("list", "nodes", ""))
    stage.show(job("runs", state="Running", nodes="n299", startedAt=at(-60)))
    busy = await html(stage, LISTS_ALL, ("list", "nodes", ""))
    assert "150 more lanes are not shown" in idle
    assert 'aria-label="job/runs (blue): runs' in busy
    assert "Nothing that you may see" not in busy


async def test_the_part_of_time_is_in_the_address_and_links_lead_to_others() -> None:
    stage = Stage()
    stage.show(job("wrf", eta=at(600)))
    window = {"from": at(0), "to": at(3_600)}
    text = await html(stage, LISTS_ALL, by="work", **window)
    assert f'data-begin="{at(0)}" data-end="{at(3_600)}"' in text
    assert f'name="from" value="{at(0)}"' in text

    def address(name: str) -> dict[str, str]:
        found = re.search(f'id="zoom-{name}" href="([^"]*)"', text)
        assert found
        return query_of(unescape(found[1]))

    assert address("in") == {"by": "work", "from": at(900), "to": at(2_700)}
    assert address("out") == {"by": "work", "from": at(-1_800), "to": at(5_400)}
    assert address("later") == {"by": "work", "from": at(1_800), "to": at(5_400)}
    assert address("reset") == {"by": "work"}
    assert 'id="zoom-reset"' not in await html(stage, LISTS_ALL, by="work")


async def test_a_part_of_time_of_another_zone_has_the_same_times() -> None:
    texts = []
    for begin, end in (("12:00:00Z", "13:00:00Z"), ("14:00:00+02:00", "15:00:00+02:00")):
        stage = Stage()
        stage.show(job("wrf", eta=at(600)))
        window = {"from": f"2026-03-02T{begin}", "to": f"2026-03-02T{end}"}
        texts.append(await html(stage, LISTS_ALL, by="work", **window))
    assert 'data-time="2026-03-02T12:30:00Z"' in texts[0]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("begin", "end"), [(0, 59), (100, 0), (0, 32 * 86_400), (400 * 86_400, 401 * 86_400), (-40 * 86_400, 0)]
)
async def test_a_part_of_time_that_means_nothing_is_not_shown(begin: int, end: int) -> None:
    stage = Stage()
    text = await html(stage, LISTS_ALL, **{"from": at(begin), "to": at(end)})
    assert 'id="zoom-reset"' not in text
    hours = await html(stage, LISTS_ALL, hours="24", **{"from": at(0), "to": at(600)})
    assert f'data-end="{at(86_400)}"' in hours
