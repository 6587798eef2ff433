import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from support.dashboard_site import LISTS_ALL, Clock, Stage, job

from fluxqueue.dashboard.day_costs import Costs
from fluxqueue.dashboard.questions import NoAnswer
from fluxqueue.dashboard.site import Asked

BLUE = ("list", "fluxjobs", "blue")


@dataclass
class Questions:
    """Answers every question alike, when it may."""

    answer: dict[str, Any] | None
    may: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def history(self, _api: Any, _who: str, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        self.asked.append((path, dict(parameters)))
        await self.may.wait()
        if self.answer is None:
            raise NoAnswer("you may not")
        return self.answer


async def scene(
    answer: dict[str, Any] | None, *rights: tuple[str, str, str]
) -> tuple[Any, Asked, Questions, Clock]:
    stage, questions, clock = Stage(), Questions(answer), Clock()
    stage.show(job("wrf"))
    questions.may.set()
    viewer = await stage.viewer("alice", *rights)
    site: Any = replace(stage.site, questions=questions, costs=Costs(clock))  # type: ignore[arg-type]
    return site, Asked(viewer, await site.visible(viewer)), questions, clock


TODAY = {
    "rows": [{"day": "2026-03-02", "cost": "1.25"}, {"day": "2026-03-02", "cost": "2"}],
    "currency": "EUR",
}


async def test_the_cost_of_today_is_asked_once_in_some_minutes() -> None:
    site, asked, questions, clock = await scene(TODAY, LISTS_ALL)
    assert [await site.costs.today(site, asked) for _ in range(3)] == ["3.25 EUR"] * 3
    assert questions.asked == [("/report", {"since": "2026-03-02T00:00:00Z", "by": "day"})]
    clock.now += 301
    await site.costs.today(site, asked)
    assert len(questions.asked) == 2


async def test_who_sees_one_namespace_is_told_of_that_alone() -> None:
    site, asked, questions, _ = await scene(TODAY, BLUE)
    await site.costs.today(site, asked)
    assert questions.asked[0][1]["namespace"] == "blue"


async def test_a_slow_answer_keeps_no_page_and_is_there_for_the_next() -> None:
    site, asked, questions, _ = await scene(TODAY, LISTS_ALL)
    questions.may.clear()
    assert [await site.costs.today(site, asked) for _ in range(2)] == ["", ""]
    questions.may.set()
    assert await site.costs.today(site, asked) == "3.25 EUR"
    assert len(questions.asked) == 1


async def test_without_prices_or_the_right_nothing_is_shown() -> None:
    for answer in ({"rows": [{"cost": "1"}]}, None):
        site, asked, questions, _ = await scene(answer, LISTS_ALL)
        assert [await site.costs.today(site, asked) for _ in range(2)] == ["", ""]
        assert len(questions.asked) == 1


async def test_a_job_has_the_cost_of_its_own_record() -> None:
    rows = [{"uid": "uid-of-earlier", "cost": "9"}, {"uid": "uid-of-wrf", "cost": "0.499"}]
    site, asked, questions, _ = await scene({"jobs": rows, "currency": "EUR"}, BLUE)
    assert await site.costs.of_job(site, asked, job("wrf")) == "0.50 EUR"
    assert questions.asked[0][1] == {"namespace": "blue", "name": "wrf", "kind": "Job", "limit": "20"}


async def test_a_job_that_has_ended_does_not_keep_its_cost_so_far() -> None:
    answer = {"jobs": [{"uid": "uid-of-wrf", "cost": "0.5"}], "currency": "EUR"}
    site, asked, questions, _ = await scene(answer, BLUE)
    assert await site.costs.of_job(site, asked, job("wrf", state="Running")) == "0.50 EUR"
    answer["jobs"] = [{"uid": "uid-of-wrf", "cost": "0.9"}]
    assert await site.costs.of_job(site, asked, job("wrf", state="Completed")) == "0.90 EUR"
    assert len(questions.asked) == 2
