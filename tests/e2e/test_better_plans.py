"""How queues plan ahead, on a real control plane:
several reservations, the nodes they take, and backfill by predicted durations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State

RUN_SECONDS = "fluxqueue.local/run-seconds"


class Queue:
    """A FluxQueue of one test."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.name = f"plans-{stage.namespace}"

    def put(self, **spec: Any) -> Any:
        return self._stage.kubectl(
            "apply", "-f", "-", stdin=json.dumps(make_queue(self.name, **spec)), check=False
        )

    def job(
        self, name: str, nodes: int, duration: str, *, seconds: str = "forever", among: str = ""
    ) -> JobBuilder:
        """A Job of whole nodes, of all or of those with the label ``part``."""
        made = (
            make_job(name)
            .indexed(nodes)
            .cpu("8")
            .label(names.QUEUE_LABEL, self.name)
            .annotation(names.DURATION_ANNOTATION, duration)
        )
        made = made.pod_annotation(RUN_SECONDS, seconds)
        return made.with_("spec.template.spec.nodeSelector", {"part": among}) if among else made

    def runs(self, *jobs: JobBuilder) -> None:
        """Apply Jobs, and wait until each runs before the next."""
        for each in jobs:
            self._stage.apply(each.build())
            self._stage.until_state(each.build()["metadata"]["name"], State.RUNNING)


@pytest.fixture
def queue(stage: Stage) -> Iterator[Queue]:
    made = Queue(stage)
    yield made
    stage.kubectl("delete", "job", "--all", "--wait=false")
    stage.kubectl("delete", "fluxqueue", made.name, "--ignore-not-found")


@pytest.fixture
def parts(stage: Stage) -> Iterator[None]:
    """The nodes 1 to 4 are of one part, and 6 to 8 of another."""
    for node in (1, 2, 3, 4, 6, 7, 8):
        stage.kubectl("label", "node", f"node-{node}", f"part={'low' if node < 5 else 'high'}")
    yield
    stage.kubectl("label", "nodes", "--all", "part-")


def reserved_at(stage: Stage, name: str) -> str | None:
    shown = stage.row(name).fluxjob
    return shown.status.reserved_at if shown is not None else None


def reserves(stage: Stage, name: str) -> str:
    return stage.until(f"{name} has a reservation", lambda: reserved_at(stage, name)) or ""


def test_a_hybrid_queue_reserves_for_as_many_as_it_states_and_backfills_the_rest(
    stage: Stage, queue: Queue
) -> None:
    queue.put(policy="hybrid", reservationDepth=2)
    queue.runs(queue.job("runs", 4, "1h"))
    stage.apply(*(queue.job(name, 8, "2h").build() for name in ("first", "second", "third")))
    first, second = (reserves(stage, name) for name in ("first", "second"))
    assert first < second
    stage.apply(queue.job("long", 4, "24h").build())
    stage.until_reason("long", "BlockedByReservation")
    queue.runs(queue.job("short", 4, "30m"))
    assert [reserved_at(stage, name) for name in ("first", "second", "third")] == [first, second, None]
    explained = stage.plugin("explain", "job/second").stdout
    assert "WaitingForNodes" in explained
    stage.kubectl("delete", "job", "runs", "short")
    stage.until_state("first", State.RUNNING)
    assert reserves(stage, "third") > reserves(stage, "second"), "the next one takes the place in the depth"


def test_a_queue_that_becomes_hybrid_reserves_for_more_and_one_that_becomes_fcfs_for_none(
    stage: Stage, queue: Queue
) -> None:
    queue.put(policy="easy")
    queue.runs(queue.job("runs", 8, "1h"))
    stage.apply(*(queue.job(name, 8, "2h").build() for name in ("first", "second")))
    reserves(stage, "first")
    assert reserved_at(stage, "second") is None
    queue.put(policy="hybrid", reservationDepth=2)
    reserves(stage, "second")
    queue.put(policy="fcfs")
    stage.until(
        "no reservation is left", lambda: not reserved_at(stage, "first") and not reserved_at(stage, "second")
    )


@pytest.mark.parametrize("planning", [{}, {"reservedNodes": "freeLast"}], ids=["policy", "freeLast"])
def test_a_reservation_leaves_the_free_node_to_others_where_the_queue_says_so(
    stage: Stage, queue: Queue, parts: None, planning: Mapping[str, str]
) -> None:
    """Node 5 is free, 6 to 8 are free next.
    A reservation of two nodes takes 5 and 6, or of those that become free last.
    """
    queue.put(policy="easy", planning=planning)
    queue.runs(queue.job("later", 4, "8h", among="low"), queue.job("sooner", 3, "1h", among="high"))
    stage.apply(queue.job("wide", 2, "1h", seconds="0.5").build())
    promised = reserves(stage, "wide")
    stage.apply(queue.job("long", 1, "24h").build())
    if not planning:
        stage.until_reason("long", "BlockedByReservation")
        return
    assert stage.until_state("long", State.RUNNING).hosts == ["node-5"]
    assert reserved_at(stage, "wide") == promised
    stage.succeed("sooner")
    row = stage.until_state("wide", State.COMPLETED)
    assert set(row.hosts) < {"node-6", "node-7", "node-8"}
    assert wrong([row]) == []


@pytest.mark.parametrize("durations", ["stated", "predicted"])
def test_work_backfills_by_what_its_user_ran_before_where_the_queue_says_so(
    stage: Stage, queue: Queue, durations: str
) -> None:
    """The history is read by a new leader, and the promise to the first that waits stays."""
    queue.put(policy="easy", planning={"backfillDurations": durations})
    stage.apply(*(queue.job(f"past-{number}", 1, "24h", seconds="0.5").build() for number in range(2)))
    for number in range(2):
        stage.until_state(f"past-{number}", State.COMPLETED)
    stage.kill("queue")
    stage.until_ready("queue")
    queue.runs(queue.job("runs", 7, "1h"))
    stage.apply(queue.job("wide", 8, "1h").build())
    promised = reserves(stage, "wide")
    stage.apply(queue.job("long", 1, "24h").build())
    if durations == "stated":
        stage.until_reason("long", "BlockedByReservation")
        return
    stage.until_state("long", State.RUNNING)
    assert reserved_at(stage, "wide") == promised
    stage.kubectl("delete", "job", "runs", "long")
    assert stage.until_state("wide", State.RUNNING).state == State.RUNNING


def test_work_that_waits_starts_when_its_queue_begins_to_go_by_predictions(
    stage: Stage, queue: Queue
) -> None:
    queue.put(policy="easy")
    stage.apply(*(queue.job(f"past-{number}", 1, "24h", seconds="0.5").build() for number in range(2)))
    for number in range(2):
        stage.until_state(f"past-{number}", State.COMPLETED)
    queue.runs(queue.job("runs", 7, "1h"))
    stage.apply(queue.job("wide", 8, "1h").build())
    reserves(stage, "wide")
    stage.apply(queue.job("long", 1, "24h").build())
    stage.until_reason("long", "BlockedByReservation")
    queue.put(policy="easy", planning={"backfillDurations": "predicted"})
    stage.until_state("long", State.RUNNING)


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"planning": {"reservedNodes": "last"}}, "spec.planning.reservedNodes"),
    ({"planning": {"backfillDurations": "guessed"}}, "spec.planning.backfillDurations"),
    ({"planning": "best"}, "spec.planning"),
    ({"policy": "hybrid", "reservationDepth": 0}, "spec.reservationDepth"),
    ({"policy": "hybrid", "reservationDepth": "two"}, "spec.reservationDepth"),
    ({"policy": "easy", "reservationDepth": 2}, "reservationDepth"),
    ({"policy": "Hybrid"}, "spec.policy"),
    ({"atLimit": "wait"}, "spec.atLimit"),
]


def test_a_queue_whose_plan_cannot_be_meant_is_refused_with_its_field(stage: Stage, queue: Queue) -> None:
    answers = []
    for spec, words in BAD_INPUT:
        done = queue.put(**spec)
        if done.returncode == 0 or words not in done.stderr:
            answers.append((spec, done.stdout + done.stderr))
    assert answers == []


@pytest.mark.parametrize("planning", [{"backfillDurations": "predicted"}, {"reservedNodes": "freeLast"}])
def test_a_queue_without_reservations_is_told_that_its_plan_has_no_effect(
    queue: Queue, planning: Mapping[str, str]
) -> None:
    done = queue.put(policy="fcfs", planning=planning)
    assert done.returncode == 0
    assert "Warning: spec.planning has no effect: the policy fcfs makes no reservations" in done.stderr
