"""Limits of accounts in whole cycles: which work waits with which sentence, which starts,
and when that ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_bench import Bench, a_leader, a_node, job

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.fluxqueues import AtLimit, Policy, Preemption
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.changes import Ending
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.store import Store

POLICIES = pytest.mark.parametrize("policy", list(Policy))


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    nodes: ObjectCache[Node] = ObjectCache()
    nodes.replace([a_node(f"n{number}") for number in range(4)])
    matcher = LocalFluxion()
    async with a_leader(store, nodes, matcher) as made:
        yield made
    await matcher.close()


def limit(bench: Bench, **limits: dict[str, Any]) -> None:
    """Make the account ``site``, and ``physics`` and ``bio`` below it, with these limits."""
    parents: dict[str, dict[str, Any]] = {
        "site": {},
        "physics": {"parent": "site"},
        "bio": {"parent": "site"},
    }
    documents = [
        make_account(name, limits=limits.get(name, {}), **parent) for name, parent in parents.items()
    ]
    bench.accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))


def of(
    account: str, name: str, pods: int = 1, cpu: str = "1", queue: str = "default", **more: Any
) -> NewWorkload:
    return replace(job(name, pods, cpu, **more), account=account, queue=queue)


def states(bench: Bench, names: str) -> str:
    """One letter for each workload: R has nodes, A is over a limit of an account,
    w waits for another reason.
    """
    rows = [bench.row(name) for name in names]
    return "".join(
        "R" if row.state is State.ALLOCATED else "A" if row.reason is Reason.ACCOUNT_LIMIT else "w"
        for row in rows
    )


async def end(bench: Bench, name: str) -> None:
    await bench.ledger.finish([Ending(bench.row(name).id, State.COMPLETED, Outcome.SUCCEEDED)])


@POLICIES
async def test_accounts_below_one_share_its_limit_over_all_queues(bench: Bench, policy: Policy) -> None:
    bench.policy = policy
    bench.other_queues = {"other": Discipline(policy)}
    limit(bench, site={"running": 2})
    await bench.submit(
        of("physics", "a"),
        of("bio", "b", queue="other"),
        of("bio", "c"),
        of("physics", "d", queue="other"),
        of("", "e"),
    )
    await bench.cycle()
    assert states(bench, "abcde") == "RRAAR"
    assert (
        bench.row("c").message
        == "the account 'site' may run 2 workloads at once, and 2 run or have nodes reserved"
    )
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bcd") == "RRA"


@POLICIES
async def test_an_account_at_its_limit_lets_others_start(bench: Bench, policy: Policy) -> None:
    bench.policy = policy
    limit(bench, physics={"resources": {"cpu": 6}}, bio={"resources": {"memory": "1Gi"}})
    await bench.submit(
        of("physics", "a", 2, "2"),
        of("physics", "b", 1, "4"),
        of("physics", "c", 2, "1"),
        of("bio", "d", 1, "8"),
    )
    await bench.cycle()
    assert states(bench, "abcd") == "RARR"
    assert (
        bench.row("b").message
        == "the account 'physics' may use 6 cores at once: it uses 6, and this wants 4 more"
    )


@POLICIES
async def test_a_grant_on_too_many_nodes_of_an_account_is_cancelled(bench: Bench, policy: Policy) -> None:
    bench.policy = policy
    limit(bench, site={"nodes": 2})
    await bench.submit(of("physics", "a", 1, "8"), of("bio", "b", 2, "8"), of("bio", "c", 1, "8"))
    await bench.cycle()
    assert states(bench, "abc") == "RAR"
    assert bench.row("b").message == "the account 'site' may use 2 nodes at once: it uses 1, and 3 with this"
    assert set(await bench.held()) == {bench.row("a").jobid, bench.row("c").jobid}


async def test_an_edit_of_an_account_takes_effect_in_the_next_cycle(bench: Bench) -> None:
    limit(bench, physics={"running": 0})
    await bench.submit(of("physics", "a"))
    await bench.cycle()
    assert states(bench, "a") == "A"
    limit(bench)
    await bench.cycle()
    assert states(bench, "a") == "R"


async def test_a_reservation_of_an_account_counts_as_use_and_ends_with_an_edit_of_the_limit(
    bench: Bench,
) -> None:
    bench.policy = Policy.EASY
    limit(bench, physics={"running": 2})
    await bench.submit(
        of("physics", "a", 1, "8", duration="1h"),
        of("physics", "b", 4, "8", duration="1h"),
        of("physics", "c", 1, "8"),
    )
    await bench.cycle()
    assert states(bench, "abc") == "RwA"
    limit(bench, physics={"nodes": 2})
    await bench.cycle()
    assert states(bench, "ab") == "RA"
    assert await bench.store.reservations() == []


@pytest.mark.parametrize(("nodes", "then"), [(3, State.ALLOCATED), (4, State.DRAINING)])
async def test_work_is_preempted_only_within_the_limits_of_the_account(
    bench: Bench, nodes: int, then: State
) -> None:
    bench.policy, bench.preemption = Policy.EASY, Preemption.LOWER_PRIORITY
    limit(bench, physics={"nodes": nodes})
    await bench.submit(of("bio", "low", 4, "8"))
    await bench.cycle()
    row = bench.row("low")
    await bench.ledger.mark_released([row.jobid] if row.jobid is not None else [])
    await bench.submit(of("physics", "urgent", 4, "8", priority=10))
    await bench.cycle()
    assert bench.row("low").state is then


async def test_a_leader_that_takes_over_counts_what_runs_for_each_account(bench: Bench, store: Store) -> None:
    limit(bench, site={"running": 1})
    await bench.submit(of("physics", "a"))
    await bench.cycle()
    await bench.ledger.load()
    await bench.submit(of("bio", "b"))
    await bench.cycle()
    assert states(bench, "ab") == "RA"


@POLICIES
async def test_work_beyond_what_an_account_may_submit_waits_until_earlier_work_has_ended(
    bench: Bench, policy: Policy
) -> None:
    bench.policy = policy
    limit(bench, site={"submitted": 2})
    await bench.submit(of("physics", "a", 4, "8"))
    await bench.submit(of("bio", "b"))
    await bench.submit(of("bio", "c", priority=10), of("", "d"))
    await bench.cycle()
    assert states(bench, "abcd") == "RwAw"
    assert (
        bench.row("c").message
        == "the account 'site' may have 2 workloads submitted at once, and 2 were submitted before this"
    )
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bcd") == "RRR"


@pytest.mark.parametrize(("at_limit", "then"), [(AtLimit.SKIP, "RARR"), (AtLimit.STOP, "RAAR")])
@POLICIES
async def test_wide_work_is_overtaken_under_its_limit_unless_the_queue_stops(
    bench: Bench, policy: Policy, at_limit: AtLimit, then: str
) -> None:
    bench.policy, bench.at_limit = policy, at_limit
    limit(bench, physics={"resources": {"cpu": 6}})
    await bench.submit(of("physics", "a", 1, "4"))
    await bench.submit(of("physics", "b", 1, "6"))
    await bench.submit(of("physics", "c", 1, "2"), of("bio", "d", 1, "8"))
    await bench.cycle()
    assert states(bench, "abcd") == then
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bc") == ("RA" if at_limit is AtLimit.STOP else "AR")


@POLICIES
async def test_a_limit_of_nodes_keeps_the_order_too(bench: Bench, policy: Policy) -> None:
    bench.policy, bench.at_limit = policy, AtLimit.STOP
    limit(bench, physics={"nodes": 2})
    await bench.submit(of("physics", "a", 1, "8"))
    await bench.submit(of("physics", "b", 2, "8"))
    await bench.submit(of("physics", "c", 1, "8"), of("bio", "d", 1, "8"))
    await bench.cycle()
    assert states(bench, "abcd") == "RAAR"
    await end(bench, "a")
    await bench.cycle()
    assert states(bench, "bc") == "RA"
