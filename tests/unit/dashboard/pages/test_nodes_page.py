import msgspec
from support.dashboard_site import LISTS_ALL, Stage, job, node

from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import NodeSpec, Taint
from fluxqueue.dashboard.pages.nodes_page import nodes_page
from fluxqueue.dashboard.site import Asked

NODES = ("list", "nodes", "")


async def html(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> str:
    viewer = await stage.viewer("alice", *rights)
    return str(
        (await nodes_page(stage.site, Asked(viewer, await stage.site.visible(viewer), parameters))).html
    )


def stage() -> Stage:
    made = Stage(levels=("zone",))
    for number in range(1, 4):
        made.state.nodes.apply(node(f"node-{number}", zone=f"z{number % 2}"))
    made.show(
        job("wrf", state="Running", nodes="node-1"), job("secret", "red", state="Running", nodes="node-1")
    )
    return made


async def test_who_may_not_list_nodes_sees_none() -> None:
    text = await html(stage(), LISTS_ALL)
    assert "You may not list nodes" in text
    assert "node-1" not in text


async def test_the_map_has_groups_and_uses() -> None:
    text = await html(stage(), LISTS_ALL, NODES)
    assert "<h3>z0</h3>" in text
    assert "3 ready." in text
    assert "job/wrf (blue)" in text


async def test_one_node_lists_its_work_without_that_of_others() -> None:
    text = await html(stage(), ("list", "fluxjobs", "blue"), NODES, node="node-1")
    assert 'id="chosen-node">node-1' in text
    assert "job/wrf</a> in blue, Running, 1 pod here" in text
    assert "1 other job, of namespaces that you do not see" in text
    assert "secret" not in text


async def test_nodes_are_filtered_and_bounded() -> None:
    made = stage()
    assert "1 ready." in await html(made, LISTS_ALL, NODES, q="NODE-2")
    assert "No node matches." in await html(made, LISTS_ALL, NODES, q="<b>")
    for number in range(5_100):
        made.state.nodes.apply(node(f"many-{number:04}"))
    assert "103 more are not shown: filter by name." in await html(made, LISTS_ALL, NODES)


async def test_nodes_are_filtered_by_what_they_are() -> None:
    made = stage()
    made.state.nodes.apply(node("node-9", cordoned=True))
    everything = {"node-1", "node-2", "node-3", "node-9"}
    for state, shown in (
        ("free", {"node-2", "node-3"}),
        ("cordoned", {"node-9"}),
        ("down", set()),
        ("x", everything),
    ):
        text = await html(made, LISTS_ALL, NODES, state=state)
        assert {name for name in everything if f'href="?node={name}' in text} == shown


async def test_the_work_on_the_nodes_is_listed_with_how_many_it_has() -> None:
    text = await html(stage(), ("list", "fluxjobs", "blue"), NODES)
    assert 'data-job="blue-wrf"' in text
    assert 'job/wrf <span class="quiet">1 node</span>' in text
    assert "red-secret" not in text


async def test_many_nodes_are_small_tiles() -> None:
    made = stage()
    assert 'class="map"' in await html(made, LISTS_ALL, NODES)
    for number in range(201):
        made.state.nodes.apply(node(f"many-{number:04}"))
    text = await html(made, LISTS_ALL, NODES)
    assert 'class="map dense"' in text
    assert 'aria-label="many-0001, ready: no work' in text


async def test_a_node_is_found_by_its_state_behind_more_nodes_than_are_shown() -> None:
    made = Stage()
    for number in range(1, 5_101):
        made.state.nodes.apply(node(f"node-{number}", ready=number != 5_090))
    text = await html(made, LISTS_ALL, NODES, state="down")
    assert 'href="?node=node-5090' in text
    assert text.count('href="?node=') == 1
    assert "1 down, 5,099 ready." in text
    assert "more are not shown" not in text
    free = await html(made, LISTS_ALL, NODES, state="free")
    assert free.count('href="?node=') == 5_000
    assert "99 more are not shown" in free


async def test_the_map_is_coloured_by_whose_work_it_is() -> None:
    made = stage()
    made.show(
        job("a", state="Running", nodes="node-2", account="physics", submittedBy="bob"),
        job("b", state="Running", nodes="node-3", account="physics", submittedBy="x y"),
    )
    text = await html(made, LISTS_ALL, NODES, by="account")
    assert "<h2>Accounts on these nodes" in text
    assert 'physics <span class="quiet">2 nodes</span>' in text
    assert 'href="/queue?state=live&amp;account=physics" data-job="account-physics"' in text
    assert 'no account <span class="quiet">1 node</span>' in text
    assert text.count('class="ground"') == 3
    assert 'data-job="user-x%20y"' in await html(made, LISTS_ALL, NODES, by="user")
    assert "use-" in await html(made, LISTS_ALL, NODES, by="nonsense")


async def test_nodes_that_take_no_work_are_listed_with_why() -> None:
    made = stage()
    for name in ("node-8", "node-9"):
        made.state.nodes.apply(node(name, cordoned=True))
    spec = {"maintenance": True}
    status = {"state": "Active", "nodes": "node-[8-9]", "start": "2026-03-02T11:00:00Z"}
    meta = {"name": "cooling", "uid": "cooling"}
    made.state.reservations.apply(
        msgspec.convert({"metadata": meta, "spec": spec, "status": status}, FluxReservation)
    )
    text = await html(made, LISTS_ALL, NODES)
    assert "<strong>node-[8-9]</strong> cordoned, and nothing says why" in text
    made.clock.now += 60
    text = await html(made, LISTS_ALL, NODES, ("list", "fluxreservations", ""))
    assert "<strong>node-[8-9]</strong> cordoned: FluxReservation cooling" in text


async def test_a_taint_that_usable_nodes_have_too_is_no_reason() -> None:
    made = stage()
    gpu = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
    for name, broken in (("gpu-1", False), ("gpu-2", True)):
        taints = [gpu, Taint(key="disk", value="broken", effect="NoSchedule")] if broken else [gpu]
        spec = NodeSpec(unschedulable=broken, taints=taints)
        made.state.nodes.apply(msgspec.structs.replace(node(name), spec=spec))
    for parameters in ({}, {"q": "gpu-2"}):
        text = await html(made, LISTS_ALL, NODES, **parameters)
        assert "<strong>gpu-2</strong> cordoned: taint disk=broken" in text
        assert "taint nvidia.com/gpu" not in text
