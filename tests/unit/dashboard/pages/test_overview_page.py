import html as entities
import json
import re
from dataclasses import replace
from typing import Any

import msgspec
from support.dashboard_load import busy_cluster
from support.dashboard_site import LISTS_ALL, NOW, InProcess, Stage, at, job, node

from fluxqueue.dashboard.pages.overview_page import overview_page
from fluxqueue.dashboard.site import Asked

NODES = ("list", "nodes", "")
BLUE = ("list", "fluxjobs", "blue")


async def html(stage: Stage, *rights: tuple[str, str, str]) -> str:
    viewer = await stage.viewer("alice", *rights)
    return str((await overview_page(stage.site, Asked(viewer, await stage.site.visible(viewer)))).html)


def chart(text: str) -> dict[str, Any]:
    found = re.search(r'data-chart="([^"]*)"', text)
    assert found
    data: dict[str, Any] = json.loads(entities.unescape(found[1]))
    return data


def stage() -> Stage:
    made = Stage()
    for number in range(1, 4):
        made.state.nodes.apply(node(f"node-{number}"))
    made.show(
        job("wrf", reason="WaitingForNodes", eta=at(600)),
        job("runs", state="Running", nodes="node-1", allocatedAt=at(-7_200), cpu=4),
        job("secret", "red", state="Running", nodes="node-2", allocatedAt=at(-7_200)),
        job("unseen", "red", reason="Held", eta=at(60)),
        job("lost", "red", state="Failed", outcome="Failed", finishedAt=at(-60)),
    )
    return made


async def test_it_says_how_full_the_cluster_is_and_who_waits_for_what() -> None:
    text = await html(stage(), LISTS_ALL, NODES)
    for part in (
        "6 of 24<",
        "job/wrf",
        "job/unseen",
        "job/lost",
        "WaitingForNodes",
        'href="/nodes?state=free"',
    ):
        assert part in text
    assert chart(text)["series"][0]["name"] == "Cores"
    assert chart(text)["series"][0]["values"][-1] == 25.0


async def test_each_number_leads_to_its_list() -> None:
    text = await html(stage(), LISTS_ALL, NODES)
    for link in (
        "/queue?state=Running",
        "/queue?state=live",
        "/queue?state=Pending",
        "/queue?state=Failed",
        "/queue?state=Pending&amp;queue=default",
        "/queue?state=Pending&amp;namespace=blue",
        "/queue?state=live&amp;namespace=blue",
        "/queue?state=Pending&amp;reason=Held",
    ):
        assert f'href="{link}"' in text


async def test_work_that_is_not_seen_has_no_name_and_is_in_no_count() -> None:
    text = await html(stage(), BLUE, NODES)
    for part in ("secret", "unseen", "job/lost", "red<", "=red"):
        assert part not in text
    assert "6 of 24<" in text
    assert "Nothing failed in the last day." in text


async def test_who_may_not_list_nodes_is_shown_his_own_use() -> None:
    text = await html(stage(), BLUE)
    assert "You may not list nodes" in text
    assert "of 24<" not in text
    assert max(chart(text)["series"][0]["values"]) == 4.0


async def test_an_empty_cluster_says_so() -> None:
    text = await html(Stage(), LISTS_ALL, NODES)
    for sentence in ("Nothing waits.", "Nothing runs.", "Nothing failed in the last day."):
        assert sentence in text


async def test_hostile_texts_are_escaped() -> None:
    made = Stage()
    made.show(
        job("x", state="Failed", outcome="<b>", message='"><img src=x>', account="<i>", finishedAt=at(-5)),
        job("y", account='"><i>'),
    )
    text = await html(made, LISTS_ALL)
    for part in ("<b>", "<img", "<i>"):
        assert part not in text


async def test_all_who_see_the_same_share_the_page_of_a_busy_cluster() -> None:
    made = Stage()
    busy_cluster(made, NOW)
    text = await html(made, LISTS_ALL, NODES)
    assert text == await html(made, LISTS_ALL, NODES)
    assert made.site.shared.made == 1
    assert len(chart(text)["series"]) == 3


async def test_it_asks_nobody() -> None:
    made = stage()
    viewer = await made.viewer("alice", LISTS_ALL, NODES)
    asked = Asked(viewer, await made.site.visible(viewer))
    before = len(made.api.asked)
    await overview_page(made.site, asked)
    assert len(made.api.asked) == before


async def test_an_address_of_the_queue_that_somebody_kept_leads_to_it() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    answer = await client.get("/?q=wrf&state=Pending")
    assert (answer.status, answer.headers["location"]) == (307, "/queue?q=wrf&state=Pending")


async def test_work_whose_object_was_deleted_stays_in_the_past() -> None:
    made = stage()
    before = chart(await html(made, LISTS_ALL, NODES))["series"][0]["values"]
    broken = job("broken", state="Failed", outcome="Failed", finishedAt=at(-30))
    made.show(broken)
    for each in (job("runs"), job("secret", "red"), broken):
        found = made.state.jobs.get(each.metadata.namespace, each.metadata.name)
        assert found is not None
        made.state.jobs.remove(found)
    made.clock.now += 10
    text = await html(made, LISTS_ALL, NODES)
    assert chart(text)["series"][0]["values"] == before
    assert "0 of 24<" in text
    assert "of 2 that ended" in text
    assert "job/broken" in text
    assert f"/jobs/blue/{broken.metadata.name}?ended=" in text, "the history has it"
    made.api.rights.clear()
    made.clock.now += 60
    assert "job/broken" not in await html(made, ("list", "fluxjobs", "red"), NODES)


async def test_it_is_made_at_most_each_ten_seconds_whatever_changes() -> None:
    made = stage()
    site = made.site
    viewer = await made.viewer("alice", LISTS_ALL, NODES)
    asked = Asked(viewer, await site.visible(viewer))
    first = await overview_page(site, asked)
    made.show(job("more"))
    made.clock.now += 9
    assert await overview_page(site, asked) is first
    assert first.version is not None
    assert first.version < made.state.version
    made.clock.now += 2
    assert (await overview_page(site, asked)).version == made.state.version


async def test_a_page_that_is_older_than_the_cluster_is_not_taken_for_the_present_one() -> None:
    made = stage()
    client = InProcess(made)
    await client.sign_in("alice", BLUE)
    shown = made.state.version
    await client.get("/")
    made.show(job("more"))
    assert f'data-live="/live/overview?version={shown}"' in (await client.get("/")).text


async def test_kinds_of_resources_that_have_no_room_are_counted() -> None:
    made = stage()
    plain = node("node-9")
    allocatable = {
        **(plain.status.allocatable or {}),
        **dict.fromkeys(("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"), "1"),
    }
    made.state.nodes.apply(
        msgspec.structs.replace(plain, status=msgspec.structs.replace(plain.status, allocatable=allocatable))
    )
    assert '<a href="/nodes">2 more kinds of resources</a>' in await html(made, LISTS_ALL, NODES)
    assert "more kind" not in await html(stage(), LISTS_ALL, NODES)


async def test_the_cost_of_the_day_is_that_of_who_looks() -> None:
    class Costs:
        async def today(self, _site: object, asked: Asked) -> str:
            return "12.30 EUR" if asked.viewer.person.username == "alice" else ""

    made = stage()
    site = replace(made.site, costs=Costs())  # type: ignore[arg-type]
    texts = []
    for name in ("alice", "bob"):
        viewer = await made.viewer(name, LISTS_ALL, NODES)
        texts.append(str((await overview_page(site, Asked(viewer, await site.visible(viewer)))).html))
    assert '<span class="big">12.30<small>EUR</small></span>' in texts[0]
    assert "Cost today" not in texts[1]
    assert site.shared.made == 1
