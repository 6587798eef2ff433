"""Forecasts from the objects of an installation (`fluxqueue simulate --from-cluster`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import Json, PodBuilder, make_account, make_node, make_pod, make_queue, make_reservation

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, State
from fluxqueue.api.fluxqueues import Flavor, FluxQueue, Policy
from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.topology import ANYWHERE, DEFAULT_LEVELS, TopologyLevel, TopologyRequest
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.simulator.added_nodes import with_more_nodes
from fluxqueue.queue.simulator.cluster_snapshot import ClusterSnapshot, SiteObjects, snapshot_of
from fluxqueue.queue.simulator.forecasts import _Run, forecast, forecast_table, under
from fluxqueue.queue.simulator.main import main

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def a_node(name: str) -> Node:
    return msgspec.convert(make_node(name, cpu="4").build(), Node)


def a_fluxjob(
    name: str,
    pods: int,
    duration_s: int,
    *,
    hosts: str = "",
    queue: str = "default",
    hold: bool = False,
    topology: TopologyRequest = ANYWHERE,
    reservation: str = "",
    devices: int = 0,
    flavors: Sequence[Flavor] = (),
) -> FluxJob:
    """A job with pods of four cores.
    With hosts it has run for a minute, without it waits, in the order of names.
    """
    rules = PlacementRules(topology=topology, reservation=reservation, flavors=flavors)
    requests = {"cpu": Decimal(4), **({"devices/gpu.example.com/any": Decimal(devices)} if devices else {})}
    text = jobspec_of(name, [SizedPods(requests, pods)], duration_s=duration_s or None, placement=rules)
    spec = FluxJobSpec(
        ObjectRef("batch/v1", "Job", name),
        queue=queue,
        duration_seconds=duration_s,
        pods=pods,
        jobspec=text,
        hold=hold,
    )
    since = "2026-11-21T11:59:00Z"
    state = State.RUNNING if hosts else State.PENDING
    status = FluxJobStatus(
        state=state,
        nodes=hosts,
        submitted_at=f"2026-11-21T11:0{name[-1]}:00Z",
        allocated_at=since if hosts else None,
        jobid=7,
    )
    return FluxJob(ObjectMeta(name=name, namespace="team", uid=name), spec, status)


def a_snapshot(
    *jobs: FluxJob, nodes: int = 2, pods: Sequence[Pod] = (), reservations: Sequence[Json] = (), **queue: Any
) -> ClusterSnapshot:
    queues = [msgspec.convert(make_queue("default", **{"policy": "easy", **queue}), FluxQueue)]
    reserved = msgspec.convert(reservations, list[FluxReservation])
    site = SiteObjects(queues, reservations=reserved)
    return snapshot_of([a_node(f"n{number}") for number in range(nodes)], pods, jobs, site, NOW)


def a_pod(builder: PodBuilder) -> Pod:
    return msgspec.convert(builder.build(), Pod)


def waits(snapshot: ClusterSnapshot) -> dict[str, int | None]:
    """Return the seconds from now to each start, by name."""
    found = asyncio.run(forecast(snapshot)).starts
    return {
        each.name: None if (at := found[each.id]) is None else at - snapshot.now for each in snapshot.pending
    }


BLOCKED = (
    a_fluxjob("run-0", 1, 600, hosts="n0"),
    a_fluxjob("wide-1", 2, 300),
    a_fluxjob("long-2", 1, 900),
    a_fluxjob("short-3", 1, 500),
)


def test_pending_work_starts_when_running_work_has_ended_as_stated() -> None:
    assert waits(a_snapshot(*BLOCKED)) == {"wide-1": 540, "long-2": 840, "short-3": 0}


def test_the_table_distinguishes_policies_and_added_nodes() -> None:
    snapshot = a_snapshot(*BLOCKED)
    assert waits(under(snapshot, Policy.FCFS, 1)) == {"wide-1": 540, "long-2": 840, "short-3": 840}
    assert waits(with_more_nodes(snapshot, 2)) == {"wide-1": 0, "long-2": 0, "short-3": 300}


@pytest.mark.parametrize("policy", ["easy", "fcfs"])
def test_work_starts_in_a_flavor_when_it_has_waited_for_it(policy: str) -> None:
    flavors = (Flavor("own", {"name": "n0"}), Flavor("spot", {"name": "n1"}, 3_600))
    nodes = [
        msgspec.convert(make_node(name, cpu="4").label("name", name).build(), Node) for name in ("n0", "n1")
    ]
    jobs = [
        a_fluxjob("run-0", 1, 600, hosts="n0"),
        a_fluxjob("next-1", 1, 900, flavors=flavors),
        a_fluxjob("last-2", 1, 900, flavors=flavors),
    ]
    queues = [msgspec.convert(make_queue("default", policy=policy), FluxQueue)]
    snapshot = snapshot_of(nodes, (), jobs, SiteObjects(queues), NOW)
    assert waits(snapshot) == {"next-1": 60, "last-2": 540}


def test_flavors_that_open_to_work_that_has_started_are_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    flavors = (
        Flavor("own", {"name": "n0"}),
        *(Flavor(f"f{n}", {"name": "n9"}, 10_000 + n) for n in range(7)),
    )
    nodes = [msgspec.convert(make_node("n0", cpu="4").label("name", "n0").build(), Node)]
    jobs = [a_fluxjob("first-1", 1, 90_000, flavors=flavors), a_fluxjob("last-2", 1, 60)]
    times, cycle = list[int](), _Run._cycle

    async def counted(self: _Run, *options: Any, **more: Any) -> None:
        times.append(self._now)
        await cycle(self, *options, **more)

    monkeypatch.setattr(_Run, "_cycle", counted)
    queues = [msgspec.convert(make_queue("default", policy="fcfs"), FluxQueue)]
    assert waits(snapshot_of(nodes, (), jobs, SiteObjects(queues), NOW)) == {"first-1": 0, "last-2": 90_000}
    assert len(times) == 2


def test_the_end_of_work_that_overruns_moves() -> None:
    assert waits(a_snapshot(a_fluxjob("run-0", 2, 30, hosts="n[0-1]"), a_fluxjob("next-1", 2, 60))) == {
        "next-1": 15
    }


def test_nothing_is_planned_on_nodes_of_work_without_an_end() -> None:
    assert waits(a_snapshot(a_fluxjob("run-0", 1, 0, hosts="n0"), a_fluxjob("wide-1", 2, 60))) == {
        "wide-1": None
    }


def test_a_request_that_fits_no_node_has_a_reason_and_blocks_no_work() -> None:
    snapshot = a_snapshot(a_fluxjob("huge-1", 3, 60), a_fluxjob("next-2", 1, 60), policy="fcfs")
    assert waits(snapshot) == {"huge-1": None, "next-2": 0}
    assert "never: wants 3 pods" in forecast_table(snapshot, {"as it is": asyncio.run(forecast(snapshot))})


def test_held_work_and_work_without_a_queue_is_left_out_and_counted() -> None:
    held, lost = a_fluxjob("held-1", 1, 60, hold=True), a_fluxjob("lost-2", 1, 60, queue="gone")
    snapshot = a_snapshot(held, lost)
    assert snapshot.pending == ()
    assert dict(snapshot.left_out) == {"is held": 1, "waits in the queue 'gone', which does not exist": 1}


@pytest.mark.parametrize("reason", ["WaitingForDependency", "DependencyNeverSatisfied", "WaitingForBegin"])
def test_work_that_waits_for_other_work_or_a_time_is_left_out_and_counted(reason: str) -> None:
    first = a_fluxjob("later-0", 1, 600)
    later = msgspec.structs.replace(first, status=msgspec.structs.replace(first.status, reason=reason))
    snapshot = a_snapshot(later, a_fluxjob("now-1", 2, 300))
    assert waits(snapshot) == {"now-1": 0}
    assert snapshot.left_out == (("waits for other work or for a time, which is not forecast", 1),)


def test_work_that_claims_devices_is_left_out_while_it_waits_and_holds_its_nodes_while_it_runs() -> None:
    snapshot = a_snapshot(
        a_fluxjob("run-0", 1, 600, hosts="n0", devices=2),
        a_fluxjob("claims-1", 1, 60, devices=1),
        a_fluxjob("wide-2", 2, 60),
    )
    assert snapshot.left_out == (("claims devices, which are not forecast", 1),)
    assert waits(snapshot) == {"wide-2": 540}


ROWS = (("row", "example.com/row"), ("shelf", "example.com/shelf"))


def in_rows(*jobs: FluxJob, levels: Sequence[TopologyLevel] = ROWS) -> ClusterSnapshot:
    """Four nodes in two rows."""
    nodes = [
        msgspec.convert(make_node(f"n{n}", cpu="4").label("example.com/row", f"r{n % 2}").build(), Node)
        for n in range(4)
    ]
    return snapshot_of(nodes, (), jobs, SiteObjects(), NOW, levels)


def test_work_below_levels_of_the_topology_is_forecast() -> None:
    below = TopologyRequest(required="row")
    busy = a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("run-1", 1, 1_200, hosts="n1")
    assert waits(in_rows(*busy, a_fluxjob("row-2", 2, 60, topology=below))) == {"row-2": 540}
    assert waits(in_rows(*busy, a_fluxjob("row-2", 2, 60))) == {"row-2": 0}
    assert waits(in_rows(a_fluxjob("row-2", 3, 60, topology=below))) == {"row-2": None}


def test_work_below_an_unknown_level_is_left_out_with_the_remedy() -> None:
    snapshot = in_rows(
        a_fluxjob("row-2", 2, 60, topology=TopologyRequest(required="row")), levels=DEFAULT_LEVELS
    )
    assert snapshot.left_out == (
        ("asks for the level 'row': fluxqueue simulate takes the levels of the queue by --topology-level", 1),
    )


def test_foreign_pods_keep_their_nodes() -> None:
    snapshot = a_snapshot(
        a_fluxjob("wide-1", 2, 60), a_fluxjob("one-2", 1, 60), pods=[a_pod(make_pod().cpu("1").on_node("n0"))]
    )
    assert waits(snapshot) == {"wide-1": None, "one-2": 0}


def test_a_pod_of_a_live_allocation_is_counted_once() -> None:
    ours = a_pod(make_pod().cpu("4").on_node("n0").allocation("n0", jobid=7))
    snapshot = a_snapshot(a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("one-1", 1, 60), pods=[ours])
    assert snapshot.foreign == {}
    assert waits(snapshot) == {"one-1": 0}


def test_added_nodes_have_what_daemonsets_take_of_the_node_they_are_like() -> None:
    daemon = a_pod(make_pod().cpu("1").on_node("n0").owned_by("DaemonSet"))
    snapshot = with_more_nodes(a_snapshot(a_fluxjob("one-1", 1, 60), nodes=1, pods=[daemon]), 1)
    assert snapshot.foreign["added-1"] == snapshot.foreign["n0"] == {"cpu": 1000, "pods": 1}
    assert waits(snapshot) == {"one-1": None}


@pytest.mark.parametrize("limits", [{"running": 1}, {"nodes": 1}, {"cores": 4}])
def test_limits_of_a_queue_hold_in_a_forecast(limits: dict[str, int]) -> None:
    jobs = a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("one-1", 1, 60), a_fluxjob("two-2", 1, 60)
    assert waits(a_snapshot(*jobs, nodes=4, limits=limits)) == {"one-1": 540, "two-2": 600}


def test_a_running_job_whose_node_is_gone_blocks_no_work() -> None:
    assert waits(a_snapshot(a_fluxjob("run-0", 1, 600, hosts="gone"), a_fluxjob("wide-1", 2, 60))) == {
        "wide-1": 0
    }


def test_nodes_can_only_be_added_if_there_is_one_to_copy() -> None:
    with pytest.raises(ValueError, match="no node is up"):
        with_more_nodes(a_snapshot(nodes=0), 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from-cluster", "--jobs", "5"], "--jobs belongs to traces"),
        (["--add-nodes", "5"], "--add-nodes belongs to --from-cluster"),
        (["--topology-level", "row=example.com/row"], "--topology-level belongs to --from-cluster"),
        (
            ["--from-cluster", "--topology-level", "row"],
            "--topology-level: level 'row' has no label: name the node label",
        ),
    ],
)
def test_options_of_the_other_source_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_limit_of_the_account_of_a_namespace_delays_its_work_in_a_forecast_too() -> None:
    queues = [msgspec.convert(make_queue("default", policy="easy"), FluxQueue)]
    accounts = [
        msgspec.convert(make_account("physics", namespaces=["team"], limits={"running": 1}), FluxAccount)
    ]
    jobs = [a_fluxjob("one-1", 1, 600), a_fluxjob("two-2", 1, 600)]
    snapshot = snapshot_of([a_node("n0"), a_node("n1")], (), jobs, SiteObjects(queues, accounts), NOW)
    assert waits(snapshot) == {"one-1": 0, "two-2": 600}


def test_the_weights_of_a_queue_order_its_work_in_a_forecast_too() -> None:
    jobs = [
        a_fluxjob("run-0", 2, 600, hosts="n[0-1]"),
        a_fluxjob("first-1", 2, 300),
        a_fluxjob("wide-2", 2, 300),
    ]
    poor = make_account("poor", namespaces=["team"])
    poor["status"] = {"fairShare": {"factor": 0.5}}
    rich = make_account("rich", namespaces=["other"])
    rich["status"] = {"fairShare": {"factor": 1.0}}
    jobs[2] = msgspec.structs.replace(
        jobs[2], metadata=ObjectMeta(name="wide-2", namespace="other", uid="wide-2")
    )
    for weights, first in (({}, "first-1"), ({"fairShare": 100}, "wide-2")):
        queues = [msgspec.convert(make_queue("default", policy="easy", priorityWeights=weights), FluxQueue)]
        accounts = msgspec.convert([poor, rich], list[FluxAccount])
        found = waits(snapshot_of([a_node("n0"), a_node("n1")], (), jobs, SiteObjects(queues, accounts), NOW))
        assert min(found, key=lambda name: found[name] or 0) == first


IN_TEN_MINUTES = "2026-11-21T12:10:00"


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_work_that_would_overlap_a_maintenance_starts_after_it(policy: str) -> None:
    power = make_reservation("power", start=IN_TEN_MINUTES, nodes=["n0", "n1"], maintenance=True)
    snapshot = a_snapshot(
        a_fluxjob("long-1", 2, 900), a_fluxjob("next-2", 2, 60), reservations=[power], policy=policy
    )
    assert waits(snapshot) == {"long-1": 4_200, "next-2": 0 if policy == "easy" else 5_100}


def test_work_of_a_reservation_starts_within_it_on_the_nodes_of_its_status() -> None:
    course = {
        **make_reservation("course", start=IN_TEN_MINUTES, nodes={"count": 1}),
        "status": {"nodes": "n1", "nodeCount": 1},
    }
    snapshot = a_snapshot(
        a_fluxjob("mine-1", 1, 60, reservation="course"), a_fluxjob("other-2", 1, 900), reservations=[course]
    )
    assert [each.nodes for each in snapshot.reservations] == [("n1",)]
    assert waits(snapshot) == {"mine-1": 600, "other-2": 0}


def test_work_that_may_not_use_its_reservation_is_left_out_and_counted() -> None:
    lost = a_fluxjob("lost-1", 1, 60, reservation="gone")
    lost = msgspec.structs.replace(
        lost, status=msgspec.structs.replace(lost.status, reason="ReservationNotAllowed")
    )
    assert a_snapshot(lost).left_out == (("names a FluxReservation that it may not use", 1),)


@pytest.mark.parametrize(
    ("guaranteed", "found"),
    [({}, {"other-1": 0, "mine-2": 60}), ({"nodes": 1}, {"other-1": 100, "mine-2": 0})],
)
def test_work_within_a_guarantee_comes_first_in_a_forecast_too(
    guaranteed: dict[str, Any], found: dict[str, int]
) -> None:
    other, mine = a_fluxjob("other-1", 2, 60), a_fluxjob("mine-2", 1, 100)
    mine = msgspec.structs.replace(mine, metadata=msgspec.structs.replace(mine.metadata, namespace="md"))
    queues = [msgspec.convert(make_queue("default", policy="fcfs"), FluxQueue)]
    accounts = [
        msgspec.convert(make_account("physics", namespaces=["md"], guaranteed=guaranteed), FluxAccount)
    ]
    assert (
        waits(
            snapshot_of([a_node("n0"), a_node("n1")], (), (other, mine), SiteObjects(queues, accounts), NOW)
        )
        == found
    )


def test_a_queue_that_stops_at_a_limit_keeps_its_order_in_a_forecast_too() -> None:
    jobs = (a_fluxjob("run-0", 1, 160, hosts="n0"), a_fluxjob("wide-1", 2, 60), a_fluxjob("thin-2", 1, 60))
    found = {
        at_limit: waits(a_snapshot(*jobs, limits={"cores": 8}, atLimit=at_limit))["thin-2"]
        for at_limit in ("skip", "stop")
    }
    assert found == {"skip": 0, "stop": 160}


def budgeted(used: float, hours: int, *jobs: FluxJob, name: str = "md") -> ClusterSnapshot:
    """A cluster of two nodes whose namespace has a budget of core-hours a day."""
    spec = {
        "namespaces": ["team"],
        "budget": {"period": "1d", "start": "2026-11-01", "resourceHours": {"cpu": hours}},
    }
    document = make_account(name, **spec)
    shown = [{"name": "cpu", "hours": hours, "used": used}]
    document["status"] = {
        "budget": {"start": "2026-11-21T00:00:00Z", "end": "2026-11-22T00:00:00Z", "amounts": shown}
    }
    site = SiteObjects((), [msgspec.convert(document, FluxAccount)])
    known = [
        msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, account=name)) for job in jobs
    ]
    return snapshot_of([a_node(f"n{number}") for number in range(2)], (), known, site, NOW)


MIDNIGHT = 12 * 3_600


def test_work_starts_as_its_budget_allows_and_goes_on_in_the_next_period() -> None:
    jobs = [a_fluxjob(f"w-{number}", 1, 3_600) for number in range(4)]
    assert waits(budgeted(2, 10, *jobs)) == {"w-0": 0, "w-1": 0, "w-2": MIDNIGHT, "w-3": MIDNIGHT}


def test_running_work_is_counted_once_and_with_what_it_may_still_use() -> None:
    running = a_fluxjob("run-0", 1, 3_600, hosts="n0")
    assert waits(budgeted(4 / 60, 8, running, a_fluxjob("w-1", 1, 3_600))) == {"w-1": 0}
    assert waits(budgeted(1, 8, running, a_fluxjob("w-1", 1, 3_600))) == {"w-1": MIDNIGHT}


def test_work_beyond_every_budget_never_starts_and_ends_the_forecast() -> None:
    assert waits(budgeted(0, 3, a_fluxjob("w-0", 1, 3_600), a_fluxjob("w-1", 1, 600))) == {
        "w-0": None,
        "w-1": 0,
    }


def test_a_forecast_reaches_the_next_month_also_where_other_budgets_are_for_a_day() -> None:
    daily = make_account(
        "daily", namespaces=["other"], budget={"period": "1d", "start": "2026-11-01", "nodeHours": 1}
    )
    document = make_account(
        "md", namespaces=["team"], budget={"start": "2026-11-05", "resourceHours": {"cpu": 5}}
    )
    shown = [{"name": "cpu", "hours": 5, "used": 5}]
    document["status"] = {
        "budget": {"start": "2026-11-05T00:00:00Z", "end": "2026-12-05T00:00:00Z", "amounts": shown}
    }
    site = SiteObjects((), [msgspec.convert(each, FluxAccount) for each in (daily, document)])
    job = a_fluxjob("w-0", 1, 3_600)
    job = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, account="md"))
    assert waits(snapshot_of([a_node("n0")], (), [job], site, NOW)) == {"w-0": MIDNIGHT + 13 * 86_400}


def test_the_limits_of_users_hold_for_who_submitted_the_work() -> None:
    first, second, other = (a_fluxjob(name, 1, 300) for name in ("first-1", "second-2", "other-3"))
    named = [
        msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, submitted_by=user))
        for job, user in ((first, "ada"), (second, "ada"), (other, "bob"))
    ]
    assert waits(a_snapshot(*named, limits={"perUser": {"running": 1}})) == {
        "first-1": 0,
        "second-2": 300,
        "other-3": 0,
    }
