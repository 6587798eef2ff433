"""Rounds put to a real matcher in process: how each queue's work is placed, and that limits bind while a round goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from queue_builders import a_workload

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Policy, QueueLimits
from fluxqueue.fluxion.inprocess import LocalFluxion
from fluxqueue.fluxion.messages import Call, MatchResult, NodeSpec, Pool
from fluxqueue.queue.cycles import Driver
from fluxqueue.queue.jobspecs import Role, jobspec_of
from fluxqueue.queue.limits import Quotas
from fluxqueue.queue.policies.backlog import Backlog
from fluxqueue.queue.policies.passes import Findings, Line, Moment, Promise
from fluxqueue.queue.policies.rounds import Discipline, Round
from fluxqueue.queue.records import FluxionJobId, Workload, WorkloadId

NOW = 1_800_000_000
NODES = [NodeSpec(f"n{number}", (Pool("cpu", 8_000, 100), Pool("pods", 110))) for number in range(4)]


def work(name: str, pods: int, cores: int = 8, minutes: int = 60, queue: str = "default") -> Workload:
    requests = {"cpu": Decimal(cores), "pods": Decimal(1)}
    jobspec = jobspec_of(f"default/{name}", [Role(requests, pods)], duration_s=60 * minutes)
    return a_workload(name, jobspec=jobspec, shape=jobspec, duration_s=60 * minutes, pods=pods, queue=queue)


class Machine:
    """Four nodes of eight cores, and what was granted on them."""

    def __init__(self, policy: Policy, limits: QueueLimits | None = None, match_policies: Mapping[str, str] | None = None) -> None:
        self.fluxion = LocalFluxion()
        self.granted: dict[str, set[str]] = {}
        self.promises: dict[WorkloadId, Promise] = {}
        self.quotas = Quotas({"default": limits} if limits else {}, ())
        self._policy = policy
        self._driver = Driver(self.fluxion, self._identify, self._take, match_policies=match_policies or {})

    async def _identify(self, workloads: Sequence[Workload]) -> Sequence[FluxionJobId]:
        return [FluxionJobId(int(workload.id)) for workload in workloads]

    async def _take(self, answers: Sequence[tuple[Workload, MatchResult]]) -> None:
        for workload, answer in answers:
            nodes = [share.node for share in answer.shares]
            if self.quotas.refusal(workload) or self.quotas.excess(workload, nodes):
                self.quotas.stand_aside(workload)
                await self.fluxion.cancel_many([answer.jobid], call=Call(now=NOW))
            else:
                self.quotas.take(workload, nodes)
                self.granted[workload.name] = set(nodes)

    async def round(self, *workloads: Workload) -> list[Findings]:
        await self.fluxion.init("lonode", nodes=NODES, call=Call(now=NOW))
        names = sorted({workload.queue for workload in workloads})
        lines = [Line(name, Backlog(each for each in workloads if each.queue == name)) for name in names]
        moment = Moment(NOW, quotas=self.quotas)
        return await self._driver.run(Round(lines, dict.fromkeys(names, Discipline(self._policy)), moment), self.promises, Call(now=NOW))


async def test_each_queue_s_work_is_placed_by_its_own_match_policy() -> None:
    machine = Machine(Policy.EASY, match_policies={"packed": "hinode", "alone": "lonodex"})
    await machine.round(work("a", 1, 1), work("b", 1, 1, queue="packed"), work("c", 1, 1, queue="alone"), work("d", 3, 8))
    assert machine.granted == {"a": {"n0"}, "b": {"n3"}, "c": {"n1"}}


@pytest.mark.parametrize("policy", list(Policy))
async def test_no_more_start_in_one_round_than_the_queue_may_run(policy: Policy) -> None:
    machine = Machine(policy, QueueLimits(running=2))
    await machine.round(*(work(name, 1, 1) for name in "abcd"))
    assert set(machine.granted) == {"a", "b"}


@pytest.mark.parametrize("policy", list(Policy))
async def test_work_on_too_many_nodes_stands_aside_and_later_work_passes(policy: Policy) -> None:
    machine = Machine(policy, QueueLimits(nodes=2))
    await machine.round(work("a", 1), work("b", 3), work("c", 1), work("d", 1))
    assert set(machine.granted) == {"a", "c"}
    assert machine.promises == {}


async def test_a_reservation_of_too_many_nodes_is_given_up_with_the_limit_as_its_reason() -> None:
    machine = Machine(Policy.EASY, QueueLimits(nodes=3))
    (found,) = await machine.round(work("a", 2), work("b", 4))
    assert machine.promises == {}
    assert [(change.reason, "may use 3 nodes at once" in change.message) for change in found.reasons] == [(Reason.QUEUE_LIMIT, True)]


async def test_who_is_promised_nodes_counts_as_running() -> None:
    machine = Machine(Policy.EASY, QueueLimits(running=2))
    await machine.round(work("a", 2), work("b", 4), work("c", 1, 1, minutes=5))
    assert set(machine.granted) == {"a"}
    assert len(machine.promises) == 1
