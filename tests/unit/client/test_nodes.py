from __future__ import annotations

from typing import Any, cast

import pytest
from support.node_work import node, one, work

from fluxqueue.client import AsyncClient, InvalidWork, NotPermitted
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.kinds import FLUXJOBS, NODES
from fluxqueue.kube.transport import Api

NO = Forbidden(403, "Forbidden", "no")


class Server:
    """Lists nodes, and the work of one namespace or of all."""

    def __init__(self, nodes: Any, everything: Any = (), own: Any = ()) -> None:
        self.answers = {
            (NODES.plural, None): nodes,
            (FLUXJOBS.plural, None): everything,
            (FLUXJOBS.plural, "team"): own,
        }
        self.selectors: list[str | None] = []

    async def list(
        self, kind: Any, namespace: str | None = None, *, label_selector: str | None = None
    ) -> Any:
        self.selectors.append(label_selector)
        answer = self.answers[kind.plural, namespace]
        if isinstance(answer, Exception):
            raise answer
        return answer


def client(server: Server) -> AsyncClient:
    return AsyncClient(cast(Api, server), "team")


async def test_nodes_are_a_sequence_with_what_work_uses_of_them() -> None:
    listed = await client(
        Server([node("n2", cordoned=True), node("n1")], [work("a", "n[1,1]", one(2, 2, gpus=1))])
    ).nodes()
    first, second = listed
    assert (first.name, first.state, first.cores, first.cores_used, first.gpus_used, first.work) == (
        "n1",
        "allocated",
        8,
        4,
        2,
        {"default/job/a": 2},
    )
    assert (second.state, second.reason, second.memory_gib, second.memory_gib_used) == (
        "drained",
        "cordoned",
        32,
        0,
    )
    assert str(listed).splitlines()[0].split() == ["NODE", "STATE", "CPU", "GPU", "REASON", "WORK"]
    assert "<td>default/job/a (2)</td>" in listed._repr_html_()


async def test_nodes_of_some_labels_and_states_are_chosen() -> None:
    server = Server([node("n1"), node("n2", cordoned=True)])
    assert [each.name for each in await client(server).nodes(selector="gpu=true", states="Drained")] == ["n2"]
    assert server.selectors[0] == "gpu=true"
    with pytest.raises(
        InvalidWork, match="states: 'busy' is not a state of nodes: there are idle, mixed, allocated"
    ):
        await client(server).nodes(states=["busy"])
    assert str(await client(server).nodes(states=["down"])) == "there are no such nodes"


async def test_a_listing_says_if_not_all_work_is_in_it() -> None:
    listed = await client(Server([node("n1")], NO, [work("a", "n1", one(2))])).nodes()
    assert (listed[0].state, listed.only) == ("mixed", "team")
    assert str(listed).endswith(
        "Only the work of namespace team is shown: you may not list the FluxJobs of all."
    )
    assert "Only the work of namespace team is shown" in listed._repr_html_()


async def test_who_may_not_list_nodes_is_told() -> None:
    with pytest.raises(NotPermitted, match="ask for this right"):
        await client(Server(NO)).nodes()
