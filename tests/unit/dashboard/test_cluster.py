import asyncio

from support.dashboard_site import job, node

from fluxqueue.dashboard.cluster import ClusterState


def test_every_change_raises_the_version() -> None:
    state = ClusterState()
    state.jobs.apply(job("a"))
    state.jobs.apply(job("a", version=2))
    state.nodes.apply(node("node-1"))
    state.jobs.remove(job("a", version=2))
    assert state.version == 4


def test_the_namespaces_are_those_that_have_work() -> None:
    state = ClusterState()
    state.jobs.apply(job("a"))
    state.jobs.apply(job("b"))
    state.jobs.apply(job("c", "red"))
    state.jobs.apply(job("c", "red", version=2))
    assert [*state.namespaces] == ["blue", "red"]
    assert state.namespaces is state.namespaces
    state.jobs.remove(job("a"))
    state.jobs.remove(job("c", "red", version=2))
    assert [*state.namespaces] == ["blue"]


def test_heartbeats_of_nodes_are_no_changes() -> None:
    state = ClusterState()
    state.nodes.apply(node("node-1"))
    state.nodes.apply(node("node-1", version=2))
    assert state.version == 1
    down = node("node-1", version=3, ready=False)
    state.nodes.apply(down)
    state.nodes.remove(down)
    assert state.version == 3


async def test_who_waits_for_a_change_is_woken_by_it() -> None:
    state = ClusterState()
    waiting = asyncio.create_task(state.changed_since(0, 60))
    await asyncio.sleep(0)
    state.jobs.apply(job("a"))
    assert await asyncio.wait_for(waiting, 60)
    assert await state.changed_since(0, 60)


async def test_who_waits_in_vain_is_told() -> None:
    assert not await ClusterState().changed_since(0, 0.01)
