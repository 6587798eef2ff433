"""Room pods: what they ask for, how many there are, and whose turn it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.controller_bench import running_controllers, until
from support.node_request_bench import NAMESPACE, NodeRequestBench
from support.recording_ledger import RecordingLedger

from fluxqueue.api import names
from fluxqueue.queue.scheduling.provisioning import room_pods

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""Of every object of the API server in memory."""
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


async def test_room_pods_of_pods_with_host_ports_keep_apart_and_open_none(bench: NodeRequestBench) -> None:
    """The namespace of the queue may admit no host ports."""
    ports = [{"containerPort": 80, "hostPort": 80}, {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]
    room = await room_of(bench, containers=[{"name": "c", "ports": ports}])
    labels = room["metadata"]["labels"]
    own = {names.ROOM_LABEL: labels[names.ROOM_LABEL]}
    terms = room["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {**own, port: "open"}}}
        for port in ("fluxqueue/room-port-tcp-80", "fluxqueue/room-port-udp-53")
    ]
    assert (
        labels.items() >= {"fluxqueue/room-port-tcp-80": "open", "fluxqueue/room-port-udp-53": "open"}.items()
    )
    assert "ports" not in room["spec"]["containers"][0]


@pytest.mark.parametrize("way", ["gate", "pods"])
async def test_pods_of_which_a_node_may_have_so_many_are_counted_by_one_label(way: str) -> None:
    bench = NodeRequestBench(way)
    jobspec = '{"attributes": {"system": {"domains": [{"key": "", "most": 2}]}}}'
    async with running_controllers(bench.provisioner()):
        bench.ledger.put(replace(bench.wait("grows", 3), jobspec=jobspec))
        await until(lambda: bench.count() == 3)
    made = [
        *bench.rooms().values(),
        *(each["template"] for each in bench.server.all("podtemplates")),
    ]
    for pod in made:
        (constraint,) = pod["spec"]["topologySpreadConstraints"]
        assert constraint["maxSkew"] == 2
        assert constraint["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


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
    monkeypatch.setattr(room_pods, "MOST_OF_ONE_NAMESPACE", 4)
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
        told = [event[2] for event in bench.events.events]
        assert "by 3 of at most 5 pods: its own 4 are created when there is room" in told[0]
        assert told[1].startswith("older work of namespace default waits for nodes to be requested")
        bench.ledger.end(first)
        await until(lambda: len(bench.of("second")) == 4)
        assert bench.of("third") == []
        bench.ledger.end(second)
        await until(lambda: len(bench.of("third")) == 2)
        bench.ledger.end(third)
        await until(bench.nothing)


@pytest.mark.parametrize("gone", [False, True])
async def test_the_next_leader_counts_what_is_there_before_it_creates_any(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Whatever the order of the tables is, and if the first list fails."""
    monkeypatch.setattr(room_pods, "MOST_OF_ALL_WORK", 5)
    async with running_controllers(bench.provisioner()):
        first = bench.wait("first", 3)
        await until(lambda: bench.count() == 3)
        second, third = bench.wait("second", 3), bench.wait("third", 2)
        await until(lambda: len(bench.events.events) == 2)
    if gone:
        bench.ledger.end_in_tables(first)
    waiting = (third, second) if gone else (third, second, first)
    bench.ledger = RecordingLedger(*((row, None) for row in waiting))
    bench.server.fail_next("list", "pods", 500, "InternalError")
    del bench.server.writes[:]
    provisioner = bench.provisioner()
    async with running_controllers(provisioner):
        provisioner.resync()
        await until(lambda: bench.count() == 5 if gone else len(bench.events.events) == 4)
        await asyncio.sleep(0.05)
    assert [len(bench.of(name)) for name in ("first", "second", "third")] == (
        [0, 3, 2] if gone else [3, 0, 0]
    )
    made = [write.body["metadata"]["name"] for write in bench.server.writes if write.verb == "create"]
    assert [name.split("-")[1] for name in made] == (["second"] * 3 + ["third"] * 2 if gone else [])


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


async def test_one_namespace_holds_up_no_other(bench: NodeRequestBench) -> None:
    """Its Jobs get no nodes, and all that it may request is requested."""
    async with running_controllers(bench.provisioner()):
        bench.wait("a1", 1_000, namespace="a")
        await until(lambda: len(bench.asking()) == 1_000)
        bench.wait("a2", 1_000, namespace="a")
        await until(lambda: bench.events.events)
        assert "for other work of namespace a by 1,000 of at most 1,000 pods" in bench.events.events[0][2]
        bench.wait("b1", 1, namespace="b")
        await until(lambda: bench.of("b1"))
    assert bench.of("a2") == []


async def test_what_was_not_served_in_time_ends_if_others_wait_for_room(
    bench: NodeRequestBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_pods, "MOST_OF_ALL_WORK", 2)
    provisioner = bench.provisioner()
    bench.ledger.now = CREATED
    async with running_controllers(provisioner):
        for name in ("a", "b"):
            bench.wait(f"{name}1", 1, namespace=name)
            await until(lambda name=name: bench.of(f"{name}1"))  # type: ignore[misc]
        bench.ledger.now = CREATED + timedelta(minutes=16)
        provisioner.resync()
        await asyncio.sleep(0.05)
        assert bench.count() == 2, "nobody waits for their room"
        bench.wait("c1", 1, namespace="c")
        await until(lambda: bench.events.events)
        bench.ledger.now = CREATED + timedelta(minutes=14)
        provisioner.resync()
        await asyncio.sleep(0.05)
        assert bench.of("c1") == []
        bench.ledger.now = CREATED + timedelta(minutes=16)
        provisioner.resync()
        await until(lambda: bench.of("c1"))
        assert (bench.of("a1"), len(bench.of("b1"))) == ([], 1), "one pod needs the room of one"
    sentence = "the autoscaler did not add all nodes in 15 minutes, and other work waits to request some"
    told = {event[0]: event[2] for event in bench.events.events}
    assert told["Job a1"] == f"{sentence}; it is requested again in 5 minutes"
    assert "Job b1" not in told
