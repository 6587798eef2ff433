"""Room pods: what they ask for, how many there are, and whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest
from support.controller_bench import running_controllers, until
from support.node_request_bench import NAMESPACE, NodeRequestBench

from fluxqueue.api import names
from fluxqueue.queue.scheduling import room_pods

HOSTNAME_APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "solver"}}}
        ]
    }
}
ON_ARM: dict[str, Any] = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}
}


@pytest.fixture
def bench() -> NodeRequestBench:
    return NodeRequestBench("pods")


async def room_of(bench: NodeRequestBench, **spec: Any) -> dict[str, Any]:
    """Return a room pod of work with these fields of its pods."""
    async with running_controllers(bench.provisioner()):
        bench.wait("grows", 1, **spec)
        await until(bench.asking)
    (room,) = bench.rooms().values()
    return room


async def test_a_room_pod_has_the_placement_of_the_work_and_never_runs(bench: NodeRequestBench) -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    affinity = {
        "nodeAffinity": ON_ARM,
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    }
    room = await room_of(bench, nodeSelector={"pool": "large"}, tolerations=tolerations, affinity=affinity)
    spec = room["spec"]
    assert room["metadata"]["namespace"] == NAMESPACE
    assert {name: spec[name] for name in ("nodeSelector", "tolerations", "affinity")} == {
        "nodeSelector": {"pool": "large"},
        "tolerations": tolerations,
        "affinity": {"nodeAffinity": ON_ARM},
    }
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert spec["schedulerName"] == names.ROOM_SCHEDULER
    assert spec["automountServiceAccountToken"] is False


async def test_no_label_of_the_work_is_on_its_room_pods(bench: NodeRequestBench) -> None:
    async with running_controllers(bench.provisioner()):
        bench.wait("grows", 1, labels={"app.kubernetes.io/name": "fluxqueue"})
        await until(bench.asking)
    (room,) = bench.rooms().values()
    assert set(room["metadata"]["labels"]) == {names.PROVISIONS_LABEL, names.ROOM_LABEL}


@pytest.mark.parametrize(("app", "apart"), [("solver", True), ("other", False)])
async def test_room_pods_of_work_that_wants_one_node_for_each_pod_keep_apart(
    bench: NodeRequestBench, app: str, apart: bool
) -> None:
    async with running_controllers(bench.provisioner()):
        bench.wait("grows", 1, labels={"app": app}, affinity=HOSTNAME_APART)
        await until(bench.asking)
    (room,) = bench.rooms().values()
    own = {"matchLabels": {names.ROOM_LABEL: room["metadata"]["labels"][names.ROOM_LABEL]}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    wanted = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert room["spec"].get("affinity") == (wanted if apart else None)


async def test_a_lost_condition_is_written_again(bench: NodeRequestBench) -> None:
    provisioner = bench.provisioner()
    async with running_controllers(provisioner):
        bench.wait("grows", 2)
        await until(lambda: len(bench.asking()) == 2)
        name, room = min(bench.rooms().items())
        bench.server.put("pods", {**room, "status": {}})
        assert len(bench.asking()) == 1
        provisioner.resync()
        await until(lambda: name in bench.asking())


async def test_work_with_too_many_pods_is_told_so(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_pods, "MOST_OF_ONE_WORKLOAD", 4)
    async with running_controllers(bench.provisioner()):
        bench.wait("wide", 5)
        await until(lambda: bench.events.events)
    (event,) = bench.events.events
    assert event[:2] == ("Job wide", "ProvisioningFailed")
    assert event[2].startswith("it has 5 pods: nodes are requested for at most 4 by pods, so split it")
    assert bench.nothing()


async def test_the_oldest_work_asks_first_when_there_is_room_again(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A younger one that would fit does not go ahead, so a wide one gets its turn."""
    monkeypatch.setattr(room_pods, "MOST_OF_ALL_WORK", 5)
    async with running_controllers(bench.provisioner()):
        first = bench.wait("first", 3)
        await until(lambda: bench.count() == 3)
        second, third = bench.wait("second", 4), bench.wait("third", 2)
        await until(lambda: len(bench.events.events) == 2)
        assert (bench.of("second"), bench.of("third")) == ([], [])
        assert "by 3 of at most 5 pods: its own 4 are created when there is room" in bench.events.events[0][2]
        bench.ledger.end(first)
        await until(lambda: len(bench.of("second")) == 4)
        assert bench.of("third") == []
        bench.ledger.end(second)
        await until(lambda: len(bench.of("third")) == 2)
        bench.ledger.end(third)
        await until(bench.nothing)


async def test_work_that_stops_waiting_for_its_turn_holds_up_nobody(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_pods, "MOST_OF_ALL_WORK", 5)
    async with running_controllers(bench.provisioner()):
        bench.wait("first", 3)
        await until(lambda: bench.count() == 3)
        second = bench.wait("second", 4)
        await until(lambda: bench.events.events)
        bench.wait("third", 2)
        await until(lambda: len(bench.events.events) == 2)
        bench.ledger.end(second)
        await until(lambda: len(bench.of("third")) == 2)
