"""Groups of pods in Kueue's words."""

from __future__ import annotations

import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.kueue import KUEUE_POD_GROUPS


def member(name: str, count: str | None = "2") -> PodBuilder:
    annotations = {"kueue.x-k8s.io/pod-group-total-count": count} if count is not None else {}
    return pod_builder(name, {"kueue.x-k8s.io/pod-group-name": "sample"}, annotations)


def test_a_pod_names_its_group_by_a_label() -> None:
    assert group_of(pods_of(member("a"))[0]) == GroupKey("default", "sample", "PodGroup", "kueue")


def test_the_pods_say_how_many_start_together() -> None:
    part, whole = (
        gather(KUEUE_POD_GROUPS, pods_of(member("a"))),
        gather(KUEUE_POD_GROUPS, pods_of(member("a"), member("b"))),
    )
    assert part is not None
    assert whole is not None
    assert (part.reason, whole.reason, whole.size) == (Reason.WAITING_FOR_GROUP, Reason.NONE, 2)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        pytest.param((None,), "pod p0 has no annotation kueue.x-k8s.io/pod-group-total-count", id="missing"),
        pytest.param(("two",), "of pod p0: 'two' is not the size of a group", id="no number"),
        pytest.param(("2", "3"), "its pods name different sizes, 2 (pod p0), 3 (pod p1)", id="they disagree"),
    ],
)
def test_a_nonsense_count_is_one_sentence(counts: tuple[str | None, ...], said: str) -> None:
    found = gather(
        KUEUE_POD_GROUPS, pods_of(*(member(f"p{number}", count) for number, count in enumerate(counts)))
    )
    assert found is not None
    assert found.reason is Reason.INVALID_REQUEST
    assert said in found.message


def test_a_finished_pod_counts_so_that_a_replacement_waits_for_nobody() -> None:
    done = pods_of(member("b").with_("spec.schedulingGates", []).phase("Succeeded"))
    found = gather(KUEUE_POD_GROUPS, pods_of(member("a")), others=done)
    assert found is not None
    assert (found.reason, found.size) == (Reason.NONE, 1)
