"""Groups of LeaderWorkerSets."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of, read_object

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.gathering import GangPods, later_pods_of_source
from fluxqueue.queue.model.sources.leaderworkersets import LEADER_WORKER_SETS

PREFIX = "leaderworkerset.sigs.k8s.io"


def member(worker: int, group: int = 0, size: str | None = "3") -> PodBuilder:
    labels = {
        f"{PREFIX}/name": "llm",
        f"{PREFIX}/group-index": str(group),
        f"{PREFIX}/worker-index": str(worker),
        f"{PREFIX}/group-key": "5f",
    }
    name = f"llm-{group}" if worker == 0 else f"llm-{group}-{worker}"
    builder = pod_builder(name, labels, {f"{PREFIX}/size": size} if size is not None else {})
    return builder.owned_by("StatefulSet", "llm" if worker == 0 else f"llm-{group}")


def lws(**spec: Any) -> Any:
    worker = {"spec": {"containers": [{"name": "w", "resources": {"requests": {"cpu": "4"}}}]}}
    return read_object(
        LEADER_WORKER_SETS,
        {"leaderWorkerTemplate": {"size": 3, "workerTemplate": worker}, **spec},
        name="llm",
    )


def test_each_group_of_a_set_is_a_gang() -> None:
    first, second = pods_of(member(0), member(1, group=1))
    assert group_of(first) == GroupKey("default", "llm-0", "LeaderWorkerSet", "leaderworkerset")
    assert group_of(second) == GroupKey("default", "llm-1", "LeaderWorkerSet", "leaderworkerset")
    assert LEADER_WORKER_SETS.object_name(second, "llm-1") == "llm"


@pytest.mark.parametrize(
    "owner",
    [pytest.param(None, id="which cannot be read"), pytest.param(lws(), id="which starts all at once")],
)
def test_a_group_waits_for_its_workers(owner: Any) -> None:
    part, whole = (
        gather(LEADER_WORKER_SETS, pods_of(*(member(n) for n in range(count))), owner) for count in (2, 3)
    )
    assert part is not None
    assert whole is not None
    assert (part.reason, whole.reason, whole.size) == (Reason.WAITING_FOR_GROUP, Reason.NONE, 3)
    assert "has 2 of 3 pods" in part.message


def test_workers_that_come_when_their_leader_is_ready_get_slots_with_it() -> None:
    owner = lws(startupPolicy="LeaderReady")
    found = gather(LEADER_WORKER_SETS, pods_of(member(0)), owner)
    assert found is not None
    assert (found.reason, found.size) == (Reason.NONE, 3)
    (later,) = found.later_pods
    assert later.pods == 2
    assert later.spec.containers[0].resources.requests == {"cpu": "4"}
    present = pods_of(member(0).with_("spec.schedulingGates", []).on_node("n1"), member(1))
    (left,) = later_pods_of_source(GangPods(LEADER_WORKER_SETS, "", present), owner)
    assert left.pods == 1


def test_workers_of_an_exclusive_topology_come_when_their_leader_has_its_node() -> None:
    """They are matched by its rules: their controller sends them to its rack by a node selector that is not
    known yet.
    """
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {f"{PREFIX}/group-key": "5f"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    leader = member(0).annotation(f"{PREFIX}/exclusive-topology", "rack").with_("spec.affinity", affinity)
    found = gather(LEADER_WORKER_SETS, pods_of(leader), lws())
    assert found is not None
    (later,) = found.later_pods
    assert (later.pods, later.spec.affinity) == (2, affinity)
    assert later.labels[f"{PREFIX}/group-key"] == "5f"


def test_a_set_of_leaders_alone_is_matched_pod_by_pod() -> None:
    found = gather(LEADER_WORKER_SETS, pods_of(member(0, size="1")))
    assert found is not None
    assert (found.reason, found.size) == (Reason.NONE, 1)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        pytest.param((None,), "pod llm-0 has no annotation leaderworkerset.sigs.k8s.io/size", id="missing"),
        pytest.param(("0",), "'0' is not the size of a group", id="nothing"),
        pytest.param(("3", "4"), "its pods have different sizes", id="they disagree"),
    ],
)
def test_a_nonsense_size_is_one_sentence(sizes: tuple[str | None, ...], said: str) -> None:
    found = gather(
        LEADER_WORKER_SETS, pods_of(*(member(number, size=size) for number, size in enumerate(sizes)))
    )
    assert found is not None
    assert found.reason is Reason.INVALID_REQUEST
    assert said in found.message
