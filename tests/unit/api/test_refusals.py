"""Which pods wait for the queue, which can be taken back, and for which node a refusal was text_shown."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import PodBuilder, make_pod

from fluxqueue.api import names
from fluxqueue.api.pods import Pod
from fluxqueue.api.refusals import refusal, refused_condition

WORDS = "node n1 has too little cpu left"


def read(builder: PodBuilder) -> Pod:
    return msgspec.convert(builder.build(), Pod)


@pytest.mark.parametrize(
    ("pod", "held"),
    [
        (make_pod(), False),
        (make_pod().gate("fluxqueue"), True),
        (make_pod().gate("somebody.else/quota"), False),
        (make_pod().by_fluxion(), True),
        (make_pod().by_fluxion().gate("fluxqueue"), True),
        (make_pod().by_fluxion("n1"), False),
        (make_pod().by_fluxion().on_node("n1"), False),
        (make_pod().by_fluxion().label(names.GO_NODES_LABEL, "n1__n2"), False),
        (make_pod().with_("spec.schedulerName", "default-scheduler"), False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else "",
)
def test_a_pod_waits_for_the_queue_if_it_is_gated_or_released_to_no_node(pod: PodBuilder, held: bool) -> None:
    assert read(pod).held is held


@pytest.mark.parametrize(
    ("pod", "revocable"),
    [
        (make_pod().by_fluxion("n1"), True),
        (make_pod().by_fluxion("n1").gate("somebody.else/quota"), True),
        (make_pod().by_fluxion(), False),
        (make_pod().by_fluxion("n1").gate("fluxqueue"), False),
        (make_pod().by_fluxion("n1").on_node("n1"), False),
        (make_pod().by_fluxion("n1").phase("Failed"), False),
        (make_pod().by_fluxion("n1").with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), False),
        (make_pod().allocation("n1"), False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else "",
)
def test_what_was_released_for_our_scheduler_can_be_taken_back_until_it_is_bound(
    pod: PodBuilder, revocable: bool
) -> None:
    assert read(pod).revocable is revocable


def test_a_refusal_counts_only_for_its_node_and_allocation() -> None:
    pod = make_pod().by_fluxion("n1").refused(WORDS, node="n1")
    assert refusal(read(pod)) == WORDS
    assert not refusal(read(pod.by_fluxion("n2", 8))), "it was released to another node since"
    assert not refusal(read(pod.by_fluxion("n1", 8))), "it was released to the same node once more"
    assert not refusal(read(pod.on_node("n1"))), "it was bound after all"


def test_other_schedulers_and_temporary_reasons_give_no_refusal() -> None:
    text_shown = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WORDS}]
    assert not refusal(read(make_pod().by_fluxion("n1").with_("status.conditions", text_shown)))
    waits = [
        {**text_shown[0], "reason": "WaitingForGang"},
        {"type": names.REFUSED_CONDITION, "status": "True", "message": "7 n1"},
    ]
    assert not refusal(read(make_pod().by_fluxion("n1").with_("status.conditions", waits)))


def test_what_the_scheduler_writes_is_what_the_queue_reads() -> None:
    pod = make_pod().by_fluxion("n1")
    text_shown = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"{WORDS}.",
    }
    conditions = [text_shown, refused_condition(read(pod), "2026-01-01T00:00:00Z")]
    assert refusal(read(pod.with_("status.conditions", conditions))) == WORDS
