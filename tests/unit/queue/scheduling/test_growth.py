"""Cycles with moldable Jobs: they start with fewer pods, and grow when nodes are free that nobody else can
use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from support.builders import make_account, make_job
from support.queue_bench import START, Bench, a_machine, job
from support.queue_builders import a_job, around

from fluxqueue.api import hostlists
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.fluxqueues import Policy, QueueLimits
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.job_sizes import PATIENCE, JobPods
from fluxqueue.queue.model.records import NewWorkload, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies.disciplines import Discipline


class Clock:
    """The time, which tests move."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Sizes:
    """Jobs whose pods run as soon as they have nodes. Records what is asked of them."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.pods: dict[str, JobPods | None] = {}

    def pods_of(self, workload: Workload) -> JobPods | None:
        return self.pods.get(workload.uid)

    def resize(self, workload: WorkloadId, parallelism: int) -> None:
        self.asked.append(parallelism)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bench(clock: Clock) -> AsyncIterator[Bench]:
    async with a_machine(clock) as made:
        made.policy = Policy.EASY
        yield made


@pytest.fixture
def sizes(bench: Bench) -> Sizes:
    made = Sizes()
    bench.sizes = made
    return made


def moldable(name: str, pods: int, least: int, duration: str = "10m", **annotations: str) -> NewWorkload:
    builder = (
        make_job(name).indexed(pods).cpu("8").suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    builder = builder.annotation("fluxqueue/min-pods", str(least)).annotation("fluxqueue/duration", duration)
    for key, value in annotations.items():
        builder = builder.annotation(f"fluxqueue/{key}", value)
    described = describe_job(a_job(builder, uid=name), around())
    assert described is not None
    return described


def hosts(bench: Bench, name: str) -> list[str]:
    return hostlists.decode(bench.row(name).hosts)


async def run(bench: Bench, *names: str) -> None:
    """Release workloads, and have all their pods run."""
    rows = [bench.row(name) for name in names]
    await bench.ledger.mark_released([row.jobid for row in rows if row.jobid is not None])
    await bench.ledger.mark_started([row.id for row in rows])


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


async def started_small(bench: Bench, sizes: Sizes) -> None:
    """Start a Job of four pods with one of them, beside one of three nodes."""
    await bench.submit(job("long", 3, "8", duration="1h"), moldable("wide", 4, 1))
    await bench.cycle()
    assert len(hosts(bench, "wide")) == 1
    await run(bench, "long", "wide")
    sizes.pods["wide"] = JobPods(parallelism=1, full=4, least=1, left=4, active=1)


async def test_a_job_starts_with_the_nodes_that_are_free_where_that_ends_it_sooner(
    bench: Bench, sizes: Sizes
) -> None:
    await started_small(bench, sizes)
    allocation = bench.ledger.allocation(bench.row("wide").id)
    assert allocation is not None
    assert allocation.end == START + timedelta(minutes=40)


async def test_a_job_waits_where_that_does_not_end_it_sooner(bench: Bench) -> None:
    await bench.submit(job("long", 3, "8", duration="29m"), moldable("wide", 4, 1))
    await bench.cycle()
    assert bench.row("wide").state is State.PENDING


async def test_a_small_start_delays_no_reservation(bench: Bench) -> None:
    await bench.submit(
        job("long", 3, "8", duration="30m"), job("first", 4, "8", duration="1h"), moldable("wide", 4, 1)
    )
    await bench.cycle()
    assert [bench.row(name).state for name in ("first", "wide")] == [State.PENDING] * 2, (
        "with one pod it would run for 40 minutes"
    )


async def test_nothing_grows_while_no_node_is_free(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    await bench.cycle()
    assert sizes.asked == []


async def test_a_job_grows_by_what_became_free(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == [4]
    assert len(await bench.held()) == 1, "asking holds nothing"


async def test_jobs_do_not_grow_into_the_same_nodes(bench: Bench, sizes: Sizes) -> None:
    await bench.submit(
        job("long", 2, "8", duration="1h"), job("short", 1, "8", duration="50m"), moldable("a", 4, 1)
    )
    await bench.cycle()
    await end(bench, "short")
    await bench.submit(moldable("b", 4, 1))
    await bench.cycle()
    assert [len(hosts(bench, name)) for name in ("a", "b")] == [1, 1]
    await run(bench, "a", "b")
    sizes.pods = dict.fromkeys(("a", "b"), JobPods(parallelism=1, full=4, least=1, left=4, active=1))
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == [3], "two nodes are free, and the first Job gets both"


async def test_further_jobs_grow_once_the_pods_of_the_first_are_there(
    bench: Bench, sizes: Sizes, clock: Clock
) -> None:
    await started_small(bench, sizes)
    await end(bench, "long")
    await bench.cycle()
    await bench.cycle()
    assert sizes.asked == [4]
    clock.now += timedelta(seconds=4)
    bench.graph.note_capacity_changed()
    await bench.cycle()
    assert sizes.asked == [4, 4], "the Job of this test never gets its pods"


async def test_what_waits_is_matched_before_a_job_grows(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    await bench.submit(job("waits", 2, "8", duration="1h"))
    await bench.cycle()
    await end(bench, "long")
    await bench.cycle()
    assert bench.row("waits").state is State.ALLOCATED
    assert sizes.asked == [2]


async def test_a_job_does_not_grow_into_what_is_reserved(bench: Bench, sizes: Sizes, clock: Clock) -> None:
    await started_small(bench, sizes)
    await bench.submit(job("all", 4, "8", duration="1h"))
    await end(bench, "long")
    await bench.cycle()
    assert bench.row("all").state is State.PENDING
    assert sizes.asked == [4], "it ends with the pod that it has, before which the reservation cannot begin"
    sizes.asked.clear()
    clock.now += timedelta(seconds=5)
    await bench.submit(job("urgent", 3, "8", duration="10m", priority=10))
    await bench.cycle()
    assert bench.row("urgent").state is State.ALLOCATED
    assert sizes.asked == []


async def test_nothing_grows_past_the_first_in_strict_order(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    bench.policy = Policy.FCFS
    await bench.submit(job("all", 4, "8", duration="1h"))
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == []


@pytest.mark.parametrize(
    ("limits", "asked"),
    [(QueueLimits(cores=24), [3]), (QueueLimits(nodes=2), [2]), (QueueLimits(cores=8), [])],
)
async def test_a_job_grows_within_the_limits(
    bench: Bench, sizes: Sizes, limits: QueueLimits, asked: list[int]
) -> None:
    await started_small(bench, sizes)
    bench.limits = limits
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == asked


@pytest.mark.parametrize(("hours", "asked"), [(1, []), (2, [3]), (3, [4])])
async def test_a_job_grows_by_the_pods_that_its_budget_would_let_start(
    bench: Bench, sizes: Sizes, hours: int, asked: list[int]
) -> None:
    bench.accounts = account_tree(
        [msgspec.convert(make_account("md", budget={"nodeHours": hours}), FluxAccount)]
    )
    await bench.submit(job("long", 3, "8", duration="1h"), replace(moldable("wide", 4, 1), account="md"))
    await bench.cycle()
    await run(bench, "long", "wide")
    sizes.pods["wide"] = JobPods(parallelism=1, full=4, least=1, left=4, active=1)
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == asked, "each pod is planned for the 40 minutes that the Job still takes"


@pytest.mark.parametrize(
    "pods", [None, JobPods(parallelism=4, full=4, least=1, left=4, active=4)], ids=["unknown", "full"]
)
async def test_a_job_that_cannot_grow_is_left_alone(bench: Bench, sizes: Sizes, pods: JobPods | None) -> None:
    await started_small(bench, sizes)
    sizes.pods["wide"] = pods
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == []


async def test_pods_without_a_node_are_given_up_and_the_job_rests(
    bench: Bench, sizes: Sizes, clock: Clock
) -> None:
    await started_small(bench, sizes)
    grown = JobPods(parallelism=3, full=4, least=1, left=4, active=3, waiting=2, waiting_since=clock.now)
    sizes.pods["wide"] = grown
    await bench.cycle()
    assert sizes.asked == []
    clock.now += PATIENCE
    await bench.cycle()
    assert sizes.asked == [1]
    sizes.pods["wide"] = replace(grown, parallelism=1, active=1, waiting=0, waiting_since=None)
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == [1], "it rests"


async def test_a_job_that_has_ended_does_not_grow(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    await end(bench, "wide")
    await end(bench, "long")
    await bench.cycle()
    assert sizes.asked == []


async def test_a_new_leader_lets_jobs_grow_that_it_finds(bench: Bench, sizes: Sizes) -> None:
    await started_small(bench, sizes)
    await end(bench, "long")
    again = Bench(bench.store, bench.ledger, bench.fluxion, bench.nodes)
    again.policy = Policy.EASY
    again.sizes = sizes
    await again.cycle()
    assert sizes.asked == [4]


async def test_work_that_yields_lets_a_small_start_pass_only_beside_its_reservation(bench: Bench) -> None:
    bench.other_queues = {"urgent": Discipline(Policy.EASY)}
    await bench.submit(job("long", 3, "8", duration="30m"), job("first", 4, "8", duration="1h"))
    await bench.cycle()
    await bench.submit(replace(moldable("wide", 4, 1, "5m"), queue="urgent", priority=10))
    await bench.cycle()
    assert bench.row("wide").state is State.ALLOCATED, (
        "20 minutes with one pod end before the reservation begins"
    )
    assert "reserved for it from 2026-11-21T08:30:00Z" in bench.row("first").message
