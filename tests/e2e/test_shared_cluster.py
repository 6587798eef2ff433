"""A cluster that several groups share, installed with values-shared.yaml:
what one of them does and sees beside the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.builders import JobBuilder, make_job
from support.chart_rendering import SHARED
from support.end_to_end import Stage, managed_namespace

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
PRIORITY_CLASS = "spec.template.spec.priorityClassName"


@pytest.fixture(scope="module")
def shared_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes of 8 cpu."""
    values = yaml.safe_load(SHARED.read_text())
    cluster = InProcessCluster(
        service_folder / "shared", ClusterOptions(nodes=4, durable=False, values=values)
    )
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(shared_cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(shared_cluster) as stage:
        yield stage


@pytest.fixture
def others(shared_cluster: InProcessCluster, stage: Stage) -> Iterator[Stage]:
    """Their namespace; its end needs a matcher that holds nothing, so what ``stage`` has is deleted first."""
    with managed_namespace(shared_cluster) as others:
        yield others
        stage.delete_applied()


def job(name: str, nodes: int = 1, duration: str = "1h", seconds: str = "forever") -> JobBuilder:
    """A Job of whole nodes."""
    made = make_job(name).cpu("8").indexed(nodes).pod_annotation(RUN_SECONDS, seconds)
    return made.annotation(names.DURATION_ANNOTATION, duration)


def says(stage: Stage, name: str) -> str:
    """Return all that people of a namespace read about a Job."""
    events = stage.kubectl("get", "events", "-n", stage.namespace, "-o", "json").stdout
    fluxjobs = stage.kubectl("get", "fluxjobs", "-n", stage.namespace, "-o", "json").stdout
    return f"{events}{fluxjobs}{stage.plugin('explain', name, '-n', stage.namespace).stdout}"


@pytest.mark.parametrize("priority_class", ["system-node-critical", "fluxqueue-programs"])
def test_nobody_goes_ahead_of_others(stage: Stage, others: Stage, priority_class: str) -> None:
    others.apply(job("runs", 4).build())
    others.until_state("runs", State.RUNNING)
    others.apply(job("first").build())
    others.until_reason("first", "WaitingForNodes")
    stage.apply(job("urgent").annotation(names.PRIORITY_ANNOTATION, "1000000000").build())
    stage.apply(job("critical").with_(PRIORITY_CLASS, priority_class).build())
    assert "the queue 'default' allows 0" in stage.until_reason("urgent", "InvalidRequest").status.message
    critical = stage.until("it waits", lambda: stage.row("critical").fluxjob)
    assert critical is not None
    assert critical.spec.priority == 0


def test_nobody_reads_the_names_of_others_work(stage: Stage, others: Stage) -> None:
    others.apply(job("secret-runs", 3).build())
    others.until_state("secret-runs", State.RUNNING)
    others.apply(job("secret-project", 4).build())
    others.until(
        "it has a reservation",
        lambda: (shown := others.row("secret-project").fluxjob) and shown.status.reserved_at,
    )
    stage.apply(job("mine", duration="24h").build())
    message = stage.until_reason("mine", "BlockedByReservation").status.message
    assert "reserved for work of another namespace from" in message
    assert "secret" not in says(stage, "job/mine")


def test_a_stated_duration_is_kept(stage: Stage) -> None:
    stage.apply(job("liar", duration="5s").build())
    failed = stage.until_state("liar", State.FAILED).fluxjob
    assert failed is not None
    assert failed.status.outcome == Outcome.TIME_LIMIT


def test_a_person_leaves_no_queue_and_works_in_the_own_namespace_alone(stage: Stage, others: Stage) -> None:
    stage.kubectl("create", "serviceaccount", "alice")
    stage.kubectl(
        "create", "rolebinding", "alice", "--clusterrole=edit", f"--serviceaccount={stage.namespace}:alice"
    )
    kubeconfig = str(stage.cluster.control_plane.service_account_kubeconfig(stage.namespace, "alice"))
    alice = f"--as=system:serviceaccount:{stage.namespace}:alice"

    def may(*words: str) -> bool:
        return bool(stage.kubectl("auth", "can-i", *words, alice, check=False).returncode == 0)

    stage.until("the rights are there", lambda: may("create", "jobs", "-n", stage.namespace))
    assert may("list", "fluxjobs", "-n", stage.namespace)
    assert not may("list", "fluxjobs", "-n", others.namespace)
    for kind in ("fluxqueues", "fluxaccounts", "fluxreservations"):
        assert not may("list", kind)
    out = job("out").label(names.MANAGED_LABEL, "false").namespace(stage.namespace).build()
    refused = stage.kubectl("create", alice, "-f", "-", stdin=json.dumps(out), check=False)
    assert "may not take work out of the queue" in refused.stderr
    stage.apply(job("mine", 5).build())
    stage.until_reason("mine", "Unsatisfiable")
    for words in (("jobs",), ("explain", "job/mine"), ("hold", "mine"), ("release", "mine")):
        done = stage.plugin(*words, "--kubeconfig", kubeconfig)
        assert done.returncode == 0, (words, done.stderr)
