"""Much waiting work with different requests: few questions to the matcher,
and the same starts and reasons as if all were asked.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest
from support.builders import make_job, make_node
from support.matcher_questions import MatcherQuestions
from support.queue_bench import Bench, a_machine, job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import Policy
from fluxqueue.api.nodes import Node
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of, shape_of
from fluxqueue.queue.model.records import NewWorkload, WorkloadId
from fluxqueue.queue.scheduling.policies.refusals import EXPLAINED
from fluxqueue.queue.scheduling.reasons import satisfiability, wait_reasons

IN_GENERAL = "its request does not fit now: smaller or shorter requests of its kind wait too"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Four nodes of 8 cores and 32 GiB, each with work that leaves three of its cores."""
    async with a_machine() as made:
        made.policy = Policy.EASY
        await made.submit(*(job(f"runs{number}", 1, "5") for number in range(4)))
        await made.cycle()
        yield made


def sized(name: str, millicores: int, mebi: int, pods: int = 1) -> NewWorkload:
    requests = {"cpu": Decimal(millicores) / 1000, "memory": Decimal(mebi) * (1 << 20)}
    jobspec = jobspec_of(f"default/{name}", [SizedPods(requests, pods)], duration_s=3600)
    return replace(job(name, pods, "1"), jobspec=jobspec, shape=shape_of(jobspec), pods=pods)


def different(count: int) -> list[NewWorkload]:
    """Jobs of one pod that fit an empty node, and none beside other work."""
    rng = random.Random(1)
    sizes = {(rng.randrange(4_500, 8_000), rng.randrange(1_024, 30_000)) for _ in range(count)}
    return [
        sized(f"w{number}", *size)
        for number, size in enumerate(sorted(sizes, key=lambda _size: rng.random()))
    ]


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


async def test_an_end_costs_few_questions_however_many_different_requests_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.submit(job("small", 1, "1"))
    await bench.cycle()
    waiting = different(2_000)
    await bench.submit(*waiting)
    questions = MatcherQuestions(bench.fluxion, monkeypatch)
    await bench.cycle()
    assert questions.matched < EXPLAINED + 150
    assert len(questions.satisfied) < 50
    questions.clear()
    await end(bench, "small")
    await bench.cycle()
    assert 0 < questions.matched < EXPLAINED + 150
    assert questions.satisfied == []
    questions.clear()
    await bench.submit(job("stranger", 1, "1", namespace="other"))
    await bench.cycle()
    assert bench.row("stranger").state is State.ALLOCATED
    assert questions.matched == 1


async def test_the_first_of_a_queue_are_told_figures_and_the_others_that_smaller_ones_wait_too(
    bench: Bench,
) -> None:
    await bench.submit(
        *(sized(f"w{number:03}", 6_000 + number, 1_024 + number) for number in range(EXPLAINED + 20))
    )
    await bench.cycle()
    messages = [bench.row(f"w{number:03}").message for number in range(1, EXPLAINED + 20)]
    assert messages[:2] == [
        "no node has 6.001 cpu free: the most free is 3 cpu",
        "no node has 6.002 cpu free: the most free is 3 cpu",
    ]
    assert messages[EXPLAINED - 1 :] == [IN_GENERAL] * 20


async def test_much_work_gets_general_reasons_in_several_cycles_what_has_none_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_reasons, "_MOST_GENERAL", 8)
    names = [f"w{number:03}" for number in range(EXPLAINED + 20)]
    await bench.submit(*(sized(name, 6_000 + number, 1_024) for number, name in enumerate(names)))
    told = []
    for _ in range(3):
        await bench.cycle()
        told.append(sum(bench.row(name).message == IN_GENERAL for name in names))
    assert told == [8, 16, 20]


async def test_what_can_never_start_is_told_so_wherever_it_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(satisfiability, "_QUESTIONS", 5)
    await bench.submit(*(sized(f"w{number}", 6_000 + number, 1_024) for number in range(EXPLAINED + 20)))
    await bench.submit(*(sized(f"large{number}", 7_000, 40_000 + number) for number in range(12)))
    for _ in range(4):
        await bench.cycle()
    rows = [bench.row(f"large{number}") for number in range(12)]
    assert {row.reason for row in rows} == {Reason.UNSATISFIABLE}
    assert rows[3].message == "no node has 39.07 GiB memory: the largest has 32 GiB memory in all"
    assert {bench.row(f"w{number}").reason for number in range(EXPLAINED + 20)} == {Reason.WAITING_FOR_NODES}


async def test_work_that_never_fits_costs_nobody_a_reservation_though_smaller_work_was_refused(
    bench: Bench,
) -> None:
    await bench.submit(sized("first", 6_000, 1_024), sized("second", 5_000, 1_024))
    await bench.cycle()
    reserved = bench.row("first").message
    assert "reserved for it" in reserved
    await bench.submit(replace(sized("never", 8_000, 99_000), priority=5))
    await bench.cycle()
    assert bench.row("never").reason is Reason.UNSATISFIABLE
    assert bench.row("first").message == reserved


async def test_what_is_told_of_work_far_behind_follows_the_nodes(bench: Bench) -> None:
    huge = msgspec.convert(
        make_node("huge").uid("huge").allocatable(cpu="8", memory="64Gi", pods="110").build(), Node
    )
    await bench.submit(*(sized(f"w{number}", 6_000 + number, 1_024) for number in range(EXPLAINED + 20)))
    await bench.submit(sized("large", 7_000, 40_000), sized("usual", 7_000, 2_048))
    await bench.cycle()
    assert (bench.row("large").reason, bench.row("usual").reason) == (
        Reason.UNSATISFIABLE,
        Reason.WAITING_FOR_NODES,
    )
    await bench.submit(replace(sized("first", 5_000, 40_000), priority=5))
    bench.nodes.apply(huge)
    await bench.cycle()
    assert bench.row("first").state is State.ALLOCATED
    assert (bench.row("large").reason, bench.row("large").message) == (Reason.WAITING_FOR_NODES, IN_GENERAL)
    bench.nodes.remove(huge)
    await bench.cycle()
    assert (bench.row("large").reason, bench.row("usual").reason) == (
        Reason.UNSATISFIABLE,
        Reason.WAITING_FOR_NODES,
    )


def unlike(number: int) -> NewWorkload:
    """A Job of one pod with other nodes than any other number, one of which is there."""
    values = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0", f"absent-{number}"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    builder = make_job(f"unlike-{number}").cpu("5").with_("spec.template.spec.affinity", affinity)
    held = builder.suspended().annotation("fluxqueue/suspended-by", "webhook")
    described = describe_job(a_job(held), around())
    assert described is not None
    return replace(described, uid=f"unlike-{number}")


async def test_after_a_change_of_nodes_a_cycle_compares_a_part_of_what_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(satisfiability, "_QUESTIONS", 20)
    monkeypatch.setattr(wait_reasons, "_COMPARED_AT_ONCE", 30)
    compared: list[int] = []
    check = satisfiability.SatisfiabilityCache.check

    async def counted(
        cache: satisfiability.SatisfiabilityCache, workloads: Collection[WorkloadId]
    ) -> set[WorkloadId]:
        compared.append(len(workloads))
        return await check(cache, workloads)

    reasons = bench.scheduler._phases._reasons
    await bench.submit(*(unlike(number) for number in range(60)))
    await bench.cycle()
    while reasons._uncompared:
        await bench.cycle()
    monkeypatch.setattr(satisfiability.SatisfiabilityCache, "check", counted)
    bench.nodes.apply(msgspec.convert(make_node("more").uid("more").build(), Node))
    monkeypatch.setattr(satisfiability.SatisfiabilityCache, "learn_refused", lambda *_: None)
    await bench.cycle()
    assert compared[0] <= 30
    assert len(reasons._uncompared) >= 30
    while before := len(reasons._uncompared):
        await bench.cycle()
        assert len(reasons._uncompared) < before
