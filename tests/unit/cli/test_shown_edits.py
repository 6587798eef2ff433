import io
import json
from collections.abc import Mapping

import msgspec
import pytest
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import shown_edits
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.fluxjob_edits import edit_fluxjobs, edit_selected, held, prioritized, released

WAITS = fluxjob("solver", state="Pending", reason="WaitingForNodes")
HELD = msgspec.structs.replace(
    fluxjob("solver", state="Pending", reason="Held"), spec=msgspec.structs.replace(WAITS.spec, hold=True)
)


class Queue(PluginServer):
    """Shows an edit some reads after it was made."""

    def __init__(self, first: FluxJob, *later: FluxJob) -> None:
        super().__init__()
        self.has_jobs(first)
        self.later = list(later)
        self.reads = 0

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        accept: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Answer a read; each one after the edit is answered by the next of the later states."""
        if self.written and path.endswith("-1a2b3"):
            self.reads += 1
            self.objects[path] = json.loads(
                msgspec.json.encode(self.later.pop(0) if len(self.later) > 1 else self.later[0])
            )
        return super().get(path, params, accept, headers)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_edits, "_POLL_S", 0.001)


def test_what_is_held_is_shown_so_when_the_command_ends() -> None:
    queue, out = Queue(WAITS, WAITS, WAITS, HELD), io.StringIO()
    assert edit_fluxjobs(queue.client, "default", ["solver"], held(), out) == 0
    assert (out.getvalue(), queue.reads) == ("job/solver held\n", 3)
    queue, out = Queue(WAITS, WAITS, HELD), io.StringIO()
    assert edit_selected(queue.client, [WAITS], held(), out, lambda _: True) == 0
    assert (out.getvalue(), queue.reads) == ("job/solver held\n", 2)


def test_what_is_released_shows_another_reason_when_the_command_ends() -> None:
    queue, out = Queue(HELD, HELD, WAITS), io.StringIO()
    assert edit_fluxjobs(queue.client, "default", ["solver"], released(), out) == 0
    assert (out.getvalue(), queue.reads) == ("job/solver released\n", 2)


def test_work_with_a_more_urgent_problem_never_shows_that_it_is_held() -> None:
    queue = Queue(WAITS, fluxjob("solver", state="Pending", reason="InvalidRequest"))
    assert edit_fluxjobs(queue.client, "default", ["solver"], held(), io.StringIO()) == 0


def test_a_queue_that_does_not_read_the_edit_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_edits, "_WAIT_S", 0.05)
    out = io.StringIO()
    assert edit_fluxjobs(Queue(WAITS, WAITS).client, "default", ["solver"], held(), out) == 0
    said = out.getvalue().splitlines()
    assert said[0] == "job/solver held"
    assert said[1].startswith(
        "job/solver: the queue has not read this within 0.05 s; kubectl fluxqueue version "
    )


def test_work_that_starts_before_the_queue_reads_that_it_is_held_is_an_error() -> None:
    with pytest.raises(
        ClusterError, match="^error: job/solver was started before the queue read that it is held$"
    ):
        edit_fluxjobs(
            Queue(WAITS, fluxjob("solver", state="Running")).client,
            "default",
            ["solver"],
            held(),
            io.StringIO(),
        )


def test_what_is_seen_at_once_is_not_waited_for() -> None:
    queue = Queue(WAITS, WAITS)
    assert edit_fluxjobs(queue.client, "default", ["solver"], prioritized(5), io.StringIO()) == 0
    assert queue.reads == 0
