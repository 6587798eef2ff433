"""Which work is beyond what its account may have submitted:
the latest, whatever its priority, and never what has nodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from support.builders import make_account
from support.controller_bench import subscribed
from support.queue_builders import EPOCH, a_workload
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits import submitted_limits
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.limits.submitted_limits import SubmittedLimits, beyond_submitted
from fluxqueue.queue.scheduling.policies.backlog import Backlog


def accounts(**limits: int) -> AccountTree:
    """The account ``site`` with ``physics`` and ``bio`` below it, and how much each may have submitted."""
    parents: dict[str, dict[str, Any]] = {
        "site": {},
        "physics": {"parent": "site"},
        "bio": {"parent": "site"},
    }
    documents = [
        make_account(name, **parent, limits={"submitted": limits[name]} if name in limits else {})
        for name, parent in parents.items()
    ]
    return account_tree(msgspec.convert(documents, list[FluxAccount]))


def work(account: str, minute: int, **more: Any) -> Workload:
    return a_workload(queue="q", account=account, submitted_at=EPOCH + timedelta(minutes=minute), **more)


def test_the_latest_are_beyond_and_what_has_nodes_counts_first() -> None:
    runs = work("physics", 9, state=State.RUNNING, jobid=7)
    first, second = work("physics", 1), work("physics", 2, priority=100)
    other = work("bio", 3)
    beyond = beyond_submitted([second, other, first, runs], accounts(physics=2))
    assert {workload: over.message for workload, over in beyond.items()} == {
        second.id: (
            "the account 'physics' may have 2 workloads submitted at once, and 2 were submitted before this"
        )
    }


def test_accounts_below_one_share_what_it_may_submit_and_what_is_beyond_takes_no_room() -> None:
    some = [work("physics", 1), work("physics", 2), work("bio", 3), work("bio", 4), work("", 0)]
    beyond = beyond_submitted(some, accounts(site=2, physics=1))
    assert [workload.id in beyond for workload in some] == [False, True, False, True, False]


def test_without_such_limits_nothing_is_beyond() -> None:
    assert beyond_submitted([work("physics", 1)], accounts()) == {}


def test_the_forecast_says_itself_what_has_nodes() -> None:
    first, second = work("physics", 1), work("physics", 2)
    assert [*beyond_submitted([first, second], accounts(physics=1), lambda workload: workload is second)] == [
        first.id
    ]


def test_what_is_kept_equals_what_is_found_anew_whatever_happens() -> None:
    rng = random.Random(1)
    ledger = RecordingLedger()
    kept, tree = subscribed(SubmittedLimits(ledger), ledger), accounts(site=12, physics=4)
    known: dict[int, Workload] = {}
    for step in range(400):
        if step % 100 == 99:
            limits = {name: rng.randrange(1, 12) for name in rng.sample(["site", "physics", "bio"], 2)}
            tree = accounts(**limits) if rng.random() < 0.8 else accounts()
        act, some = rng.random(), rng.choice([*known.values(), None])
        if some is None or act < 0.4:
            some = work(rng.choice(["site", "physics", "bio", "none", ""]), rng.randrange(50))
            known[some.id] = ledger.put(some)
        elif act < 0.6:
            ledger.end(known.pop(some.id))
        else:
            state, account = rng.choice([State.PENDING, State.RUNNING]), rng.choice(["physics", "bio", ""])
            known[some.id] = ledger.put(replace(some, state=state, account=account))
        assert kept.beyond(tree) == beyond_submitted(ledger.all(), tree)


def test_only_accounts_whose_work_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [work(account, minute) for account in ("physics", "bio") for minute in range(50)]
    ledger = RecordingLedger(*((row, None) for row in rows))
    kept, tree, found = subscribed(SubmittedLimits(ledger), ledger), accounts(physics=10, bio=80), list[str]()
    over = submitted_limits._beyond

    def counted(some: Iterable[Workload], *more: Any) -> dict[WorkloadId, OverLimit]:
        workloads = list(some)
        found.extend(each.account for each in workloads)
        return over(workloads, *more)

    monkeypatch.setattr(submitted_limits, "_beyond", counted)
    assert len(kept.beyond(tree)) == 40
    assert found == ["physics"] * 50, "bio has less than it may"
    for row in rows:
        ledger.put(replace(row, message="no node is free"))
    kept.beyond(tree)
    assert found == ["physics"] * 50, "another reason changes nothing"
    ledger.put(work("bio", 99))
    assert len(kept.beyond(tree)) == len(kept.beyond(tree)) == 40
    assert len(found) == 50
    ledger.put(work("physics", 99))
    assert len(kept.beyond(tree)) == 41
    assert len(found) == 101


def test_what_is_beyond_is_not_matched_nor_in_a_trial() -> None:
    first, second = work("physics", 1), work("physics", 2)
    tree, backlog = accounts(physics=1), Backlog([first, second])
    quotas = Quotas({}, (), tree, beyond_submitted(backlog, tree))
    assert quotas.within("q", backlog).tolist() == [True, False]
    assert quotas.refusal(second) is not None
    assert quotas.without([first.id]).refusal(second) is not None
    backlog.remove(first.id)
    quotas.note_backlogs_changed()
    assert np.flatnonzero(quotas.within("q", backlog)).tolist() == []
