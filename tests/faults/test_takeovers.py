"""Two queues with much waiting work. The one that takes over is frozen for ten seconds at a random moment of
that; work goes on after it.

`make test-takeover` does three rounds with 1,500 waiting Jobs; TAKEOVER_ROUNDS=100 is the long form.
TAKEOVER_SEED repeats a run, as far as programs beside it allow. Each round prints its moment, and how long a
new Job waited for its release after the freeze.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.builders import JobBuilder, make_job
from support.end_to_end import Stage
from support.replicas import asked, leader, queues

from fluxqueue.api import names
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
NAMESPACE = "takeover"
FROZEN_S = 10.0
WITHIN_S = float(os.environ.get("TAKEOVER_WITHIN_S", "60"))
"""The bound for one that leads and has released new work, from the end of the freeze;
`make test-takeover` asks for 20."""
LATEST_S = 6.0
"""The work of a take-over with so many Jobs is over by then."""


@pytest.fixture(scope="module")
def stage(service_folder: Path) -> Iterator[Stage]:
    """Four nodes, of which one is full, with many Jobs that wait for it."""
    cluster = InProcessCluster(
        service_folder / "takeovers", ClusterOptions(nodes=4, queue_replicas=2, durable=False)
    )
    cluster.start()
    client = cluster.control_plane.client
    body = {"metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}}}
    client.request("POST", "/api/v1/namespaces", body)
    client.request("PATCH", "/api/v1/nodes/node-1", {"metadata": {"labels": {"full": "yes"}}})
    made = Stage(cluster, NAMESPACE)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    made.until("the default service account is there", lambda: client.find(account) is not None)
    waiting = int(os.environ.get("TAKEOVER_WAITING", "200"))
    create(made, on_the_full_node("fills"))
    made.until("the node is full", lambda: released(made, "fills"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: create(made, on_the_full_node(f"waits-{number}")), range(waiting)))
    yield made
    cluster.destroy()


def on_the_full_node(name: str) -> JobBuilder:
    return (
        make_job(name)
        .cpu("8")
        .pod_annotation(RUN_SECONDS, "forever")
        .with_("spec.template.spec.nodeSelector", {"full": "yes"})
    )


def create(stage: Stage, job: JobBuilder) -> None:
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    stage.cluster.control_plane.client.request("POST", path, job.namespace(NAMESPACE).build())


def released(stage: Stage, name: str) -> bool:
    return not stage.cluster.control_plane.client.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}")[
        "spec"
    ].get("suspend")


def standing(stage: Stage) -> list[str]:
    return sorted(
        answer["role"] for name in queues(stage.cluster) if (answer := asked(stage.cluster, name))["ready"]
    )


def until_it_leads(stage: Stage, name: str) -> None:
    stage.until(f"{name} takes over", lambda: asked(stage.cluster, name)["role"] == "leader", 60)


def until(stage: Stage, what: str, name: str, within_s: float) -> float:
    """Wait until a Job is released and one queue leads, and return the seconds until then."""
    began = time.monotonic()
    while not (released(stage, name) and leader(stage.cluster)):
        if time.monotonic() - began > within_s:
            logs = "\n".join(
                stage.cluster.programs[each].process.log_excerpt() for each in queues(stage.cluster)
            )
            pytest.fail(
                f"{what}: not within {within_s:g} s: {name} released: "
                f"{released(stage, name)}; {standing(stage)}\n"
                f"{logs}"
            )
        time.sleep(0.1)
    return time.monotonic() - began


def test_a_freeze_at_any_moment_of_a_take_over_stops_the_queue_for_seconds_only(stage: Stage) -> None:
    anew = 137711 if "CI" in os.environ else random.SystemRandom().randrange(10**6)
    seed, rounds = int(os.environ.get("TAKEOVER_SEED") or anew), int(os.environ.get("TAKEOVER_ROUNDS", "1"))
    print(f"take-overs: TAKEOVER_SEED={seed}", flush=True)  # noqa: T201  # to repeat it
    drawing, waits_s = random.Random(seed), list[float]()
    for number in range(rounds):
        stage.until(
            "both queues are ready, and one leads",
            lambda: standing(stage) == ["follower", "leader"],
            180,
            lambda: standing(stage),
        )
        former = leader(stage.cluster)
        assert former is not None
        (other,) = [name for name in queues(stage.cluster) if name != former]
        graceful, moment_s = drawing.random() < 0.5, drawing.uniform(0, LATEST_S)
        program, process = stage.cluster.programs[former], stage.cluster.programs[other].process
        program.stop(graceful=graceful)
        until_it_leads(stage, other)
        # not before: a process that was killed and is back within the Lease's duration leads again
        program.start()
        time.sleep(moment_s)
        process.send(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        process.send(signal.SIGCONT)
        create(stage, make_job(f"new-{seed}-{number}").cpu("1").pod_annotation(RUN_SECONDS, "0"))
        how = f"round {number}, {'terminated' if graceful else 'killed'}, frozen {moment_s:.2f} s after"
        waits_s.append(until(stage, f"TAKEOVER_SEED={seed}, {how}", f"new-{seed}-{number}", WITHIN_S))
        print(f"{how}: released after {waits_s[-1]:.1f} s", flush=True)  # noqa: T201  # the figures of docs/reference/crash-tests.md
    print(f"{rounds} of {rounds} take-overs, the longest {max(waits_s):.1f} s", flush=True)  # noqa: T201
