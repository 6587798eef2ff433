from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from support.builders import make_account
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import NamespaceLimits, QueueLimits, WorkloadLimits
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of
from fluxqueue.queue.model.records import SlotState, Workload
from fluxqueue.queue.scheduling.limits.limit_scopes import OverLimit
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.limits.wide_answers import WideAnswers
from fluxqueue.queue.scheduling.policies.backlog import Backlog
from fluxqueue.queue.scheduling.policies.demands import amounts_of

START = datetime(2026, 11, 1, tzinfo=UTC)


def spec(pods: int = 1, millicores: int = 1000, **changes: Any) -> str:

    return jobspec_of(
        "default/x", [SizedPods({"cpu": Decimal(millicores) / 1000}, pods)], duration_s=60, **changes
    )


def workload(namespace: str = "a", queue: str = "q", pods: int = 1, millicores: int = 1000) -> Workload:
    return a_workload(namespace=namespace, queue=queue, pods=pods, jobspec=spec(pods, millicores))


def says(over: OverLimit | None) -> str:
    return "" if over is None else over.message


def quotas(limits: QueueLimits, *running: tuple[Workload, list[str]]) -> Quotas:
    return Quotas({"q": limits}, [(held, an_allocation(hosts)) for held, hosts in running])


def test_requests_are_counted_over_all_pods_whatever_the_shape() -> None:
    assert amounts_of(spec(3, 1500)) == {"cpu": 4500, "pods": 3}
    assert amounts_of(spec(3, 1500, placement=PlacementRules(one_per_node=True))) == {"cpu": 4500, "pods": 3}
    assert amounts_of("{}") == amounts_of("nonsense") == {}


def test_at_the_limit_of_running_workloads_the_next_waits_with_both_figures() -> None:
    some = quotas(QueueLimits(running=2), (workload(), ["n1"]))
    assert some.refusal(workload()) is None
    some.add_usage(workload(), ["n1"])
    assert (
        says(some.refusal(workload()))
        == "the queue 'q' may run 2 workloads at once, and 2 run or have nodes reserved"
    )


@pytest.mark.parametrize(("millicores", "may"), [(2000, True), (2100, False)])
def test_cores_may_be_used_up_to_the_limit_and_no_further(millicores: int, may: bool) -> None:
    some = quotas(QueueLimits(cores=4), (workload(pods=2), ["n1", "n2"]))
    assert (some.refusal(workload(millicores=millicores)) is None) is may


def test_a_node_counts_once_however_many_share_it() -> None:
    some = quotas(QueueLimits(nodes=2), (workload(), ["n1", "n1"]), (workload(), ["n1"]))
    assert some.excess(workload(), ["n1", "n2"]) is None
    assert "may use 2 nodes at once: it uses 1, and 3 with this" in says(
        some.excess(workload(), ["n2", "n3"])
    )


def test_ended_slots_do_not_count() -> None:
    allocation = an_allocation(["n1", "n2"], states=[SlotState.ENDED, SlotState.FREE])
    some = Quotas({"q": QueueLimits(nodes=2)}, [(workload(), allocation)])
    assert some.excess(workload(), ["n2", "n3"]) is None


def test_one_namespace_at_its_limit_leaves_room_for_another() -> None:
    some = quotas(QueueLimits(running=5, per_namespace=NamespaceLimits(running=1)), (workload("a"), ["n1"]))
    assert says(some.refusal(workload("a"))).startswith("namespace 'a' in the queue 'q' may run 1 ")
    assert some.refusal(workload("b")) is None


def test_a_queue_without_limits_refuses_nothing() -> None:
    some = quotas(QueueLimits(running=0))
    assert some.refusal(workload(queue="other")) is some.excess(workload(queue="other"), ["n1"]) is None
    assert some.refusal(workload()) is not None


def test_quotas_without_some_workloads_are_a_copy() -> None:
    gone, stays = workload(), workload()
    some = quotas(QueueLimits(running=2, nodes=2), (gone, ["n1"]), (stays, ["n1", "n2"]))
    other = some.without([gone.id])
    assert (some.refusal(workload()) is not None, other.refusal(workload())) == (True, None)
    other.add_usage(workload(), ["n2"])
    other.remove_usage(stays.id)
    assert other.excess(workload(), ["n1", "n2"]) is None
    assert "it uses 2, and 3 with this" in says(some.excess(workload(), ["n3"]))


def accounts(**limits: dict[str, Any]) -> AccountTree:
    """The account ``site`` with ``physics`` and ``bio`` below it."""
    parents = {"physics": "site", "bio": "site"}
    documents = [
        make_account(
            name, **({"parent": parents[name]} if name in parents else {}), limits=limits.get(name, {})
        )
        for name in ("site", "physics", "bio")
    ]
    return account_tree(msgspec.convert(documents, list[FluxAccount]))


def in_account(account: str, **changes: Any) -> Workload:
    requests = {
        "cpu": Decimal(changes.pop("cores", 1)),
        "memory": Decimal(changes.pop("memory", 0)),
        "nvidia.com/gpu": Decimal(0),
    }
    requests["nvidia.com/gpu"] += changes.pop("gpus", 0)
    jobspec = jobspec_of(
        "default/x",
        [SizedPods({name: amount for name, amount in requests.items() if amount}, 1)],
        duration_s=60,
    )
    return a_workload(queue="q", account=account, jobspec=jobspec, shape=jobspec, **changes)


def test_a_limit_of_an_account_holds_for_all_accounts_below_it_together() -> None:
    some = Quotas({}, [(in_account("physics"), an_allocation(["n1"]))], accounts(site={"running": 2}))
    assert some.refusal(in_account("bio")) is None
    some.add_usage(in_account("bio"), ["n1"])
    for account in ("bio", "physics", "site"):
        over = some.refusal(in_account(account))
        assert (
            says(over) == "the account 'site' may run 2 workloads at once, and 2 run or have nodes reserved"
        )
        assert over is not None
        assert over.reason is Reason.ACCOUNT_LIMIT
    assert some.refusal(in_account("")) is some.refusal(in_account("unknown")) is None


def test_the_limits_of_queue_and_account_hold_both() -> None:
    some = Quotas({"q": QueueLimits(cores=4)}, (), accounts(physics={"resources": {"cpu": 2}}))
    assert says(some.refusal(in_account("physics", cores=3))).startswith(
        "the account 'physics' may use 2 cores at once"
    )
    assert says(some.refusal(in_account("bio", cores=5))).startswith("the queue 'q' may use 4 cores at once")


@pytest.mark.parametrize(
    ("limits", "used", "wanted", "words"),
    [
        (
            {"cpu": "2500m"},
            {"cores": 2},
            {"cores": 1},
            "may use 2.5 cores at once: it uses 2, and this wants 1 more",
        ),
        (
            {"memory": "1Gi"},
            {"memory": 768 << 20},
            {"memory": 512 << 20},
            "may use 1 GiB memory at once: it uses 768 MiB, and this wants 512 MiB more",
        ),
        (
            {"nvidia.com/gpu": 4},
            {"gpus": 3},
            {"gpus": 2},
            "may use 4 nvidia.com/gpu at once: it uses 3, and this wants 2 more",
        ),
        ({"pods": 1}, {}, {}, "may use 1 pod at once: it uses 1, and this wants 1 more"),
    ],
)
def test_any_resource_may_be_limited_and_every_figure_is_named(
    limits: dict[str, Any], used: dict[str, int], wanted: dict[str, int], words: str
) -> None:
    some = Quotas(
        {}, [(in_account("physics", **used), an_allocation(["n1"]))], accounts(physics={"resources": limits})
    )
    assert says(some.refusal(in_account("physics", **wanted))) == f"the account 'physics' {words}"


def test_work_that_requests_nothing_of_a_resource_is_not_limited_by_it() -> None:
    some = Quotas({}, (), accounts(physics={"resources": {"nvidia.com/gpu": 0}}))
    assert some.refusal(in_account("physics")) is None
    assert some.refusal(in_account("physics", gpus=1)) is not None


def test_nodes_of_an_account_are_counted_over_all_queues() -> None:
    elsewhere = a_workload(queue="other", account="bio", jobspec=spec())
    some = Quotas({}, [(elsewhere, an_allocation(["n1", "n2"]))], accounts(site={"nodes": 3}))
    assert some.excess(in_account("physics"), ["n2", "n3"]) is None
    words = "the account 'site' may use 3 nodes at once: it uses 2, and 4 with this"
    assert says(some.excess(in_account("physics"), ["n3", "n4"])) == words
    assert some.together([in_account("physics"), in_account("bio")]) == 1
    assert some.together([in_account(""), in_account(""), in_account("physics")]) == 2


def test_the_rows_within_the_limits_are_those_that_are_not_refused() -> None:
    backlog = Backlog(
        [
            in_account("physics", cores=2),
            in_account("physics", cores=1),
            in_account("bio", gpus=1),
            in_account("bio", cores=8),
            in_account("", cores=8, gpus=8),
        ]
    )
    tree = accounts(site={"resources": {"nvidia.com/gpu": 0}}, physics={"resources": {"cpu": "1500m"}})
    some = Quotas({}, (), tree)
    rows = some.within("q", backlog)
    assert rows.tolist() == [False, True, False, True, True]
    assert [some.refusal(workload) is None for workload in backlog] == rows.tolist()
    assert np.flatnonzero(
        ~Quotas({}, (), accounts(physics={"running": 0})).within("q", backlog)
    ).tolist() == [0, 1]


def test_an_account_whose_grants_are_over_its_limit_again_and_again_closes_itself_and_no_other() -> None:
    backlog = Backlog([in_account("physics", cores=cores) for cores in range(1, 31)] + [in_account("bio")])
    some = Quotas({}, [(in_account("physics"), an_allocation(["n0"]))], accounts(physics={"nodes": 2}))
    for workload in [*backlog][:20]:
        over = some.excess(workload, ["n1", "n2"])
        assert over is not None
        some.set_aside(workload, over)
    assert np.flatnonzero(some.within("q", backlog)).tolist() == [30]
    assert (
        some.reached(backlog[25]).message
        == "the account 'physics' is at a limit (spec.limits of its FluxAccount)"
    )


def test_any_resource_may_be_limited_of_a_queue_and_of_each_namespace_in_it() -> None:
    gpu = jobspec_of("a/x", [SizedPods({"cpu": Decimal(1), "nvidia.com/gpu": Decimal(2)}, 1)], duration_s=60)
    each = a_workload(namespace="a", queue="q", jobspec=gpu)
    limits = QueueLimits(
        resources={"nvidia.com/gpu": 5}, per_namespace=NamespaceLimits(resources={"nvidia.com/gpu": "3"})
    )
    some = quotas(limits, (each, ["n1"]))
    other = a_workload(namespace="b", queue="q", jobspec=gpu)
    assert says(some.refusal(a_workload(namespace="a", queue="q", jobspec=gpu))) == (
        "namespace 'a' in the queue 'q' may use 3 nvidia.com/gpu at once: it uses 2, and this wants 2 more"
    )
    assert some.refusal(other) is None
    some.add_usage(other, ["n1"])
    assert says(some.refusal(a_workload(namespace="c", queue="q", jobspec=gpu))) == (
        "the queue 'q' may use 5 nvidia.com/gpu at once: it uses 4, and this wants 2 more"
    )
    assert some.refusal(workload()) is None, "what asks for none of it is not limited by it"


@pytest.mark.parametrize(
    ("limits", "cores"),
    [({"cores": 2, "resources": {"cpu": 4}}, 2), ({"cores": 8, "resources": {"cpu": "4"}}, 4)],
)
def test_of_cores_and_cpu_the_lower_one_counts(limits: dict[str, Any], cores: int) -> None:
    some = quotas(QueueLimits(**limits))
    assert some.refusal(workload(millicores=cores * 1000)) is None
    assert some.refusal(workload(millicores=cores * 1000 + 1)) is not None


def test_one_workload_may_ask_for_no_more_than_the_limit_of_each_whatever_others_use() -> None:
    some = quotas(QueueLimits(cores=9, per_workload=WorkloadLimits(cores=4)))
    assert some.refusal(workload(pods=4)) is None
    over = some.refusal(workload(pods=5))
    assert over is not None
    assert over.alone
    assert over.message == (
        "the queue 'q' allows one workload 4 cores, and this wants 5: "
        "ask for less (spec.limits.perWorkload of its FluxQueue)"
    )
    some.add_usage(workload(pods=4), ["n1"])
    some.add_usage(workload(pods=3), ["n1"])
    assert (
        says(some.refusal(workload(pods=4)))
        == "the queue 'q' may use 9 cores at once: it uses 7, and this wants 4 more"
    )


def test_what_alone_is_too_large_is_left_out_before_a_match_and_told_why() -> None:
    backlog = Backlog([workload(pods=pods) for pods in (1, 5, 4)])
    some = quotas(QueueLimits(per_workload=WorkloadLimits(resources={"cpu": "4"})))
    assert some.within("q", backlog).tolist() == [True, False, True]
    assert "allows one workload 4 cores, and this wants 5" in some.reached(backlog[1]).message


def test_an_account_and_those_above_it_limit_each_workload() -> None:
    tree = accounts(site={"perWorkload": {"resources": {"cpu": 2, "memory": "nonsense"}}})
    assert tree.limited
    (problem,) = tree.problems["site"]
    assert problem.message.startswith("spec.limits.perWorkload.resources.memory: ")
    some = Quotas({}, (), tree)
    rows = [in_account("physics", cores=3), in_account("physics", cores=2), in_account("", cores=3)]
    assert says(some.refusal(rows[0])) == (
        "the account 'site' allows one workload 2 cores, and this wants 3: ask for less "
        "(spec.limits.perWorkload of its FluxAccount)"
    )
    assert some.within("q", Backlog(rows)).tolist() == [False, True, True]


def test_a_request_that_got_too_many_nodes_is_matched_again_after_minutes_or_if_the_limit_is_raised() -> None:
    wide, narrow = in_account("physics"), in_account("physics", cores=2)
    backlog, found = Backlog([wide, narrow]), WideAnswers(START)
    tree = accounts(site={"nodes": 3, "perWorkload": {"nodes": 2}})
    some = Quotas({}, (), tree, wide=found)
    over = some.excess(wide, ["n1", "n2", "n3"])
    assert over is not None
    assert over.alone
    assert over.message == (
        "the account 'site' allows one workload 2 nodes, and this would get 3: ask for less "
        "(spec.limits.perWorkload of its FluxAccount)"
    )
    assert some.excess(narrow, ["n1", "n2"]) is None
    found.begin_cycle(START + timedelta(minutes=4))
    later = Quotas({}, (), tree, wide=found)
    assert later.within("q", backlog).tolist() == [False, True]
    assert later.reached(wide) == over
    raised = accounts(site={"nodes": 3, "perWorkload": {"nodes": 3}})
    assert Quotas({}, (), raised, wide=found).within("q", backlog).tolist() == [True, True]
    assert Quotas({}, (), AccountTree(), wide=found).within("q", backlog).tolist() == [True, True]
    found.begin_cycle(START + timedelta(minutes=6))
    assert Quotas({}, (), tree, wide=found).within("q", backlog).tolist() == [True, True]


def test_a_request_that_got_too_many_nodes_beside_others_waits_until_as_many_are_free_of_the_limit() -> None:
    wide, runs = in_account("physics", cores=2), in_account("physics")
    found, tree = WideAnswers(START), accounts(physics={"nodes": 2})
    some = Quotas({}, [(runs, an_allocation(["n0"]))], tree, wide=found)
    over = some.excess(wide, ["n1", "n2"])
    assert over is not None
    assert not over.alone
    some.set_aside(wide, over)
    assert not some.left_for_later, "nineteen more would close the account"
    later = Quotas({}, [(runs, an_allocation(["n0"]))], tree, wide=found)
    assert later.within("q", Backlog([wide, in_account("physics")])).tolist() == [False, True]
    assert Quotas({}, (), tree, wide=found).within("q", Backlog([wide])).tolist() == [True], (
        "nothing runs any more"
    )
    found.begin_cycle(START + timedelta(seconds=15))
    assert later.within("q", Backlog([wide])).tolist() == [True]


def test_under_a_limit_below_the_present_use_nothing_starts_also_on_nodes_in_use() -> None:
    some = quotas(QueueLimits(nodes=2), (workload(), ["n1", "n2", "n3"]))
    assert (
        says(some.excess(workload(), ["n1"]))
        == "the queue 'q' may use 2 nodes at once: it uses 3, and 3 with this"
    )
