"""Every page against a real API server: what each person sees on it,
and what is said where a right is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.dashboard_stage import Browserless

from fluxqueue.local.processes import wait_until

Browse = Callable[[str], Browserless]


@pytest.mark.parametrize(
    ("path", "shown", "refused"),
    [
        ("/", "job/waits", "Nothing waits."),
        ("/queue", "job/waits", "No job that you may see matches"),
        ("/nodes", "node-1, ready", "You may not list nodes"),
        ("/plan", "job/waits", "Nothing that you may see runs or is planned"),
        ("/limits", "of 4 running", "There are no FluxAccounts"),
        ("/history", "Start against the first estimate", "Choose a namespace"),
        ("/doctor", "Doctor", "You may not ask the doctor"),
    ],
)
def test_each_page_is_for_who_may_and_says_so_to_others(
    path: str, shown: str, refused: str, browse: Browse
) -> None:
    operator, nobody = browse("operator").get(path), browse("nobody").get(path)
    assert (operator.status, nobody.status) == (200, 200)
    assert shown in operator.text
    assert refused in nobody.text
    assert "job/" not in nobody.text


def test_without_the_queue_s_address_history_and_doctor_say_how_to_give_it(browse: Browse) -> None:
    operator = browse("operator")
    assert "start the dashboard with --queue-url" in operator.get("/history?namespace=blue").text
    assert "No replica of the queue answers: there is none" in operator.get("/doctor").text


def test_the_map_shows_the_node_of_a_job_without_those_of_others(browse: Browse) -> None:
    assert "job/runs</a> in blue, Running, 1 pod here" in browse("operator").get("/nodes?node=node-1").text


def test_streams_of_one_session_are_bounded_and_free_again_when_left(browse: Browse) -> None:
    viewer = browse("viewer")
    streams = [viewer.events("/live/queue?version=none") for _ in range(12)]
    for each in streams:
        next(each)
    assert viewer.get("/live/queue").status == 429
    for each in streams:
        each.close()  # type: ignore[attr-defined]

    def opens() -> bool:
        try:
            next(viewer.events("/live/queue?version=none"))
        except AssertionError:
            return False
        return True

    wait_until(opens, "a stream to be free", 60)


@pytest.mark.parametrize("page", ["overview", "nodes", "plan", "limits"])
def test_other_pages_follow_changes_too(page: str, browse: Browse) -> None:
    events = browse("operator").events(f"/live/{page}?version=none")
    assert '"html"' in next(events)
