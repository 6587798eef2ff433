"""Rounds with a real matcher in process: match policies of queues, limits during a round,
and requests on which the matcher fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy, QueueLimits
from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.messages import (
    CallContext,
    GraphNodeSpec,
    JobMatchRequest,
    MatchBatch,
    MatchResult,
    Pool,
)
from fluxqueue.fluxion.rpc.failures import InternalError
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.model.records import FluxionJobId, Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.scheduling.policies.passes import CycleContext, HeldReservation, PassResult, PendingQueue
from fluxqueue.queue.scheduling.policies.rounds import Round
from fluxqueue.queue.scheduling.round_driver import RoundDriver

NOW = 1_800_000_000
NODES = [GraphNodeSpec(f"n{number}", (Pool("cpu", 8_000, 100), Pool("pods", 110))) for number in range(4)]


def work(name: str, pods: int, cores: int = 8, minutes: int = 60, queue: str = "default") -> Workload:
    requests = {"cpu": Decimal(cores), "pods": Decimal(1)}
    jobspec = jobspec_of(f"default/{name}", [SizedPods(requests, pods)], duration_s=60 * minutes)
    return a_workload(name, jobspec=jobspec, shape=jobspec, duration_s=60 * minutes, pods=pods, queue=queue)


class Machine:
    """Four nodes of eight cores, and the grants on them."""

    def __init__(
        self,
        policy: Policy,
        limits: QueueLimits | None = None,
        match_policies: Mapping[str, str] | None = None,
        fluxion: LocalFluxion | None = None,
    ) -> None:
        self.fluxion = fluxion or LocalFluxion()
        self.granted: dict[str, set[str]] = {}
        self.reservations: dict[WorkloadId, HeldReservation] = {}
        self.quotas = Quotas({"default": limits} if limits else {}, ())
        self._policy = policy
        self._driver = RoundDriver(
            self.fluxion, self._identify, self._take, match_policies=match_policies or {}
        )

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(int(workload.id)) for workload in workloads]

    async def _take(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            nodes = [share.node for share in answer.shares]
            if over := self.quotas.refusal(workload) or self.quotas.excess(workload, nodes):
                self.quotas.set_aside(workload, over)
                await self.fluxion.apply([CancelJobs([answer.jobid])], call=CallContext(now=NOW))
            else:
                self.quotas.add_usage(workload, nodes)
                self.granted[workload.name] = set(nodes)

    async def round(self, *workloads: Workload) -> list[PassResult]:
        await self.fluxion.init("lonode", nodes=NODES, call=CallContext(now=NOW))
        names = sorted({workload.queue for workload in workloads})
        queues = [
            PendingQueue(name, Backlog(each for each in workloads if each.queue == name)) for name in names
        ]
        context = CycleContext(NOW, quotas=self.quotas)
        return await self._driver.run(
            Round(queues, dict.fromkeys(names, Discipline(self._policy)), context),
            self.reservations,
            CallContext(now=NOW),
        )


async def test_each_queue_s_work_is_placed_by_its_own_match_policy() -> None:
    machine = Machine(Policy.EASY, match_policies={"packed": "hinode", "alone": "lonodex"})
    await machine.round(
        work("a", 1, 1), work("b", 1, 1, queue="packed"), work("c", 1, 1, queue="alone"), work("d", 3, 8)
    )
    assert machine.granted == {"a": {"n0"}, "b": {"n3"}, "c": {"n1"}}


@pytest.mark.parametrize("policy", list(Policy))
async def test_no_more_start_in_one_round_than_the_queue_may_run(policy: Policy) -> None:
    machine = Machine(policy, QueueLimits(running=2))
    await machine.round(*(work(name, 1, 1) for name in "abcd"))
    assert set(machine.granted) == {"a", "b"}


@pytest.mark.parametrize("policy", list(Policy))
async def test_work_on_too_many_nodes_is_set_aside_and_later_work_starts(policy: Policy) -> None:
    machine = Machine(policy, QueueLimits(nodes=2))
    await machine.round(work("a", 1), work("b", 3), work("c", 1), work("d", 1))
    assert set(machine.granted) == {"a", "c"}
    assert machine.reservations == {}


async def test_a_reservation_of_too_many_nodes_is_cancelled_with_the_limit_as_its_reason() -> None:
    machine = Machine(Policy.EASY, QueueLimits(nodes=3))
    (found,) = await machine.round(work("a", 2), work("b", 4))
    assert machine.reservations == {}
    assert [(change.reason, "may use 3 nodes at once" in change.message) for change in found.reasons] == [
        (Reason.QUEUE_LIMIT, True)
    ]


async def test_a_reservation_counts_as_running_work() -> None:
    machine = Machine(Policy.EASY, QueueLimits(running=2))
    await machine.round(work("a", 2), work("b", 4), work("c", 1, 1, minutes=5))
    assert set(machine.granted) == {"a"}
    assert len(machine.reservations) == 1


class Choking(LocalFluxion):
    """A matcher that fails on one request."""

    async def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        if any("poison" in request.jobspec for request in jobs):
            raise InternalError("MatchBatch failed with INTERNAL: KeyError")
        return await super().match_batch(
            jobs, call=call, stop_at_first_failure=stop_at_first_failure, yielding=yielding
        )


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_request_on_which_the_matcher_fails_is_invalid_and_the_others_start(policy: Policy) -> None:
    machine = Machine(policy, fluxion=Choking())
    (result,) = await machine.round(work("a", 1), work("poison", 1), work("b", 1))
    assert set(machine.granted) == {"a", "b"}
    ((reason, message),) = [(change.reason, change.message) for change in result.reasons]
    assert reason is Reason.INVALID_REQUEST
    assert "this request cannot be worked on" in message


HOSTILE = [
    "",
    "null",
    "[]",
    "\x00",
    '{"resources": null}',
    '{"resources": [5]}',
    jobspec_of("d/n", [SizedPods({"cpu": Decimal(1)}, 1)], duration_s=60).replace(
        '"count":1', '"count":1152921504606846977', 1
    ),
    jobspec_of("d/n", [SizedPods({"cpu": Decimal(1)}, 1)], duration_s=60).replace(
        '"count":1', '"count":-1', 1
    ),
    jobspec_of(
        "d/n", [SizedPods({"cpu": Decimal(1)}, 1)], duration_s=60, placement=PlacementRules({"weird": 1})
    ),
]


@pytest.mark.parametrize("policy", list(Policy))
async def test_no_hostile_jobspec_stops_a_round(policy: Policy) -> None:
    hostile = [
        a_workload(f"h{number}", jobspec=text, shape=f"hostile-{number}")
        for number, text in enumerate(HOSTILE)
    ]
    machine = Machine(policy)
    (result,) = await machine.round(work("a", 1), *hostile, work("b", 1))
    assert set(machine.granted) == {"a", "b"}
    assert len(result.reasons) == len(hostile)


class Noting(LocalFluxion):
    """A matcher that notes how many requests each call has."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    async def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        self.calls.append(len(jobs))
        return await super().match_batch(
            jobs, call=call, stop_at_first_failure=stop_at_first_failure, yielding=yielding
        )


@pytest.mark.parametrize("policy", list(Policy))
async def test_long_requests_go_to_the_matcher_a_few_at_a_time(policy: Policy) -> None:
    """Each may cost a tenth of a second, and a call that takes half a minute fails:
    then the graph would be filled again, and so on.
    """
    noting = Noting()
    machine = Machine(policy, fluxion=noting)
    jobspec = jobspec_of(
        "default/long",
        [SizedPods({"cpu": Decimal(1)}, 1)],
        duration_s=60,
        placement=PlacementRules({"in": ["disk", *(f"other-{number}" for number in range(1_200))]}),
    )
    long = [
        a_workload(f"w{number}", jobspec=jobspec, shape=f"s{number}", duration_s=60) for number in range(20)
    ]
    await machine.round(*long, work("a", 1))
    assert machine.granted.keys() == {"a"}
    assert (max(noting.calls) - 1) * len(jobspec) <= 65_536, "with the short one"


class Slow(LocalFluxion):
    """A matcher that answers one request of each call."""

    async def match_batch(
        self,
        jobs: Sequence[JobMatchRequest],
        *,
        call: CallContext,
        with_allocation: bool = False,
        stop_at_first_failure: bool = False,
        yielding: Sequence[int] = (),
    ) -> MatchBatch:
        return await super().match_batch(
            jobs[:1], call=call, stop_at_first_failure=stop_at_first_failure, yielding=yielding
        )


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_matcher_that_answers_a_part_of_each_call_is_asked_for_the_rest(policy: Policy) -> None:
    usual, slow = Machine(policy), Machine(policy, fluxion=Slow())
    pending = [work(f"w{number}", 1 + number % 3, 2, minutes=number) for number in range(1, 12)]
    for machine in (usual, slow):
        await machine.round(*pending)
    assert (slow.granted, slow.reservations) == (usual.granted, usual.reservations)
    assert slow.granted
