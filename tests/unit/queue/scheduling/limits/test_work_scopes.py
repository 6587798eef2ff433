"""Which limits hold for whom: of queues and accounts, and of each namespace and user in them."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from support.builders import make_account
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Limits, NamespaceLimits, QueueLimits
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Workload
from fluxqueue.queue.model.users import programs_of, user_of, user_title
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog

USERS = (
    "alice",
    "bob",
    "",
    "system:serviceaccount:kube-system:cronjob-controller",
    "system:serviceaccount:a:robot",
)
PROGRAMS = "work of ServiceAccounts in namespace 'a' in the queue 'q'"


def work(user: str = "alice", namespace: str = "a", account: str = "", cores: int = 1) -> Workload:
    spec = jobspec_of("default/x", [SizedPods({"cpu": Decimal(cores)}, 1)], duration_s=60)
    return a_workload(
        namespace=namespace, queue="q", account=account, submitted_by=user, jobspec=spec, shape=spec
    )


def tree(**limits: dict[str, Any]) -> AccountTree:
    parents: dict[str, dict[str, Any]] = {"site": {}, "physics": {"parent": "site"}}
    documents = [
        make_account(name, limits=limits.get(name, {}), **parent) for name, parent in parents.items()
    ]
    return account_tree(msgspec.convert(documents, list[FluxAccount]))


def quotas(limits: QueueLimits, *running: Workload, accounts: AccountTree | None = None) -> Quotas:
    return Quotas(
        {"q": limits}, [(each, an_allocation(["n1"])) for each in running], accounts or AccountTree()
    )


def says(some: Quotas, workload: Workload) -> str:
    over = some.refusal(workload)
    return over.message if over is not None else ""


@pytest.mark.parametrize(
    ("user", "counts_for"),
    [
        ("alice", "alice"),
        ("", programs_of("a")),
        ("system:serviceaccount:kube-system:cronjob-controller", programs_of("a")),
        ("system:kube-controller-manager", programs_of("a")),
        ("system:serviceaccount:a:robot", programs_of("a")),
        ("system:admin", "system:admin"),
        ("namespace:b", "namespace:b"),
        ("system:serviceaccounts:b", programs_of("a")),
    ],
)
def test_work_counts_for_who_submitted_it_and_that_of_programs_for_its_namespace(
    user: str, counts_for: str
) -> None:
    assert user_of(work(user)) == counts_for


@pytest.mark.parametrize("user", ["namespace:b", "system:serviceaccounts:b", programs_of("b")])
def test_no_name_of_a_user_counts_for_the_programs_of_another_namespace(user: str) -> None:
    assert user_of(work(user)) != user_of(work("", namespace="b"))
    assert user_title(user_of(work("namespace:b"))) == "user 'namespace:b'"


def test_each_user_of_a_queue_has_the_limit_in_all_namespaces_together() -> None:
    some = quotas(QueueLimits(per_user=Limits(running=2)), work(), work(namespace="b"), work("bob"))
    assert (
        says(some, work(namespace="c"))
        == "user 'alice' in the queue 'q' may run 2 workloads at once, and 2 run or have nodes reserved"
    )
    assert says(some, work("bob")) == ""


def test_the_programs_of_a_namespace_have_the_limit_of_one_user_together() -> None:
    some = quotas(QueueLimits(per_user=Limits(running=1)), work(USERS[3]))
    assert says(some, work("")) == f"{PROGRAMS} may run 1 workloads at once, and 1 run or have nodes reserved"
    assert says(some, work("", namespace="b")) == says(some, work()) == ""


def test_each_user_of_an_account_has_the_limit_in_it_and_below_it() -> None:
    accounts = tree(site={"perUser": {"running": 1, "resources": {"cpu": 4}}})
    some = quotas(QueueLimits(), work(account="physics"), accounts=accounts)
    over = some.refusal(work(account="site", namespace="b"))
    assert over is not None
    assert over.reason is Reason.ACCOUNT_LIMIT
    assert (
        over.message
        == "user 'alice' in the account 'site' may run 1 workloads at once, and 1 run or have nodes reserved"
    )
    assert says(some, work("bob", account="site")) == says(some, work()) == ""
    assert says(some, work("bob", account="site", cores=5)).startswith(
        "user 'bob' in the account 'site' may use 4 cores at once"
    )


def test_a_limit_of_each_user_that_cannot_be_read_limits_nothing_and_is_told() -> None:
    found = tree(site={"perUser": {"resources": {"memory": "nonsense"}}})
    (problem,) = found.problems["site"]
    assert problem.message.startswith("spec.limits.perUser.resources.memory: ")
    assert not found.limited


def _some_limits(chance: random.Random) -> dict[str, Any]:
    """Return limits of which some are set."""
    every = {"running": chance.randrange(4), "nodes": chance.randrange(3), "cores": chance.randrange(8)}
    return {name: most for name, most in every.items() if chance.random() < 0.4}


@pytest.mark.parametrize("seed", range(60))
def test_the_rows_within_all_limits_are_those_that_are_not_refused(seed: int) -> None:
    """The columns of a backlog say the same as one look at each workload, in random worlds of limits, users,
    namespaces and accounts.
    """
    chance = random.Random(seed)

    def anybody() -> Workload:
        return work(
            chance.choice(USERS),
            chance.choice("ab"),
            chance.choice(("", "site", "physics")),
            chance.randint(1, 3),
        )

    limits = QueueLimits(
        **_some_limits(chance),
        per_namespace=NamespaceLimits(**_some_limits(chance)),
        per_user=Limits(**_some_limits(chance)),
    )
    of_accounts = [_some_limits(chance) | {"perUser": _some_limits(chance)} for _ in range(2)]
    for each in (*of_accounts, *(part["perUser"] for part in of_accounts)):
        if "cores" in each:
            each["resources"] = {"cpu": each.pop("cores")}
    some = quotas(
        limits, *(anybody() for _ in range(4)), accounts=tree(site=of_accounts[0], physics=of_accounts[1])
    )
    backlog = Backlog(anybody() for _ in range(30))
    assert np.flatnonzero(some.within("q", backlog)).tolist() == [
        row for row, each in enumerate(backlog) if some.refusal(each) is None
    ]
