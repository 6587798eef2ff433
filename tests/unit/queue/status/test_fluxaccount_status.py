from __future__ import annotations

from typing import Any

import msgspec
from support.builders import make_account
from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxaccounts import FluxAccount, UserShareStatus
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.accounts import account_tree
from fluxqueue.queue.model.fair_share import FairShare, UserShare
from fluxqueue.queue.status.fluxaccount_status import account_status, usage_by_account
from fluxqueue.queue.status.usage import WorkUsage


def an_account(name: str, **spec: Any) -> FluxAccount:
    return msgspec.convert(make_account(name, **spec), FluxAccount)


TREE = account_tree(
    [an_account("site"), an_account("physics", parent="site"), an_account("bio", parent="site")]
)


def test_work_counts_for_its_account_and_all_above_and_a_node_once_for_each() -> None:
    waiting = a_workload(account="physics")
    one, two = (
        a_workload(account="physics", state=State.RUNNING, jobid=7),
        a_workload(account="bio", state=State.DRAINING, jobid=8),
    )
    live = [(one, an_allocation(["n1", "n2"])), (two, an_allocation(["n2"], jobid=8))]
    assert usage_by_account([waiting, one, two, a_workload(), a_workload(account="gone")], live, TREE) == {
        "physics": WorkUsage(1, 1, 2),
        "bio": WorkUsage(0, 1, 1),
        "site": WorkUsage(1, 2, 2),
    }


def test_a_status_shows_the_counts_and_that_the_spec_takes_effect() -> None:
    status = account_status(an_account("physics", parent="site"), WorkUsage(1, 2, 3), TREE, EPOCH)
    assert (status.pending, status.running, status.nodes_in_use) == (1, 2, 3)
    assert [(each.type, each.status, each.reason) for each in status.conditions or ()] == [
        ("Ready", "True", "Ready")
    ]


def test_what_cannot_take_effect_is_a_condition_with_every_sentence() -> None:
    account = an_account("odd", parent="nowhere", limits={"resources": {"cpu": "many"}})
    status = account_status(account, WorkUsage(), account_tree([account]), EPOCH)
    (condition,) = status.conditions or []
    assert (condition.status, condition.reason) == ("False", "ParentMissing")
    assert "there is no FluxAccount 'nowhere'" in condition.message
    assert "spec.limits.resources.cpu" in condition.message


def test_the_condition_keeps_the_time_at_which_its_status_changed() -> None:
    account = an_account("physics")
    shown = msgspec.structs.replace(account, status=account_status(account, WorkUsage(), TREE, EPOCH))
    later = account_status(shown, WorkUsage(5), TREE, EPOCH.replace(year=2027))
    assert later.conditions == shown.status.conditions


def test_the_users_who_used_most_are_shown_with_rounded_use() -> None:
    users = {f"user-{number:03}": UserShare(1_000.0 + number, 0.5) for number in range(150)} | {
        "x" * 300: UserShare(1e9, 0.1)
    }
    fair = FairShare(1.0, 1_234_567.8, 1.0, 1.0, users=users)
    shown = account_status(an_account("physics"), WorkUsage(), TREE, EPOCH, fair).fair_share
    assert shown is not None
    assert shown.users is not None
    assert (len(shown.users), shown.users[0]) == (100, UserShareStatus("user-149", 1_150, 0.5))
    nobody = account_status(
        an_account("physics"), WorkUsage(), TREE, EPOCH, FairShare(1.0, 0.0, 1.0, 1.0)
    ).fair_share
    assert nobody is not None
    assert nobody.users is None
