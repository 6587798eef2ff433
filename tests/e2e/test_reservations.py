"""FluxReservations on a real control plane: who waits for them, who runs in them, what a maintenance does,
and what is refused.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_reservation
from support.end_to_end import Stage, managed_namespace, wrong

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.fluxreservations import FluxReservation, FluxReservationStatus
from fluxqueue.api.hostlists import decode
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
MARK = "fluxqueue/maintenance"


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes, which the queue may cordon."""
    values = {
        "reservations": {"enabled": True},
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10}},
    }
    cluster = InProcessCluster(service_folder / "reservations", ClusterOptions(nodes=4, values=values))
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as stage:
        yield stage
        stage.kubectl("delete", "fluxreservations", "--all")
        stage.until("no node is cordoned", lambda: cordoned(stage) == {})


def job(name: str, seconds: str = "forever", reservation: str = "", duration: str = "1h") -> JobBuilder:
    made = (
        make_job(name)
        .indexed(1)
        .cpu("6")
        .pod_annotation(RUN_SECONDS, seconds)
        .annotation("fluxqueue/duration", duration)
    )
    return made.annotation("fluxqueue/reservation", reservation) if reservation else made


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def reserve(stage: Stage, name: str, **spec: Any) -> None:
    if not spec.get("maintenance"):
        spec.setdefault("namespaces", [stage.namespace])
    document = make_reservation(name, **spec)
    document["metadata"].pop("uid")
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(document))


def status(stage: Stage, name: str) -> FluxReservationStatus:
    text = stage.kubectl("get", "fluxreservation", name, "-o", "json").stdout
    return msgspec.convert(json.loads(text), FluxReservation).status


def until_shown(stage: Stage, name: str, state: str) -> FluxReservationStatus:
    stage.until(f"the reservation {name} is {state}", lambda: status(stage, name).state == state)
    return status(stage, name)


def cordoned(stage: Stage) -> dict[str, str]:
    """Cordoned nodes, with the mark of the queue."""
    nodes = json.loads(stage.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    found = [each for each in nodes if each["spec"].get("unschedulable")]
    return {each["metadata"]["name"]: each["metadata"].get("annotations", {}).get(MARK, "") for each in found}


def node_names(stage: Stage) -> list[str]:
    return sorted(
        each["metadata"]["name"]
        for each in json.loads(stage.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    )


def nodes_of(fluxjob: FluxJob | None) -> list[str]:
    assert fluxjob is not None
    return decode(fluxjob.status.nodes)


def test_work_of_the_reservation_runs_on_its_nodes_and_other_work_keeps_off(stage: Stage) -> None:
    reserve(stage, "course", start=in_s(-60), nodes={"count": 2}, duration="2h")
    shown = until_shown(stage, "course", "Active")
    assert shown.node_count == 2
    stage.apply(
        *(job(f"other-{number}").build() for number in range(3)), job("mine", reservation="course").build()
    )
    mine = stage.until_state("mine", State.RUNNING).fluxjob
    assert set(nodes_of(mine)) <= set(decode(shown.nodes))
    waits = stage.until_reason("other-2", "Reservation")
    assert "waits for the end of the reservation course" in waits.status.message
    for name in ("other-0", "other-1"):
        assert set(nodes_of(stage.until_state(name, State.RUNNING).fluxjob)).isdisjoint(decode(shown.nodes))

    def users() -> tuple[int, int]:
        found = status(stage, "course")
        return found.running, found.nodes_in_use

    stage.until("it shows the work that names it", lambda: users() == (1, 1))
    explained = stage.plugin("explain", "job/other-2").stdout
    assert "Reservation: waits for the end of the reservation course" in explained
    listed = stage.plugin("reservations").stdout
    assert listed.splitlines()[0].split() == ["NAME", "STATE", "START", "END", "NODES", "AGE"]
    assert "course" in listed
    stage.kubectl("delete", "fluxreservation", "course")
    stage.until_state("other-2", State.RUNNING)


def test_work_that_would_overlap_a_maintenance_waits_until_it_is_over(stage: Stage) -> None:
    reserve(
        stage, "power", start=in_s(8), end=in_s(14), duration=None, nodes=node_names(stage), maintenance=True
    )
    until_shown(stage, "power", "Planned")
    stage.apply(job("long", "0.5").build(), job("short", "0.5", duration="2s").build())
    stage.until_reason("long", "Reservation")
    stage.until_state("short", State.COMPLETED)
    assert wrong([stage.until_state("long", State.COMPLETED, 60)]) == []
    assert until_shown(stage, "power", "Over").nodes == ""


def test_a_namespace_that_is_not_named_may_not_use_it_until_it_is(stage: Stage) -> None:
    stage.apply(job("mine", reservation="course").build())
    assert (
        "there is no FluxReservation 'course'"
        in stage.until_reason("mine", "ReservationNotAllowed").status.message
    )
    reserve(stage, "course", start=in_s(-60), nodes={"count": 1}, duration="2h", namespaces=["others"])

    def message() -> str:
        return stage.until_reason("mine", "ReservationNotAllowed").status.message

    stage.until("it is told that it may not", lambda: "is not for namespace" in message())
    reserve(stage, "course", start=in_s(-60), nodes={"count": 1}, duration="2h")
    stage.until_state("mine", State.RUNNING)


@pytest.mark.parametrize("at_start", ["leave", "drain", "evict"])
def test_a_maintenance_begins_as_it_says_and_uncordons_only_what_it_cordoned(
    stage: Stage, at_start: str
) -> None:
    stage.apply(job("runs").build())
    (node,) = nodes_of(stage.until_state("runs", State.RUNNING).fluxjob)
    other = next(name for name in node_names(stage) if name != node)
    stage.kubectl("cordon", other)
    try:
        reserve(
            stage,
            "power",
            start=in_s(2),
            nodes=[node, other],
            duration="2h",
            maintenance=True,
            atStart=at_start,
        )
        until_shown(stage, "power", "Active")
        expected = {other: ""} if at_start == "leave" else {other: "", node: "power"}
        stage.until("the nodes are as the maintenance wants them", lambda: cordoned(stage) == expected)
        if at_start == "evict":
            stage.until("the Job runs elsewhere", lambda: runs_on(stage, "runs") not in ("", node), 60)
        else:
            assert runs_on(stage, "runs") == node
        stage.kill("queue")
        stage.until_ready("queue")
        stage.kubectl("delete", "fluxreservation", "power")
        stage.until("only what a person cordoned is cordoned", lambda: cordoned(stage) == {other: ""})
    finally:
        stage.kubectl("uncordon", other)


def runs_on(stage: Stage, name: str) -> str:
    """Return the node of a running Job; empty while it does not run."""
    fluxjob = stage.row(name).fluxjob
    return (
        ",".join(decode(fluxjob.status.nodes))
        if fluxjob is not None and fluxjob.status.state == State.RUNNING
        else ""
    )


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"start": None}, "spec.start: Required value"),
    ({"start": "next Tuesday 08:00"}, "spec.start: 'next Tuesday 08:00' is not a time"),
    ({"end": "2026-12-01T10:00:00"}, "write either end or duration, and not both"),
    ({"duration": None}, "write either end or duration, and not both"),
    ({"duration": "soon"}, "spec.duration: 'soon' is not a duration"),
    (
        {"duration": None, "end": "2026-12-01T07:00:00"},
        "spec.end: '2026-12-01T07:00:00' is not after spec.start",
    ),
    ({"repeat": "FREQ=MINUTELY"}, "FREQ is one of DAILY, WEEKLY, MONTHLY, YEARLY"),
    ({"repeat": "FREQ=DAILY;BYHOUR=3"}, "spec.repeat: 'BYHOUR' is not supported"),
    ({"timeZone": "Mars/Olympus"}, "spec.timeZone: 'Mars/Olympus' is no time zone"),
    ({"nodes": {}}, "nodes: write names, or count, selector, or both of these"),
    ({"nodes": {"count": 1, "names": ["a"]}}, "nodes: write names, or count, selector, or both of these"),
    ({"nodes": {"count": 0}}, "spec.nodes.count"),
    ({"nodes": {"selector": {"a b": "c"}}}, "spec.nodes.selector: 'a b' is no key of a label"),
    ({"namespaces": None}, "say who may use it (namespaces, queues), or that it is a maintenance"),
    ({"maintenance": True}, "say who may use it (namespaces, queues), or that it is a maintenance"),
    ({"atStart": "drain"}, "atStart is for a maintenance"),
    ({"maintenance": True, "namespaces": None, "atStart": "burn"}, "spec.atStart"),
    ({"priority": 3}, 'unknown field "spec.priority"'),
]


def test_a_reservation_that_cannot_be_meant_is_refused_with_its_field(stage: Stage) -> None:
    answers = []
    base: dict[str, Any] = {
        "start": "2026-12-01T08:00:00",
        "nodes": {"count": 1},
        "namespaces": ["team"],
        "duration": "1h",
    }
    for spec, words in BAD_INPUT:
        document = make_reservation("odd")
        document["metadata"] = {"name": "odd"}
        document["spec"] = {key: value for key, value in {**base, **spec}.items() if value is not None}
        done = stage.kubectl(
            "create", "--validate=strict", "-f", "-", stdin=json.dumps(document), check=False
        )
        if done.returncode == 0 or words not in done.stderr:
            answers.append((spec, done.stdout + done.stderr))
    assert answers == []


def test_everybody_reads_reservations_and_only_operators_write_them(stage: Stage) -> None:
    subject = f"system:serviceaccount:{stage.namespace}:somebody"

    def may(verb: str, *what: str) -> bool:
        done = stage.kubectl(
            "auth",
            "can-i",
            verb,
            "fluxreservations.jobs.converged-computing.org",
            *what,
            "--as",
            subject,
            check=False,
        )
        return bool(done.stdout.strip() == "yes")

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    assert [verb for verb in verbs if may(verb)] == ["get", "list", "watch"]
    binding, who = f"operator-{stage.namespace}", f"--serviceaccount={stage.namespace}:somebody"
    stage.kubectl("create", "clusterrolebinding", binding, "--clusterrole=fluxqueue-operator", who)
    try:
        assert all(may(verb) for verb in verbs)
        assert not may("patch", "--subresource=status")
    finally:
        stage.kubectl("delete", "clusterrolebinding", binding)
