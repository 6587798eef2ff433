"""What is not asked because something smaller was refused changes no start, no reservation and no reason."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.graphnames import resource_type
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, MatchResult, NodeShare, Pool
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of, shape_of
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.policies import refusals
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import (
    CycleContext,
    HeldReservation,
    PendingQueue,
    RefusalCache,
)
from fluxqueue.queue.scheduling.policies.refusals import Refusals
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver

NOW = 1_800_000_000
MEBI = 1 << 20
WORLDS = 30
GPU = resource_type("nvidia.com/gpu")
QUEUES = ("a", "b")
POLICIES = [
    Discipline(Policy.FCFS),
    Discipline(Policy.EASY),
    Discipline(Policy.HYBRID, 2),
    Discipline(Policy.CONSERVATIVE, 3),
]
MATCH_POLICIES = ["lonode", "hinodex", "first", "low", "locality"]
Seen = tuple[
    dict[str, tuple[NodeShare, ...]],
    dict[str, tuple[int, tuple[NodeShare, ...]]],
    dict[str, tuple[Reason, str]],
]
"""Grants, reservations and reasons of a round, by name."""


def a_request(rng: random.Random, number: int) -> Workload:
    """Work of one of very many sizes, on any nodes or on some."""
    pods, minutes = rng.choice((1, 1, 1, 2, 3)), rng.randint(1, 240)
    requests = {"cpu": Decimal(rng.randint(1, 40)) / 4, "memory": Decimal(rng.randint(1, 40) * 512 * MEBI)}
    if rng.random() < 0.2:
        requests["nvidia.com/gpu"] = Decimal(rng.randint(1, 2))
    nodes = [f"n{node}" for node in sorted(rng.sample(range(4), rng.randint(1, 3)))]
    placement = PlacementRules(
        constraint={"hostlist": nodes} if rng.random() < 0.3 else None,
        one_per_node=rng.random() < 0.3,
    )
    least = rng.randint(1, pods) if rng.random() < 0.3 else 0
    jobspec = jobspec_of(
        f"default/w{number}",
        [SizedPods(requests, pods)],
        duration_s=60 * minutes,
        placement=placement,
        min_pods=least,
    )
    predicted_s = rng.randint(1, minutes) * 60 if rng.random() < 0.2 else None
    return replace(
        a_workload(
            f"w{number}",
            id=WorkloadId(number),
            jobspec=jobspec,
            shape=shape_of(jobspec),
            duration_s=60 * minutes,
            pods=pods,
            queue=rng.choice(QUEUES),
            priority=rng.choice((0, 0, 0, 5)),
        ),
        predicted_s=predicted_s,
    )


def a_node(rng: random.Random, name: str) -> GraphNodeSpec:
    gpus = rng.randint(0, 2)
    pools = (
        Pool("cpu", 1_000 * rng.randint(4, 12), 100),
        Pool("memory", 1_024 * rng.randint(4, 24), 64),
        Pool("pods", 20),
    )
    return GraphNodeSpec(name, (*pools, Pool(GPU, gpus)) if gpus else pools)


async def world(seed: int) -> tuple[list[Seen], int]:
    """Return what happens in the rounds of a random world, and how many requests the matcher was asked
    about.
    """
    rng = random.Random(seed)
    disciplines = {queue: rng.choice(POLICIES) for queue in QUEUES}
    fluxion, call = LocalFluxion(), CallContext(now=NOW)
    await fluxion.init(
        rng.choice(MATCH_POLICIES), nodes=[a_node(rng, f"n{number}") for number in range(4)], call=call
    )
    caches, backlogs = {queue: RefusalCache() for queue in QUEUES}, {queue: Backlog() for queue in QUEUES}
    reservations: dict[WorkloadId, HeldReservation] = {}
    waiting: dict[WorkloadId, Workload] = {}
    running: list[FluxionJobId] = []
    granted: dict[str, tuple[NodeShare, ...]] = {}
    asked = 0

    async def identify(workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        nonlocal asked
        asked += len(workloads)
        return [FluxionJobId(int(workload.id)) for workload in workloads]

    async def take(answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            granted[workload.name] = answer.shares
            running.append(FluxionJobId(answer.jobid))
            del waiting[workload.id]

    driver, seen = RoundDriver(fluxion, identify, take), list[Seen]()
    for wave in range(6):
        arriving = [a_request(rng, 100 * wave + number) for number in range(1, rng.randint(1, 12))]
        waiting.update((each.id, each) for each in arriving)
        for queue, backlog in backlogs.items():
            backlog.remove_all([each.id for each in backlog if each.id not in waiting])
            backlog.update(each for each in arriving if each.queue == queue)
        ended = bool(running) and rng.random() < 0.6
        if ended:
            await fluxion.apply([CancelJobs([running.pop(rng.randrange(len(running)))])], call=call)
            for cache in caches.values():
                cache.clear()
        reserved = [each for each in waiting.values() if each.id in reservations]
        held_in = {
            queue: {each.id: reservations[each.id] for each in reserved if each.queue == queue}
            for queue in QUEUES
        }
        queues = [PendingQueue(queue, backlogs[queue], held_in[queue], caches[queue]) for queue in QUEUES]
        names = {each.id: each.name for each in waiting.values()}
        results = await driver.run(Round(queues, disciplines, CycleContext(NOW, ended)), reservations, call)
        held = {names[each.workload]: (each.start, each.shares) for each in reservations.values()}
        reasons = {
            names[each.workload]: (each.reason, each.message) for result in results for each in result.reasons
        }
        seen.append((dict(granted), held, reasons))
    return seen, asked


@pytest.mark.parametrize("explained", [0, 3])
def test_random_worlds_are_the_same_where_everything_is_asked(
    monkeypatch: pytest.MonkeyPatch, explained: int
) -> None:
    saved = 0
    monkeypatch.setattr(refusals, "EXPLAINED", explained)
    for seed in range(WORLDS):
        found, asked = asyncio.run(world(seed))
        with monkeypatch.context() as patched:
            patched.setattr(Refusals, "_close", lambda *_args: None)
            whole, asked_of_all = asyncio.run(world(seed))
        for number, ((starts, held, reasons), (all_starts, all_held, all_reasons)) in enumerate(
            zip(found, whole, strict=True)
        ):
            assert (starts, held) == (all_starts, all_held), f"seed {seed}, round {number}"
            assert reasons.items() <= all_reasons.items(), f"seed {seed}, round {number}"
        saved += asked_of_all - asked
    assert saved > 0


@pytest.mark.parametrize("seed", range(5))
def test_many_former_refusals_close_the_same_rows_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    backlog = Backlog(
        replace(a_request(rng, number), priority=rng.randint(0, 2), queue="a") for number in range(1, 200)
    )
    cache = RefusalCache()
    for row in rng.sample(range(len(backlog)), 120):
        family, count, duration = backlog.request_kind(row)
        bound = family, max(1, count - rng.randint(0, 1)), duration + rng.randint(-60, 1), rng.randint(0, 2)
        (cache.ever if rng.random() < 0.2 else cache.now).append(bound)
    kinds = backlog.request_kinds()
    assert (kinds.alone(kinds.families) >= 0).any(), "nothing is tested"

    def closed() -> list[tuple[bool, bool]]:
        known = Refusals(PendingQueue("a", backlog, refusal_cache=cache), CycleContext(NOW))
        return [(known.open[row], known.possible[row]) for row in range(len(backlog))]

    monkeypatch.setattr(refusals, "_KINDS_EACH", 0)
    one_by_one = closed()
    monkeypatch.setattr(refusals, "_KINDS_EACH", 1_000)
    together = closed()
    assert together == one_by_one
    assert len({*together}) > 1


def test_work_that_had_its_turn_is_closed() -> None:
    had, left, other = (a_workload(name, namespace=name[0]) for name in ("a1", "a2", "b1"))
    context = CycleContext(NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(context.turns), "asked_before", {"a": {had.id, WorkloadId(99_999)}})
        known = Refusals(PendingQueue("default", Backlog([had, left, other])), context)
    assert [known.open[row] for row in range(3)] == [False, True, True]
