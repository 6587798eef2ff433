"""What ResourceQuotas leave, and which work waits for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.builders import JobBuilder, PodBuilder, make_job, make_pod
from support.controller_bench import subscribed, until
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.records import SlotState, Workload
from fluxqueue.queue.scheduling.limits import namespace_quotas, quota_room
from fluxqueue.queue.scheduling.limits.namespace_quotas import NamespaceQuotas
from fluxqueue.queue.scheduling.limits.quota_room import NamespaceRoom
from fluxqueue.queue.scheduling.limits.quotas import Quotas
from fluxqueue.queue.scheduling.policies.backlog import Backlog


class Bench:
    """A namespace with a quota of pods."""

    def __init__(self, hard: int = 2, used: int = 0, **spec: Any) -> None:
        self.server = MemoryApi()
        self.caches = Caches(self.server.api)
        self.ledger = RecordingLedger()
        self.quotas = subscribed(NamespaceQuotas(self.caches, self.ledger), self.caches, self.ledger)
        self.wakes = 0
        self.quotas.subscribe(self._wake)
        self.server.show_in(self.caches)
        self.server.watch_into("resourcequotas", self.caches.resource_quotas)
        self.spec = spec
        self.quota(hard, used)

    def _wake(self) -> None:
        self.wakes += 1

    def quota(self, hard: int, used: int, name: str = "team", namespace: str = "default") -> None:
        status = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
        self.server.put(
            "resourcequotas",
            {"metadata": {"name": name, "namespace": namespace}, "spec": self.spec, "status": status},
        )

    def job(self, name: str, builder: JobBuilder | None = None, pods: int = 1, **changes: Any) -> Workload:
        """A Job with its row."""
        state = changes.get("state", State.PENDING)
        self.server.put(
            "jobs", (builder or make_job(name)).uid(name).suspended(state is State.PENDING).build()
        )
        return a_workload(name, uid=name, pods=pods, **changes)

    def granted(self, name: str, pods: int = 1, state: State = State.ALLOCATED) -> Workload:
        """A Job that has its nodes."""
        builder = make_job(name).indexed(pods) if pods > 1 else None
        row = self.job(name, builder, pods, state=state, jobid=7)
        self.ledger.put(
            row, replace(an_allocation(["n1"] * pods, states=[SlotState.FREE] * pods), workload=row.id)
        )
        return row

    def pod(self, name: str, job: str, node: str = "") -> PodBuilder:
        pod = make_pod(name).uid(name).owned_by("Job", job).with_("metadata.ownerReferences", owner(job))
        pod = pod.on_node(node).phase("Running") if node else pod
        self.server.put("pods", pod.build())
        return pod

    def measured(self) -> Quotas:
        return Quotas({}, self.ledger.live(), room=self.quotas.room())

    def refusal(self, workload: Workload) -> str:
        over = self.measured().refusal(workload)
        return over.message if over is not None else ""


def owner(job: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}]


async def test_work_that_fits_may_start_and_other_work_waits_with_figures_and_a_remedy() -> None:
    bench = Bench(hard=2, used=1)
    assert bench.refusal(bench.job("a")) == ""
    over = bench.measured().refusal(bench.job("b", pods=2))
    assert over is not None
    assert over.reason is Reason.QUEUE_LIMIT
    assert over.message == (
        "the ResourceQuota 'team' of namespace 'default' allows 2 pods and leaves 1 pods, "
        "and this asks for 2 pods: "
        "it can start when work of the namespace ends, or its quota is raised"
    )
    assert bench.refusal(bench.job("c", pods=3)).endswith(
        "allows 2 pods, and this asks for 3 pods: ask for less, or have the quota raised"
    )


async def test_grants_of_the_cycle_take_their_part_at_once_and_give_it_back() -> None:
    bench = Bench()
    quotas = bench.measured()
    first, second = bench.job("a", pods=2), bench.job("b")
    quotas.add_usage(first, ["n1"])
    quotas.add_usage(first, ["n1"])
    assert quotas.refusal(second) is not None
    assert quotas.without([first.id]).refusal(second) is None
    assert quotas.refusal(second) is not None
    quotas.remove_usage(first.id)
    assert quotas.refusal(second) is None


async def test_of_a_backlog_the_rows_that_fit_stay_open() -> None:
    bench = Bench()
    rows = [
        bench.job("a"),
        bench.job("b", pods=3),
        bench.job("c"),
        a_workload("other", namespace="elsewhere", pods=9),
    ]
    for row in rows:
        bench.refusal(row)
    quotas, backlog = bench.measured(), Backlog(rows)
    assert quotas.limited("default")
    assert quotas.within("default", backlog).tolist() == [True, False, True, True]
    quotas.add_usage(rows[0], ["n1"])
    quotas.add_usage(rows[2], ["n1"])
    assert quotas.within("default", backlog).tolist() == [False, False, False, True]
    assert quotas.reached(rows[1]).message.startswith(
        "the ResourceQuotas of namespace 'default' leave no room for it: it can start when"
    )


async def test_work_is_only_looked_at_where_something_does_not_fit() -> None:
    bench = Bench(hard=2)
    rows = [bench.job("a"), bench.job("b", pods=3)]
    quotas, backlog = bench.measured(), Backlog(rows)
    assert quotas.within("default", backlog).tolist() == [True, True], "nothing is known of what they ask for"
    assert quotas.refusal(rows[1]) is not None
    assert quotas.within("default", backlog).tolist() == [True, False]


async def test_of_much_work_that_waits_for_a_quota_only_the_first_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota_room, "_MOST_ROWS", 2)
    bench = Bench(hard=1)
    rows = [bench.job("a", pods=2), *(bench.job(name) for name in "bcd")]
    quotas, backlog = bench.measured(), Backlog(rows)
    quotas.refusal(rows[0])
    assert quotas.within("default", backlog).tolist() == [False, True, False, False]
    assert "leave no room for it" in quotas.reached(rows[3]).message


async def test_a_grant_changes_the_rows_of_its_own_namespace_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(hard=1)
    names = [f"team-{number}" for number in range(20)]
    rows = [bench.job("a"), bench.job("b")]
    for name in names:
        bench.quota(0, 0, namespace=name)
        rows.append(
            bench.job(f"of-{name}", make_job(f"of-{name}").with_("metadata.namespace", name), namespace=name)
        )
    looked: list[int] = []
    fitting = NamespaceRoom.fitting

    def note(room: NamespaceRoom) -> Any:
        looked.append(len(room.bounds))
        return fitting(room)

    quotas, backlog = bench.measured(), Backlog(rows)
    assert quotas.within("default", backlog).tolist() == [True, True, *[False] * 20], (
        "the first of each namespace is measured"
    )
    monkeypatch.setattr(NamespaceRoom, "fitting", note)
    quotas.add_usage(rows[0], ["n1"])
    assert quotas.within("default", backlog).tolist() == [False] * 22
    assert len(looked) <= 2
    quotas.remove_usage(rows[0].id)
    assert quotas.within("default", backlog).tolist() == [True, True, *[False] * 20]
    assert len(looked) <= 4


async def test_only_as_many_are_matched_in_one_step_as_fit() -> None:
    bench = Bench()
    assert bench.measured().together([bench.job(name) for name in "abc"]) == 2


async def test_what_was_granted_and_is_not_used_yet_is_not_granted_again() -> None:
    bench = Bench(hard=3)
    bench.granted("a", 2)
    assert bench.refusal(bench.job("b", pods=2)) != ""
    assert bench.refusal(bench.job("c")) == ""


async def test_a_bound_pod_is_counted_by_the_quota_alone() -> None:
    bench = Bench(hard=3)
    bench.granted("a", 2)
    bench.quotas.room()
    for name in ("a-0", "a-1"):
        bench.pod(name, "a")
    bench.quota(3, 2)
    assert bench.refusal(bench.job("b")) != "", (
        "the use of the quota may not have been shown when the pods were"
    )
    for name in ("a-0", "a-1"):
        bench.pod(name, "a", "n1")
    assert bench.refusal(bench.job("b")) == ""
    assert bench.wakes, "somebody waits for that"


async def test_a_pod_that_is_not_bound_counts_as_used_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_quotas, "_SHOWN_S", 0.2)
    bench = Bench(hard=3)
    bench.granted("a", 2)
    bench.quotas.room()
    for name in ("a-0", "a-1"):
        bench.pod(name, "a")
    bench.quota(3, 2)
    waiting = bench.job("b")
    await until(lambda: bench.refusal(waiting) == "", 60)


async def test_a_running_job_keeps_room_for_the_pods_that_follow() -> None:
    bench = Bench(hard=2, used=1)
    row = bench.granted("waves", state=State.RUNNING)
    waves = (
        make_job("waves")
        .uid("waves")
        .suspended(False)
        .with_("spec.completions", 5)
        .with_("spec.parallelism", 2)
    )
    bench.server.put("jobs", waves.build())
    bench.pod("waves-0", "waves", "n1")
    assert row.state is State.RUNNING
    assert bench.refusal(bench.job("b")) != ""


async def test_work_whose_pods_exist_is_not_kept_waiting() -> None:
    bench = Bench(hard=1, used=1)
    bench.server.put("pods", make_pod("bare").uid("bare").gate("fluxqueue").build())
    assert bench.refusal(a_workload("bare", kind="Pod", uid="bare")) == ""
    resumed = bench.job("resumed")
    bench.server.put("jobs", make_job("resumed").uid("resumed").suspended(False).build())
    assert bench.refusal(resumed) == ""


async def test_a_quota_of_other_pods_does_not_count() -> None:
    bench = Bench(hard=0, scopes=["Terminating"])
    assert bench.refusal(bench.job("a")) == ""
    assert (
        bench.refusal(bench.job("b", make_job("b").with_("spec.template.spec.activeDeadlineSeconds", 60)))
        != ""
    )


async def test_the_tightest_of_several_quotas_counts() -> None:
    bench = Bench(hard=5)
    bench.quota(1, 1, name="other")
    assert "ResourceQuota 'other'" in bench.refusal(bench.job("a"))


async def test_an_edited_job_is_measured_anew() -> None:
    bench = Bench(hard=0, scopes=["Terminating"])
    row = bench.job("a")
    assert bench.refusal(row) == ""
    bench.job("a", make_job("a").with_("spec.template.spec.activeDeadlineSeconds", 60))
    assert bench.refusal(row) != ""


@pytest.mark.parametrize(("hard", "used", "wakes"), [(3, 2, 1), (2, 1, 1), (2, 2, 0), (1, 2, 0)])
async def test_a_cycle_is_requested_when_a_quota_leaves_more_and_somebody_waits(
    hard: int, used: int, wakes: int
) -> None:
    bench = Bench(hard=2, used=2)
    bench.refusal(bench.job("a"))
    bench.quota(hard, used)
    assert bench.wakes == wakes


async def test_room_that_comes_after_the_count_and_before_it_is_used_is_not_missed() -> None:
    bench = Bench(hard=2, used=2)
    quotas = bench.measured()
    bench.quota(2, 1)
    assert bench.wakes == 0
    assert quotas.refusal(bench.job("a")) is not None
    assert bench.wakes == 1
    assert bench.refusal(bench.job("a")) == ""
    assert bench.wakes == 1


async def test_without_a_quota_nothing_is_limited() -> None:
    bench = Bench()
    bench.caches.resource_quotas.replace([])
    quotas = bench.measured()
    assert not quotas.limited("default")
    assert np.all(quotas.within("default", Backlog([bench.job("a", pods=99)])))


async def test_a_request_of_more_than_64_bits_waits_and_stops_no_cycle() -> None:
    bench = Bench()
    status = {"hard": {"requests.memory": "1Ti"}, "used": {"requests.memory": "0"}}
    bench.server.put(
        "resourcequotas", {"metadata": {"name": "team", "namespace": "default"}, "status": status}
    )
    huge = make_job("huge").with_(
        "spec.template.spec.containers", [{"name": "a", "resources": {"requests": {"memory": "1000Ti"}}}]
    )
    assert bench.refusal(bench.job("huge", huge, pods=20_000)).endswith(
        "ask for less, or have the quota raised"
    )
    assert bench.refusal(bench.job("small")) == ""


async def test_no_pod_is_remembered_for_quotas_that_bound_no_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_quotas, "_SHOWN_S", 0.0)
    bench = Bench()
    status = {"hard": {"services": "3"}, "used": {"services": "0"}}
    bench.server.put(
        "resourcequotas", {"metadata": {"name": "team", "namespace": "default"}, "status": status}
    )
    bench.quotas.room()
    bench.pod("p", "a")
    await until(lambda: not bench.quotas._recent)
