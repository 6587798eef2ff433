"""What `fluxqueue simulate --from-cluster` makes of the objects of an installation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from builders import PodBuilder, make_node, make_pod, make_queue

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, State
from fluxqueue.api.fluxqueues import FluxQueue, Policy
from fluxqueue.api.objects import Node, ObjectMeta, Pod
from fluxqueue.queue.jobspecs import Role, jobspec_of
from fluxqueue.queue.simulator.forecasts import forecast, forecast_table, under
from fluxqueue.queue.simulator.main import main
from fluxqueue.queue.simulator.situations import Situation, situation_of, with_more_nodes

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def a_node(name: str) -> Node:
    return msgspec.convert(make_node(name, cpu="4").build(), Node)


def a_fluxjob(name: str, pods: int, duration_s: int, *, hosts: str = "", queue: str = "default", hold: bool = False) -> FluxJob:
    """Pods of four cores each; with hosts it has run for a minute, without it waits, in order of its name."""
    text = jobspec_of(name, [Role({"cpu": Decimal(4)}, pods)], duration_s=duration_s or None)
    spec = FluxJobSpec(ObjectRef("batch/v1", "Job", name), queue=queue, duration_seconds=duration_s, pods=pods, jobspec=text, hold=hold)
    since = "2026-11-21T11:59:00Z"
    state = State.RUNNING if hosts else State.PENDING
    status = FluxJobStatus(
        state=state, nodes=hosts, submitted_at=f"2026-11-21T11:0{name[-1]}:00Z", allocated_at=since if hosts else None, jobid=7
    )
    return FluxJob(ObjectMeta(name=name, namespace="team", uid=name), spec, status)


def a_situation(*jobs: FluxJob, nodes: int = 2, pods: Sequence[Pod] = (), **queue: Any) -> Situation:
    queues = [msgspec.convert(make_queue("default", **{"policy": "easy", **queue}), FluxQueue)]
    return situation_of([a_node(f"n{number}") for number in range(nodes)], pods, jobs, queues, NOW)


def a_pod(builder: PodBuilder) -> Pod:
    return msgspec.convert(builder.build(), Pod)


def waits(situation: Situation) -> dict[str, int | None]:
    """Seconds from now to each start, by name."""
    found = asyncio.run(forecast(situation)).starts
    return {each.name: None if (at := found[each.id]) is None else at - situation.now for each in situation.pending}


BLOCKED = (a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("wide-1", 2, 300), a_fluxjob("long-2", 1, 900), a_fluxjob("short-3", 1, 500))


def test_who_waits_starts_when_what_runs_has_ended_as_it_says() -> None:
    assert waits(a_situation(*BLOCKED)) == {"wide-1": 540, "long-2": 840, "short-3": 0}


def test_another_policy_and_more_nodes_are_told_apart() -> None:
    situation = a_situation(*BLOCKED)
    assert waits(under(situation, Policy.FCFS, 1)) == {"wide-1": 540, "long-2": 840, "short-3": 840}
    assert waits(with_more_nodes(situation, 2)) == {"wide-1": 0, "long-2": 0, "short-3": 300}


def test_what_runs_longer_than_it_said_is_believed_anew() -> None:
    assert waits(a_situation(a_fluxjob("run-0", 2, 30, hosts="n[0-1]"), a_fluxjob("next-1", 2, 60))) == {"next-1": 30}


def test_work_without_an_end_is_never_planned_upon() -> None:
    assert waits(a_situation(a_fluxjob("run-0", 1, 0, hosts="n0"), a_fluxjob("wide-1", 2, 60))) == {"wide-1": None}


def test_a_request_that_fits_no_node_says_so_and_holds_nobody_up() -> None:
    situation = a_situation(a_fluxjob("huge-1", 3, 60), a_fluxjob("next-2", 1, 60), policy="fcfs")
    assert waits(situation) == {"huge-1": None, "next-2": 0}
    assert "never: wants 3 slots" in forecast_table(situation, {"as it is": asyncio.run(forecast(situation))})


def test_what_is_held_or_has_no_queue_is_left_out_and_counted() -> None:
    held, lost = a_fluxjob("held-1", 1, 60, hold=True), a_fluxjob("lost-2", 1, 60, queue="gone")
    situation = a_situation(held, lost)
    assert situation.pending == ()
    assert dict(situation.left_out) == {"is held": 1, "waits in the queue 'gone', which does not exist": 1}


def test_pods_from_outside_the_queue_keep_their_room() -> None:
    situation = a_situation(a_fluxjob("wide-1", 2, 60), a_fluxjob("one-2", 1, 60), pods=[a_pod(make_pod().cpu("1").on_node("n0"))])
    assert waits(situation) == {"wide-1": None, "one-2": 0}


def test_a_pod_of_a_live_allocation_is_counted_once() -> None:
    ours = a_pod(make_pod().cpu("4").on_node("n0").allocation("n0", jobid=7))
    situation = a_situation(a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("one-1", 1, 60), pods=[ours])
    assert situation.foreign == {}
    assert waits(situation) == {"one-1": 0}


def test_added_nodes_have_what_daemonsets_take_of_the_node_they_are_like() -> None:
    daemon = a_pod(make_pod().cpu("1").on_node("n0").owned_by("DaemonSet"))
    situation = with_more_nodes(a_situation(a_fluxjob("one-1", 1, 60), nodes=1, pods=[daemon]), 1)
    assert situation.foreign["added-1"] == situation.foreign["n0"] == {"cpu": 1000, "pods": 1}
    assert waits(situation) == {"one-1": None}


@pytest.mark.parametrize("limits", [{"running": 1}, {"nodes": 1}, {"cores": 4}])
def test_limits_of_a_queue_are_heeded(limits: dict[str, int]) -> None:
    jobs = a_fluxjob("run-0", 1, 600, hosts="n0"), a_fluxjob("one-1", 1, 60), a_fluxjob("two-2", 1, 60)
    assert waits(a_situation(*jobs, nodes=4, limits=limits)) == {"one-1": 540, "two-2": 600}


def test_a_running_job_whose_node_went_holds_nobody_up() -> None:
    assert waits(a_situation(a_fluxjob("run-0", 1, 600, hosts="gone"), a_fluxjob("wide-1", 2, 60))) == {"wide-1": 0}


def test_nodes_can_only_be_added_where_there_is_one_to_copy() -> None:
    with pytest.raises(ValueError, match="no node is up"):
        with_more_nodes(a_situation(nodes=0), 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--from-cluster", "--jobs", "5"], "--jobs belongs to traces"), (["--add-nodes", "5"], "--add-nodes belongs to --from-cluster")],
)
def test_options_of_the_other_source_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
