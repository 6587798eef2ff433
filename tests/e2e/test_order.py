"""The order of work across several queues and on nodes that change."""

import json
from collections.abc import Iterator

import pytest
from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State

RUN_SECONDS = "fluxqueue.local/run-seconds"
SSD = ("node-7", "node-8")


def job(name: str, nodes: int, seconds: str = "0.5") -> JobBuilder:
    """A Job of whole nodes."""
    return make_job(name).cpu("8").indexed(nodes).pod_annotation(RUN_SECONDS, seconds)


def reserved_at(stage: Stage, name: str) -> str | None:
    """Return the time from which nodes are reserved for a Job."""
    shown = stage.row(name).fluxjob
    return shown.status.reserved_at if shown is not None else None


@pytest.fixture
def urgent(stage: Stage) -> Iterator[str]:
    """A FluxQueue whose work has priority 1000."""
    name = f"urgent-{stage.namespace}"
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(name, priority=1000)))
    yield name
    stage.kubectl("delete", "fluxqueue", name, "--ignore-not-found")


def test_a_reservation_keeps_no_idle_node_from_a_queue_of_higher_priority(stage: Stage, urgent: str) -> None:
    stage.apply(job("half", 4, "forever").build())
    stage.until_state("half", State.RUNNING)
    stage.apply(job("all", 8).build())
    stage.until("it has a reservation", lambda: reserved_at(stage, "all"))
    stage.apply(
        job("now", 4, "forever")
        .label(names.QUEUE_LABEL, urgent)
        .annotation(names.DURATION_ANNOTATION, "24h")
        .build()
    )
    stage.until_state("now", State.RUNNING)
    stage.kubectl("delete", "job", "half", "now")
    assert wrong([stage.until_state("all", State.COMPLETED)]) == []


@pytest.fixture
def ssd(stage: Stage) -> Iterator[None]:
    """Two nodes with the label ``disk=ssd``."""
    for node in SSD:
        stage.kubectl("label", "node", node, "disk=ssd")
    yield
    for node in SSD:
        stage.kubectl("label", "node", node, "disk-")


def test_a_reservation_ends_with_the_label_of_its_node_and_returns_with_it(stage: Stage, ssd: None) -> None:
    on_7, on_8 = ({"kubernetes.io/hostname": node} for node in SSD)
    stage.apply(job("busy", 1, "forever").with_("spec.template.spec.nodeSelector", on_7).build())
    stage.until_state("busy", State.RUNNING)
    stage.apply(job("picky", 2).with_("spec.template.spec.nodeSelector", {"disk": "ssd"}).build())
    stage.until("it has a reservation", lambda: reserved_at(stage, "picky"))
    other = job("other", 1, "forever").with_("spec.template.spec.nodeSelector", on_8)
    stage.apply(other.annotation(names.DURATION_ANNOTATION, "24h").build())
    stage.until_reason("other", "BlockedByReservation")
    stage.kubectl("label", "node", SSD[0], "disk-")
    stage.until_state("other", State.RUNNING)
    stage.until_reason("picky", "Unsatisfiable")
    stage.until("its reservation is gone", lambda: reserved_at(stage, "picky") is None)
    stage.kubectl("label", "node", SSD[0], "disk=ssd")
    stage.until_reason("picky", "WaitingForNodes")
    stage.kubectl("delete", "job", "busy", "other")
    assert wrong([stage.until_state("picky", State.COMPLETED)]) == []
    assert stage.row("picky").hosts == list(SSD)
