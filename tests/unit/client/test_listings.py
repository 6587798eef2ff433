from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from support.builders import make_queue
from support.node_work import one, work
from support.plugin_server import fluxjob

from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.client import NotInstalled, NotPermitted
from fluxqueue.client.listings import JobListing, read_queues
from fluxqueue.kube.errors import Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXJOBS, FLUXQUEUES
from fluxqueue.kube.transport import Api

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NIGHT = msgspec.convert(
    {
        **make_queue("night", limits={"nodes": 16, "cores": 64}),
        "status": {"pending": 3, "running": 2, "nodesInUse": 4},
    },
    FluxQueue,
)


class Server:
    def __init__(self, queues: Any, jobs: Any) -> None:
        self.answers = {FLUXQUEUES.plural: queues, FLUXJOBS.plural: jobs}

    async def list(self, kind: Any, namespace: str | None = None) -> Any:
        assert namespace is None
        answer = self.answers[kind.plural]
        if isinstance(answer, Exception):
            raise answer
        return answer


def server(queues: Any, jobs: Any = ()) -> Api:
    return cast(Api, Server(queues, jobs))


async def test_queues_are_a_sequence_with_what_is_used_and_the_limits() -> None:
    found = await read_queues(server([NIGHT], [work("a", "n[1,1]", one(4, 2))]), NOW)
    default, night = found
    assert (default.name, default.pending, default.cores, default.most_cores) == ("default", None, 8.0, None)
    assert (night.name, night.pending, night.running, night.nodes, night.most_nodes, night.cores) == (
        "night",
        3,
        2,
        4,
        16,
        0.0,
    )
    assert str(found).splitlines()[0].split()[:3] == ["NAME", "STATE", "POLICY"]
    assert "4/16" in repr(found)
    assert found[1:] == [night]


async def test_who_may_not_list_all_work_does_not_know_the_cores() -> None:
    found = await read_queues(server([NIGHT], Forbidden(403, "Forbidden", "no")), NOW)
    assert found[1].cores is None
    assert "?/64" in str(found)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(NotFound(404, "NotFound", "no"), NotInstalled), (Forbidden(403, "Forbidden", "no"), NotPermitted)],
)
async def test_what_the_server_refuses_is_an_error_of_the_client(
    error: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        await read_queues(server(error), NOW)


def test_a_notebook_shows_a_table_in_which_nothing_of_the_cluster_is_html() -> None:
    listing = JobListing([fluxjob("<b>x</b>", state="Running", nodes="node-[4,4,5]")], NOW, namespaces=False)
    shown = listing._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown
    assert "node-4 (2), node-5" in shown
    assert JobListing([], NOW, namespaces=False)._repr_html_() == "<p>no work is here</p>"


def test_rich_prints_a_table_with_what_is_written_as_it_is() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(JobListing([fluxjob("[red]a[/red]", state="Running")], NOW, namespaces=False))
    shown = console.export_text()
    assert "OBJECT" in shown
    assert "job/[red]a[/red]" in shown
    console.print(JobListing([], NOW, namespaces=False))
    assert console.export_text() == "no work is here\n"
