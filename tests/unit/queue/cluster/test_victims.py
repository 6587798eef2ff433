"""Which running work may be preempted, what becomes of it, and which budgets of disruption select it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.builders import PodBuilder, make_job, make_node, make_pod
from support.controller_bench import managed_caches, subscribed
from support.gang_builders import read_object
from support.memory_api import MemoryApi
from support.queue_builders import a_workload, an_allocation

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.cluster import victims
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.cluster.victims import Victims
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import Allocation, ReleaseMode, SlotState, Workload
from fluxqueue.queue.model.replacement_rules import ReplicaOwner
from fluxqueue.queue.model.sources.registry import source_named
from fluxqueue.queue.model.victim_views import BudgetShare, Floor, Return
from fluxqueue.queue.noderules.pod_rules import Selector, selector_of

PYTORCH = source_named("pytorchjob")
SAVED = "2026-01-01T00:00:30Z"
WEB = {"matchLabels": {"app": "web"}}


def pod(name: str, kind: str = "", api_version: str = "apps/v1") -> PodBuilder:
    made = make_pod(name).uid(name).label("app", "web").on_node("n0").phase("Running")
    return made.owned_by(kind, "owner", api_version=api_version) if kind else made


def shown(*pods: PodBuilder) -> tuple[MemoryApi, Caches]:
    server = MemoryApi()
    caches = managed_caches(server)
    server.put("nodes", make_node("n0").build())
    for each in pods:
        server.put("pods", each.build())
    return server, caches


def in_cluster(caches: Caches, *, may_suspend: bool = True) -> Victims:
    return subscribed(Victims(caches, lambda _handle: may_suspend), caches)


def single(uid: str = "a") -> tuple[Workload, Allocation]:
    row = a_workload(uid, kind="Pod", uid=uid, release_mode=ReleaseMode.POD, jobid=7)
    return row, an_allocation(["n0"], states=[SlotState.TAKEN], pods=[uid])


def group(*uids: str) -> tuple[Workload, Allocation]:
    row = a_workload("g", kind="PodGroup", uid=f"group-{uids[0]}", release_mode=ReleaseMode.GROUP, jobid=7)
    return row, an_allocation(["n0"] * len(uids), states=[SlotState.TAKEN] * len(uids), pods=list(uids))


@pytest.mark.parametrize(
    ("made", "returns"),
    [
        pytest.param(pod("a"), Return.LOST, id="bare"),
        pytest.param(pod("a", "ReplicaSet"), Return.REPLACED, id="ReplicaSet"),
        pytest.param(pod("a", "StatefulSet"), Return.REPLACED, id="StatefulSet"),
        pytest.param(pod("a", "RayCluster", "ray.io/v1"), Return.REPLACED, id="RayCluster"),
        pytest.param(pod("a", "Workflow", "argoproj.io/v1alpha1"), Return.UNSURE, id="Workflow"),
        pytest.param(pod("a", "Job", "batch/v1"), None, id="Job"),
        pytest.param(pod("a", "DaemonSet"), None, id="DaemonSet"),
        pytest.param(pod("a", "DaemonSet", "example.com/v1"), Return.UNSURE, id="DaemonSet of another group"),
        pytest.param(pod("a", "Job", "batch.volcano.sh/v1alpha1"), Return.UNSURE, id="Job of another group"),
        pytest.param(pod("a", "PyTorchJob", "kubeflow.org/v1"), None, id="PyTorchJob"),
        pytest.param(pod("a", "MPIJob", "kubeflow.org/v2beta1"), None, id="MPIJob"),
    ],
)
def test_what_becomes_of_a_single_pod(made: PodBuilder, returns: Return | None) -> None:
    _, caches = shown(made)
    view = in_cluster(caches).view(*single())
    assert (view.returns if view.may_be else None) == returns


@pytest.mark.parametrize(
    ("owners", "returns"),
    [
        (("StatefulSet", "StatefulSet"), Return.WAITS),
        (("", ""), Return.LOST),
        (("StatefulSet", ""), Return.LOST),
        (("StatefulSet", "Workflow"), Return.UNSURE),
        (("StatefulSet", "batch/v1 Job"), None),
    ],
)
def test_what_becomes_of_a_group(owners: tuple[str, str], returns: Return | None) -> None:
    made = (owner.rpartition(" ") for owner in owners)
    _, caches = shown(
        *(pod(name, kind, version or "apps/v1") for name, (version, _, kind) in zip("ab", made, strict=True))
    )
    view = in_cluster(caches).view(*group("a", "b"))
    assert (view.returns if view.may_be else None) == returns


def test_nothing_in_a_namespace_that_is_not_managed_is_evicted() -> None:
    _, caches = shown(pod("a", "ReplicaSet").with_("metadata.namespace", "other"))
    for row, allocation in (single(), group("a")):
        assert (
            in_cluster(caches).view(replace(row, namespace="other"), allocation).obstacle
            == "in a namespace that is not managed"
        )
    assert (
        in_cluster(caches).view(a_workload("j", uid="j", namespace="other"), an_allocation(["n0"])).may_be
    ), "a Job is suspended"


def test_the_last_checkpoint_counts_that_any_pod_of_a_group_tells_of() -> None:
    _, caches = shown(pod("a"), pod("b").annotation(names.CHECKPOINTED_ANNOTATION, SAVED))
    checkpoint = in_cluster(caches).view(*group("a", "b")).checkpoint
    assert checkpoint is not None
    assert checkpoint.isoformat() == "2026-01-01T00:00:30+00:00"


def test_a_job_tells_of_its_checkpoint_and_work_without_pods_is_none() -> None:
    server, caches = shown()
    server.put("jobs", make_job("j").uid("j").annotation(names.CHECKPOINTED_ANNOTATION, SAVED).build())
    assert in_cluster(caches).view(a_workload("j", uid="j"), an_allocation(["n0"])).checkpoint is not None
    for work in (single(), group("a")):
        assert in_cluster(caches).view(*work).obstacle == "whose pods are not known"


@pytest.mark.parametrize(
    ("selector", "pods"),
    [(WEB, 2), ({}, 2), (None, 0), ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, 0)],
    ids=["labels", "all", "absent", "expression"],
)
def test_a_budget_counts_the_running_pods_that_it_selects(selector: Any, pods: int) -> None:
    server, caches = shown(pod("a"), pod("b"), pod("c").phase("Succeeded"))
    budget = {
        "metadata": {"name": "web"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 1},
    }
    server.put("poddisruptionbudgets", budget)
    server.put("poddisruptionbudgets", {**budget, "metadata": {"name": "web", "namespace": "other"}})
    assert list(in_cluster(caches).budgets(*group("a", "b", "c"))) == (
        [BudgetShare("default", "web", pods, 1)] if pods else []
    )


def put_budgets(server: MemoryApi, number: int, selector: Any) -> None:
    for each in range(number):
        status = {"disruptionsAllowed": 5}
        server.put(
            "poddisruptionbudgets",
            {"metadata": {"name": f"b{each}"}, "spec": {"selector": selector}, "status": status},
        )


NOTHING = [BudgetShare("default", "", 1, 0)]


@pytest.mark.parametrize(
    ("number", "selector"),
    [
        pytest.param(2, WEB, id="two select a pod, which the server would not evict"),
        pytest.param(9, {"matchLabels": {"app": "other"}}, id="too many"),
        pytest.param(
            1,
            {
                "matchExpressions": [
                    {"key": "app", "operator": "In", "values": [f"v{each}" for each in range(65)]}
                ]
            },
            id="values",
        ),
        pytest.param(1, {"matchLabels": {f"l{each}": "" for each in range(65)}}, id="labels"),
        pytest.param(
            1,
            {"matchExpressions": [{"key": f"l{each}", "operator": "Exists"} for each in range(65)]},
            id="expressions",
        ),
    ],
)
def test_budgets_that_cannot_be_counted_allow_nothing(number: int, selector: Any) -> None:
    server, caches = shown(pod("a"), pod("b"))
    put_budgets(server, number, selector)
    assert list(in_cluster(caches).budgets(*group("a", "b"))) == NOTHING


def test_selectors_are_read_once_and_again_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    server, caches = shown(pod("a"), pod("b"))
    put_budgets(server, 8, {"matchLabels": {"app": "other"}})
    reads: list[Any] = []

    def read(selector: Any) -> Selector:
        reads.append(selector)
        return selector_of(selector)

    monkeypatch.setattr(victims, "selector_of", read)
    asked = in_cluster(caches)
    assert [list(asked.budgets(*single(uid))) for uid in "abab"] == [[]] * 4
    assert len(reads) == 8
    put_budgets(server, 1, WEB)
    assert list(asked.budgets(*single())) == [BudgetShare("default", "b0", 1, 5)]


def test_what_is_suspended_is_asked_no_budget() -> None:
    server, caches = shown(pod("a"))
    server.put(
        "poddisruptionbudgets",
        {"metadata": {"name": "all"}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}},
    )
    workload, allocation = group("a")
    assert in_cluster(caches).budgets(workload, allocation)
    for kind, version in (("JobSet", "jobset.x-k8s.io/v1alpha2"), ("Job", "batch/v1")):
        assert not in_cluster(caches).budgets(replace(workload, kind=kind, api_version=version), allocation)


@pytest.mark.parametrize(
    ("kind", "version", "owner", "returns"),
    [
        pytest.param("JobSet", "jobset.x-k8s.io/v1alpha2", ("Job", "batch/v1"), None, id="JobSet"),
        pytest.param(
            "PyTorchJob", "kubeflow.org/v1", ("PyTorchJob", "kubeflow.org/v1"), Return.WAITS, id="PyTorchJob"
        ),
    ],
)
def test_without_the_right_to_suspend_pods_of_jobs_are_spared_and_others_ask_their_budgets(
    kind: str, version: str, owner: tuple[str, str], returns: Return | None
) -> None:
    server, caches = shown(pod("a", *owner))
    put_budgets(server, 1, {})
    row, allocation = group("a")
    row = replace(row, kind=kind, api_version=version)
    assert in_cluster(caches).view(row, allocation).returns is Return.WAITS
    assert not in_cluster(caches).budgets(row, allocation)
    view = in_cluster(caches, may_suspend=False).view(row, allocation)
    assert (view.returns if view.may_be else None) == returns
    assert view.may_be or "the right to it is missing" in view.obstacle
    assert in_cluster(caches, may_suspend=False).budgets(row, allocation)


MOLDABLE = jobspec_of("default/mpi", [SizedPods({"cpu": Decimal(1)}, 3)], duration_s=600, min_pods=1)


def moldable() -> tuple[Workload, Allocation]:
    row = a_workload(
        "mpi", uid="uid-of-mpi", jobspec=MOLDABLE, pods=3, state=State.RUNNING, jobid=7, hosts="n[0-2]"
    )
    return row, an_allocation(
        ["n0", "n1", "n2"], states=[SlotState.TAKEN] * 3, pods=["mpi-0", "mpi-1", "mpi-2"]
    )


def of_mpi(name: str, start: str, phase: str = "Running") -> PodBuilder:
    made = make_pod(name).uid(name).on_node("n0").phase(phase).with_("status.startTime", start)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mpi", "uid": "uid-of-mpi", "controller": True}
    return made.with_("metadata.ownerReferences", [owner])


def test_each_running_pod_of_a_job_loses_what_it_did_since_it_saved() -> None:
    server, caches = shown(
        of_mpi("mpi-0", "2026-01-01T00:00:10Z"),
        of_mpi("mpi-1", "2026-01-01T00:00:20Z").annotation(names.CHECKPOINTED_ANNOTATION, SAVED),
        of_mpi("mpi-2", "2026-01-01T00:00:20Z", "Pending"),
        of_mpi("mpi-3", "2026-01-01T00:00:40Z"),
    )
    row, _ = moldable()
    server.put("jobs", make_job("mpi").indexed(3).uid("uid-of-mpi").build())
    seen = in_cluster(caches)
    assert {uid: f"{at:%S}" for uid, at in seen.elastic_pods(row).items()} == {
        "mpi-0": "10",
        "mpi-1": "30",
        "mpi-3": "40",
    }
    server.put(
        "jobs",
        make_job("mpi").indexed(3).uid("uid-of-mpi").annotation(names.CHECKPOINTED_ANNOTATION, SAVED).build(),
    )
    assert {f"{at:%S}" for at in seen.elastic_pods(row).values()} == {"30", "40"}
    server.put("jobs", make_job("mpi").indexed(3).uid("uid-of-mpi").suspended().build())
    assert seen.elastic_pods(row) == {}


def test_a_pod_on_a_lost_node_is_none_by_which_a_job_goes_on() -> None:
    server, caches = shown(
        of_mpi("mpi-0", "2026-01-01T00:00:10Z"), of_mpi("mpi-1", "2026-01-01T00:00:10Z").on_node("n1")
    )
    row, _ = moldable()
    server.put("jobs", make_job("mpi").indexed(3).uid("uid-of-mpi").build())
    server.put(
        "nodes", make_node("n1").with_("status.conditions", [{"type": "Ready", "status": "Unknown"}]).build()
    )
    assert in_cluster(caches).elastic_pods(row).keys() == {"mpi-0"}


def test_a_pod_that_was_matched_alone_names_its_job() -> None:
    _, caches = shown(of_mpi("mpi-3", "2026-01-01T00:00:40Z"))
    view = in_cluster(caches).view(
        a_workload("mpi-3", uid="mpi-3", kind="Pod", release_mode=ReleaseMode.POD), an_allocation(["n0"])
    )
    assert (view.may_be, view.job) == (False, "uid-of-mpi")


def test_a_job_that_could_give_pods_back_is_spared_while_its_template_pins_new_pods() -> None:
    server, caches = shown(of_mpi("mpi-0", "2026-01-01T00:00:10Z"))
    row, allocation = moldable()
    pinned = make_job("mpi").indexed(3).uid("uid-of-mpi")
    server.put(
        "jobs",
        pinned.with_(
            "spec.template.metadata.annotations", {names.PIN_UNTIL_ANNOTATION: "2026-01-01T00:01:00Z"}
        ).build(),
    )
    now = datetime(2026, 1, 1, 0, 1, 5, tzinfo=UTC)
    seen = subscribed(Victims(caches, lambda _handle: True, lambda: now), caches)
    assert (seen.view(row, allocation).again_s, seen.elastic_pods(row)) == (5.0, {})
    assert seen.view(replace(row, pods=1), allocation).may_be, "it can give nothing back anyway"
    now += timedelta(seconds=6)
    assert seen.view(row, allocation).may_be
    assert len(seen.elastic_pods(row)) == 1


def of_web(name: str, start: str = "2026-01-01T00:00:10Z", least: str = "2") -> PodBuilder:
    made = pod(name).owned_by("ReplicaSet", "web-5f4", api_version="apps/v1")
    made = made.label("pod-template-hash", "5f4").with_("status.startTime", start)
    return made.annotation(names.MIN_PODS_ANNOTATION, least)


def test_a_pod_of_a_deployment_shows_its_floor_and_which_pods_run() -> None:
    server, caches = shown(
        of_web("web-0"),
        of_web("web-1").owned_by("ReplicaSet", "web-77").label("pod-template-hash", "77"),
        of_web("web-2").phase("Pending"),
        of_web("web-3").on_node("n1"),
        of_web("web-4").with_("metadata.deletionTimestamp", SAVED),
    )
    server.put("nodes", make_node("n1").with_("status.conditions", []).build())
    row = a_workload("web-0", uid="web-0", kind="Pod", release_mode=ReleaseMode.POD)
    seen = in_cluster(caches)
    view = seen.view(row, an_allocation(["n0"]))
    assert (view.returns, view.floor) == (
        Return.REPLACED,
        Floor(ReplicaOwner("default", "Deployment", "web"), 2),
    )
    assert seen.elastic_pods(row).keys() == {"web-0", "web-1"}


@pytest.mark.parametrize("change", ["no floor", "no number", "of a DaemonSet"])
def test_a_pod_without_a_floor_cannot_be_spared(change: str) -> None:
    made = of_web("web-0", least="none" if change == "no number" else "2")
    if change == "no floor":
        made = made.with_("metadata.annotations", {})
    if change == "of a DaemonSet":
        made = made.owned_by("DaemonSet", "web")
    _, caches = shown(made)
    row = a_workload("web-0", uid="web-0", kind="Pod", release_mode=ReleaseMode.POD)
    assert in_cluster(caches).view(row, an_allocation(["n0"])).floor is None
    assert in_cluster(caches).elastic_pods(row) == {}


def test_of_a_statefulset_the_highest_ordinals_go_first() -> None:
    made = [pod(f"db-{number}").owned_by("StatefulSet", "db", api_version="apps/v1") for number in (2, 10)]
    _, caches = shown(*(each.annotation(names.MIN_PODS_ANNOTATION, "1") for each in made))
    rows = [
        a_workload(name, uid=name, kind="Pod", release_mode=ReleaseMode.POD) for name in ("db-2", "db-10")
    ]
    views = [in_cluster(caches).view(row, an_allocation(["n0"])) for row in rows]
    floor = Floor(ReplicaOwner("default", "StatefulSet", "db"), 1)
    assert [(view.place, view.floor) for view in views] == [(2, floor), (10, floor)]
    assert in_cluster(caches).elastic_pods(rows[0]).keys() == {"db-2", "db-10"}


def elastic_workers(monkeypatch: pytest.MonkeyPatch, least: int) -> tuple[MemoryApi, Caches]:
    """Three workers of an elastic PyTorchJob."""
    made = (pod(f"worker-{at}", "PyTorchJob", "kubeflow.org/v1") for at in range(3))
    server, caches = shown(
        *(
            each.label("training.kubeflow.org/replica-type", "worker")
            .label("training.kubeflow.org/replica-index", str(at))
            .with_("metadata.ownerReferences", [owner_of_workers()])
            for at, each in enumerate(made)
        )
    )
    spec = {
        "elasticPolicy": {"minReplicas": least, "maxReplicas": 3},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 3}},
    }
    obj = read_object(PYTORCH, spec, name="train")
    monkeypatch.setattr(caches.gang_objects, "find", lambda *_of: Lookup(Readable.YES, obj))
    return server, caches


def owner_of_workers() -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "train",
        "uid": "x",
        "controller": True,
    }


def test_a_worker_of_an_elastic_pytorchjob_may_end_alone_but_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, caches = elastic_workers(monkeypatch, 1)
    first, second = (in_cluster(caches).view(*single(f"worker-{at}")) for at in (0, 1))
    assert first.obstacle.startswith("a part of something")
    owner = ReplicaOwner("default", "PyTorchJob", "train")
    assert (second.obstacle, second.returns) == ("", Return.REPLACED)
    assert second.floor == Floor(owner, 1, "worker", as_whole=True)
    assert len(in_cluster(caches).elastic_pods(single("worker-1")[0])) == 3, "the first one counts"


@pytest.mark.parametrize(("allowed", "least"), [(2, 1), (1, 0)])
def test_a_suspended_gang_gives_pods_back_only_if_its_budgets_allow_it(
    monkeypatch: pytest.MonkeyPatch, allowed: int, least: int
) -> None:
    server, caches = elastic_workers(monkeypatch, 1)
    budget = {
        "metadata": {"name": "all"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": allowed},
    }
    server.put("poddisruptionbudgets", budget)
    row, allocation = group("worker-0", "worker-1")
    gang = replace(row, kind="PyTorchJob", api_version="kubeflow.org/v1", name="train")
    seen = in_cluster(caches)
    assert seen.view(gang, allocation).least == least
    assert not seen.budgets(gang, allocation), "it may be suspended in any case"
