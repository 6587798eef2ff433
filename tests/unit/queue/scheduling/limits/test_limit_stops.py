"""Who keeps whom from starting under a limit: the first that waits for it, those behind it that want of it,
and nobody else.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.builders import make_account
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxqueues import NamespaceLimits, QueueLimits
from fluxqueue.queue.model.accounts import NO_ACCOUNTS, AccountTree, account_tree
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog


def physics(**limits: Any) -> AccountTree:
    """The account ``physics`` with these limits and ``md`` below it, and ``bio`` without any."""
    documents = [
        make_account("physics", limits=limits),
        make_account("md", parent="physics"),
        make_account("bio"),
    ]
    return account_tree(msgspec.convert(documents, list[FluxAccount]))


def work(account: str, cores: int = 1, gpus: int = 0, **more: Any) -> Workload:
    requests = {"cpu": Decimal(cores), "nvidia.com/gpu": Decimal(gpus)}
    jobspec = jobspec_of(
        "default/x",
        [SizedPods({name: amount for name, amount in requests.items() if amount}, 1)],
        duration_s=60,
    )
    return a_workload(queue="q", account=account, jobspec=jobspec, shape=jobspec, **more)


def quotas(accounts: AccountTree, used: Workload | None = None, limits: QueueLimits | None = None) -> Quotas:
    live = [(used, an_allocation(["n1"]))] if used is not None else []
    return Quotas({"q": limits} if limits is not None else {}, live, accounts, stopping={"q"})


def test_the_first_that_waits_keeps_those_of_its_account_and_below_behind_it() -> None:
    backlog = Backlog([work("md"), work("physics", 4), work("md"), work("physics"), work("bio"), work("")])
    some = quotas(physics(resources={"cpu": 4}), work("physics", 2))
    assert some.within("q", backlog).tolist() == [True, False, False, False, True, True]
    words = (
        f"the account 'physics' is at a limit, and {backlog[1].ref} waits for it before this (spec.atLimit "
        "of the FluxQueue)"
    )
    assert some.refusal(backlog[2]) is None
    assert some.reached(backlog[2]).message == words


def test_work_behind_another_namespace_is_not_told_its_name() -> None:
    backlog = Backlog([work("physics", 4, namespace="b", name="secret-project"), work("physics")])
    some = quotas(physics(resources={"cpu": 4}), work("physics", 2))
    some.within("q", backlog)
    assert "and work of another namespace waits for it before this" in some.reached(backlog[1]).message


def test_work_that_wants_nothing_of_what_is_waited_for_starts() -> None:
    backlog = Backlog([work("physics", gpus=2), work("physics", gpus=1), work("physics", 8)])
    some = quotas(physics(resources={"nvidia.com/gpu": 2}), work("physics", gpus=1))
    assert some.within("q", backlog).tolist() == [False, False, True]


def test_work_that_is_over_the_limit_by_itself_keeps_nobody() -> None:
    backlog = Backlog([work("physics", 5), work("physics")])
    assert quotas(physics(resources={"cpu": 4})).within("q", backlog).tolist() == [False, True]
    assert quotas(physics(running=0, resources={"cpu": 4})).within("q", backlog).tolist() == [False, False]


@pytest.mark.parametrize("cores", [5, 2], ids=["that keeps nobody", "that waits behind its first"])
def test_much_work_of_another_account_lets_nobody_lose_its_place(cores: int) -> None:
    documents = [make_account(name, limits={"resources": {"cpu": 4}}) for name in ("physics", "bio")]
    accounts = account_tree(msgspec.convert(documents, list[FluxAccount]))
    held = [(work(name, 3), an_allocation([f"n-{name}"])) for name in ("physics", "bio")]
    backlog = Backlog([*(work("bio", cores) for _ in range(1_500)), work("physics", 2), work("physics")])
    assert Quotas({}, held, accounts, stopping={"q"}).within("q", backlog).tolist()[-2:] == [False, False]


def test_work_with_a_reservation_keeps_nobody() -> None:
    backlog = Backlog([work("physics", 3), work("physics")])
    some = quotas(physics(resources={"cpu": 4}))
    some.add_usage(backlog[0], ["n1"])
    assert some.within("q", backlog)[1]


def test_what_the_answer_showed_to_be_over_a_limit_of_nodes_keeps_those_behind_it() -> None:
    backlog = Backlog([work("physics"), work("physics"), work("bio")])
    some = quotas(physics(nodes=2), work("physics"))
    assert some.within("q", backlog).tolist() == [True, True, True]
    over = some.excess(backlog[0], ["n2", "n3"])
    assert over is not None
    some.set_aside(backlog[0], over)
    assert some.within("q", backlog).tolist() == [False, False, True]


def test_limits_of_queues_and_namespaces_keep_the_order_too() -> None:
    backlog = Backlog([work("", 4, namespace="a"), work("", 1, namespace="a"), work("", 1, namespace="b")])
    whole = quotas(NO_ACCOUNTS, work("", 2, namespace="a"), QueueLimits(cores=4))
    assert whole.within("q", backlog).tolist() == [False, False, False]
    part = quotas(
        NO_ACCOUNTS, work("", 2, namespace="a"), QueueLimits(per_namespace=NamespaceLimits(cores=4))
    )
    assert part.within("q", backlog).tolist() == [False, False, True]


def test_other_queues_let_later_work_start() -> None:
    backlog = Backlog([work("physics", 4), work("physics")])
    some = Quotas({}, [(work("physics", 2), an_allocation(["n1"]))], physics(resources={"cpu": 4}))
    assert some.within("q", backlog).tolist() == [False, True]
