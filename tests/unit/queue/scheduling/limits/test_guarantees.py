"""What is guaranteed: which work comes first because of it, who may lose nodes for it, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
from support.builders import make_account
from support.queue_builders import EPOCH, a_workload, an_allocation

from fluxqueue.api.fluxaccounts import FluxAccount, GuaranteedStatus
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.fluxion.messages import GraphNodeSpec, Pool
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import GUARANTEED_FIRST, SlotState, Workload
from fluxqueue.queue.model.requeue_records import GivenBack, RequeueState
from fluxqueue.queue.scheduling.limits.guarantees import NO_GUARANTEES, Guarantees, held_nodes, largest_of
from fluxqueue.queue.scheduling.policies.backlog import Backlog

LARGEST = {"cpu": 8000}


def accounts(**guaranteed: dict[str, Any]) -> AccountTree:
    """The account ``site`` with ``physics`` and ``bio`` below it, and ``chem`` beside it."""
    parents = {"physics": "site", "bio": "site"}
    documents = [
        make_account(
            name,
            **({"parent": parents[name]} if name in parents else {}),
            **({"guaranteed": more} if more else {}),
        )
        for name in ("site", "physics", "bio", "chem")
        for more in [guaranteed.get(name)]
    ]
    return account_tree(msgspec.convert(documents, list[FluxAccount]))


def work(account: str, pods: int = 1, cores: int = 1, gpus: int = 0, **more: Any) -> Workload:
    requests = {"cpu": Decimal(cores), "nvidia.com/gpu": Decimal(gpus)}
    jobspec = jobspec_of(
        "default/x",
        [SizedPods({name: amount for name, amount in requests.items() if amount}, pods)],
        duration_s=60,
    )
    return a_workload(account=account, jobspec=jobspec, shape=f"{jobspec}", pods=pods, **more)


def first(found: Guarantees, *waiting: Workload) -> list[bool]:
    chosen = found.first([Backlog(waiting)], LARGEST)
    return [workload.id in chosen for workload in waiting]


def test_work_is_covered_by_the_nearest_guarantee_that_names_what_it_asks_for() -> None:
    found = Guarantees(accounts(site={"nodes": 4}, physics={"resources": {"nvidia.com/gpu": 2}}))
    covering = [
        found.covering(each)
        for each in (
            work("bio"),
            work("physics", gpus=2),
            work("physics", gpus=3),
            work("physics"),
            work("chem"),
        )
    ]
    assert covering == ["site", "physics", "", "", ""]
    assert not NO_GUARANTEES.any
    assert NO_GUARANTEES.covering(work("physics")) == ""


def test_as_much_comes_first_as_fits_the_guarantee_together() -> None:
    found = Guarantees(accounts(physics={"nodes": 3}), [(work("physics"), ["n1"])])
    assert first(found, work("physics", 2, 8), work("physics"), work("chem")) == [True, False, False]
    assert first(found, work("physics", 3, 8), work("physics"), work("physics"), work("physics")) == [
        False,
        True,
        True,
        False,
    ]


def test_the_backlog_of_one_account_keeps_no_other_from_its_guarantee() -> None:
    found = Guarantees(accounts(physics={"nodes": 1}, bio={"nodes": 1}, chem={"nodes": 1}))
    many = [work("physics", cores=8, priority=9) for _ in range(1_500)]
    assert first(found, *many, work("bio"), work("chem")) == [True, *([False] * 1_499), True, True]


def test_small_pods_are_taken_to_share_nodes_unless_their_work_was_preempted() -> None:
    found = Guarantees(accounts(physics={"nodes": 2}))
    small = work("physics", 16)
    assert first(found, small) == [True]
    assert first(found, replace(small, reason=Reason.PREEMPTED)) == [False]


def test_what_comes_first_already_is_compared_with_the_rest_as_without_the_guarantee() -> None:
    found = Guarantees(accounts(physics={"nodes": 1}))
    was_first, urgent = work("physics", added_priority=GUARANTEED_FIRST), work("physics", priority=5)
    assert (was_first.comes_first, was_first.weighed_priority) == (True, 0)
    assert first(found, was_first, urgent) == [False, True]


def test_whether_work_is_covered_in_nodes_is_seen_on_the_answer() -> None:
    found = Guarantees(accounts(physics={"nodes": 3}), [(work("physics"), ["n1"])])
    assert found.covers(work("physics"), ["n1", "n2", "n3"], [])
    assert not found.covers(work("physics"), ["n2", "n3", "n4"], [])
    assert not found.covers(work("physics"), ["n2", "n3"], [(work("physics"), ["n4"])])
    assert found.covers(work("physics"), ["n2", "n3"], [(work("chem"), ["n4"])])


def losing(
    found: Guarantees,
    workload: Workload,
    running: Sequence[tuple[Workload, list[str]]],
    *,
    reclaim: bool = True,
) -> list[int]:
    lost = {*found.losing(workload, running, reclaim=reclaim)}
    return [number for number, (each, _) in enumerate(running) if each.id in lost]


def test_only_accounts_that_borrow_lose_and_no_more_than_that() -> None:
    running = [
        (work("bio"), ["n1"]),
        (work("bio"), ["n2"]),
        (work("bio"), ["n3"]),
        (work("chem"), ["n4"]),
        (work("physics"), ["n5"]),
    ]
    found = Guarantees(accounts(physics={"nodes": 4}, bio={"nodes": 2}), running)
    assert losing(found, work("physics"), running) == [0, 3]
    assert losing(found, work("physics"), running, reclaim=False) == [0, 3, 4]
    assert losing(found, work("chem", priority=9), running, reclaim=False) == [0, 3]


def test_the_work_below_an_account_is_not_taken_for_its_own_guarantee() -> None:
    running = [(work("bio"), ["n1"]), (work("chem"), ["n2"])]
    assert losing(Guarantees(accounts(site={"nodes": 4}), running), work("physics"), running) == [1]


def test_what_is_shown_has_the_units_of_people_and_what_is_borrowed() -> None:
    tree = accounts(site={"nodes": 1, "resources": {"cpu": "1500m", "nvidia.com/gpu": 4}})
    live = [(work("physics", 2), an_allocation(["n1", "n2"]))]
    found = Guarantees(tree, held_nodes(live))
    assert found.shown("site") == [
        GuaranteedStatus("nodes", "1", "2", "1"),
        GuaranteedStatus("cpu", "1.5", "2", "0.5"),
        GuaranteedStatus("nvidia.com/gpu", "4", "0", "0"),
    ]
    assert found.shown("physics") == []


def test_what_a_job_gives_back_is_used_of_its_guarantee_until_its_pods_have_ended() -> None:
    jobspec = jobspec_of("default/x", [SizedPods({"cpu": Decimal(1)}, 3)], duration_s=60, min_pods=1)
    given = GivenBack(jobid=7, ranks=(1, 2), stop_at=EPOCH, message="x gave 2 of its 3 pods back")
    smaller = a_workload(
        account="chem",
        jobspec=jobspec,
        pods=3,
        state=State.RUNNING,
        jobid=7,
        hosts="n[1-3]",
        requeue_state=RequeueState(given_back=given),
    )
    slots = an_allocation(["n1", "n2", "n3"], states=[SlotState.TAKEN, SlotState.TAKEN, SlotState.ENDED])
    (shown,) = Guarantees(accounts(chem={"resources": {"cpu": 1}}), held_nodes([(smaller, slots)])).shown(
        "chem"
    )
    assert (shown.used, shown.borrowed) == ("2", "1")


def test_the_largest_of_all_nodes_counts() -> None:
    nodes = [
        GraphNodeSpec("a", (Pool("cpu", 8000),)),
        GraphNodeSpec("b", (Pool("cpu", 16000), Pool("gpu", 2))),
    ]
    assert largest_of(nodes) == {"cpu": 16000, "gpu": 2}
