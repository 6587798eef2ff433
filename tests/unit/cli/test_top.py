"""The screen, run without a terminal: what it shows, and what its keys do."""

import pytest
from support.live_queues import NOW, FakeLiveQueue
from support.plugin_server import fluxjob
from textual.widgets import DataTable, Input, Static

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.top import TopScreen

WAITING = fluxjob("waiting", state="Pending", reason="WaitingForNodes", position=1)
RUNNING = fluxjob("running", state="Running", nodes="n1")
DONE = fluxjob("done", state="Completed", outcome="Succeeded")


@pytest.fixture
def live() -> FakeLiveQueue:
    return FakeLiveQueue(WAITING, RUNNING, DONE)


def screen_of(live: FakeLiveQueue) -> TopScreen:
    return TopScreen(live, lambda: NOW, refresh_s=60)


def column(app: TopScreen, name: str = "jobs", at: int = 0) -> list[str]:
    table = app.query_one(f"#{name}-table", DataTable)
    return [str(table.get_row_at(row)[at]) for row in range(table.row_count)]


def texts(app: TopScreen, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


async def test_what_runs_and_waits_is_shown_and_what_ended_on_demand(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        app = pilot.app
        assert isinstance(app, TopScreen)
        assert column(app) == ["job/running", "job/waiting"]
        assert texts(app, "#summary").startswith("1 running, 1 waiting, 1 ended")
        await pilot.press("e")
        assert column(app) == ["job/running", "job/waiting", "job/done"]


async def test_the_cursor_stays_on_its_workload_when_others_come(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        app = pilot.app
        assert isinstance(app, TopScreen)
        await pilot.press("down")
        live.has(fluxjob("another", state="Running", nodes="n2"), WAITING, RUNNING)
        app.show_view()
        await pilot.press("h")
        await app.workers.wait_for_complete()
        assert live.done == [("hold", "waiting")]


async def test_a_change_of_one_cell_is_shown(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        app = pilot.app
        assert isinstance(app, TopScreen)
        live.has(RUNNING, fluxjob("waiting", state="Pending", reason="Held"))
        app.show_view()
        assert column(app, at=8) == ["n1", "Held"]


async def test_cancel_asks_first(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        await pilot.press("c")
        assert texts(pilot.app, "#question") == ("Cancel job/running in namespace default? [y/n]")  # type: ignore[arg-type]
        await pilot.press("n", "c", "y")
        await pilot.app.workers.wait_for_complete()
        assert live.done == [("cancel", "running")]


async def test_enter_explains_and_escape_returns(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        await pilot.press("down", "enter")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert texts(pilot.app, "#text") == "why waiting waits"  # type: ignore[arg-type]
        await pilot.press("escape")
        assert not pilot.app.screen.query("#text")


async def test_a_message_is_shown_as_it_is_whatever_it_contains(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        app = pilot.app
        assert isinstance(app, TopScreen)
        live.has(fluxjob("broken", state="Failed", outcome="Failed", message="[/nope] [red]x\x1b[2J"))
        await pilot.press("e")
        await pilot.pause()
        assert column(app, at=-1) == ["Failed: [/nope] [red]x\\x1b[2J"]


async def test_what_is_refused_is_said_and_nothing_ends(live: FakeLiveQueue) -> None:
    live.refusal = ClusterError("Error from server (Forbidden): [no]")
    async with screen_of(live).run_test() as pilot:
        await pilot.press("r")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert [note.message for note in pilot.app._notifications] == ["Error from server (Forbidden): [no]"]


async def test_nodes_queues_and_the_filter_have_their_keys(live: FakeLiveQueue) -> None:
    async with screen_of(live).run_test() as pilot:
        app = pilot.app
        assert isinstance(app, TopScreen)
        await pilot.press("2")
        assert column(app, "nodes") == ["n1"]
        await pilot.press("3")
        assert column(app, "queues") == ["default"]
        await pilot.press("h")
        assert live.done == [], "there is no workload on this tab"
        await pilot.press("1", "slash", *"wait", "enter")
        assert column(app) == ["job/waiting"]
        assert app.query_one("#filter", Input).value == "wait"
