"""A moldable Job gives pods back so that more important work starts, and grows again,
on a real control plane.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import JobBuilder
from support.crash_suite import crash_environment
from support.end_to_end import Stage, managed_namespace
from support.preempting_queue import FOREVER, PreemptingQueue

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.pods import Pod
from fluxqueue.local.inprocess import ClusterOptions, InProcessCluster
from fluxqueue.queue.crashpoints import VARIABLE, CrashPoint


class Queue(PreemptingQueue):
    """The queue, whose work says that it runs for an hour."""

    def job(self, name: str, nodes: int, priority: int = 0, seconds: str = FOREVER) -> JobBuilder:
        return super().job(name, nodes, priority, seconds).annotation(names.DURATION_ANNOTATION, "1h")

    def moldable(self, least: int = 4) -> JobBuilder:
        return self.job("moldable", 8).annotation(names.MIN_PODS_ANNOTATION, str(least))


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """A cluster in which the queue can be killed between two effects."""
    options = ClusterOptions(
        durable=False, values={"queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 10}}}
    )
    made = InProcessCluster(
        service_folder / "shrinking", options, extra_environment=crash_environment(service_folder)
    )
    made.start()
    yield made
    made.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster) as made:
        yield made


@pytest.fixture
def queue(stage: Stage) -> Iterator[Queue]:
    made = Queue(stage)
    made.grants()
    yield made
    stage.kubectl("delete", "fluxqueue", made.name)


def pods_of(stage: Stage, name: str = "moldable") -> dict[str, Pod]:
    """The pods of a Job that have not ended, by uid."""
    uid = stage.job(name).metadata.uid
    owned = [
        pod for pod in stage.items("pods", Pod) if (owner := pod.metadata.controller) and owner.uid == uid
    ]
    return {pod.metadata.uid: pod for pod in owned if pod.active}


def running(stage: Stage, name: str = "moldable") -> dict[str, Pod]:
    return {uid: pod for uid, pod in pods_of(stage, name).items() if pod.status.phase == "Running"}


def until_running(stage: Stage, pods: int) -> dict[str, Pod]:
    return stage.until(
        f"{pods} pods run",
        lambda: found if len(found := running(stage)) == len(pods_of(stage)) == pods else {},
    )


def told(stage: Stage) -> set[str]:
    """The pods that are to end after their grace (uid)."""
    return {
        uid for uid, pod in running(stage).items() if pod.metadata.annotation(names.PREEMPT_AT_ANNOTATION)
    }


def all_run(stage: Stage, queue: Queue) -> dict[str, Pod]:
    """Start the moldable Job on all eight nodes."""
    stage.apply(queue.moldable().build())
    stage.until_state("moldable", State.RUNNING)
    return until_running(stage, 8)


def goes_on_with_five(stage: Stage, before: dict[str, Pod]) -> None:
    """Judge that three pods were given back, and that the others did not notice."""
    stage.until("pods that find no node are given up", lambda: stage.job("moldable").spec.parallelism == 5)
    left = until_running(stage, 5)
    assert left.keys() < before.keys(), "no pod was restarted"
    moldable = stage.job("moldable")
    assert (moldable.spec.completions, moldable.status.failed) == (8, 0)
    assert stage.row("moldable").state == State.RUNNING
    stage.until_consistent()


def test_a_job_gives_pods_back_goes_on_and_grows_again(stage: Stage, queue: Queue) -> None:
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    goes_on_with_five(stage, before)
    events = json.loads(stage.kubectl("get", "events", "-o", "json").stdout)["items"]
    said = {
        each["message"]
        for each in events
        if each["reason"] == "Shrunk" and each["involvedObject"]["name"] == "moldable"
    }
    form = (
        rf"Job {stage.namespace}/moldable \(priority 0\) gave 3 of its 8 pods back at \S+Z, "
        r"\d+ node-(seconds|minutes) lost, "
        rf"so that Job {stage.namespace}/urgent \(priority 10\) starts: it went on with 5"
    )
    assert any(re.fullmatch(form, each) for each in said), said
    stage.succeed("urgent")
    until_running(stage, 8)
    stage.until_consistent()
    for pod in pods_of(stage).values():
        stage.end_pod(pod.metadata.name)
    ended = stage.until_state("moldable", State.COMPLETED).fluxjob
    assert ended is not None
    assert ended.status.outcome == Outcome.SUCCEEDED
    assert stage.job("moldable").status.failed == 0


def test_a_leader_that_is_killed_in_the_grace_ends_the_same_pods(stage: Stage, queue: Queue) -> None:
    queue.grants(graceSeconds=8)
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until("the pods are chosen", lambda: "Shrunk" in stage.kubectl("get", "events").stdout)
    assert len(running(stage)) == 8, "the grace is not over"
    stage.kill("queue")
    stage.until_ready("queue")
    stage.until_state("urgent", State.RUNNING)
    goes_on_with_five(stage, before)


@pytest.mark.parametrize("point", [CrashPoint.GIVEN_BACK, CrashPoint.POD_ENDED])
def test_a_queue_that_is_killed_between_two_effects_ends_the_same_pods(
    stage: Stage, queue: Queue, service_folder: Path, point: CrashPoint
) -> None:
    before = all_run(stage, queue)
    armed = Path(crash_environment(service_folder)[VARIABLE])
    armed.write_text(f"{point} 1")
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    assert not armed.exists(), "the queue was killed at the point"
    goes_on_with_five(stage, before)


@pytest.mark.parametrize("crash", [False, True])
def test_all_pods_go_on_if_the_other_is_deleted_in_the_grace(
    stage: Stage, queue: Queue, service_folder: Path, *, crash: bool
) -> None:
    queue.grants(graceSeconds=600)
    before = all_run(stage, queue)
    stage.apply(queue.job("urgent", 3, priority=10).build())
    stage.until("the pods are told", lambda: len(told(stage)) == 3)
    armed = Path(crash_environment(service_folder)[VARIABLE])
    if crash:
        armed.write_text(f"{CrashPoint.PREEMPTION_WITHDRAWN} 1")
    stage.kubectl("delete", "job", "urgent")
    stage.until("no pod is told any more", lambda: not told(stage), 60)
    assert not armed.exists(), "the queue was killed at the point"
    assert running(stage).keys() == before.keys()
    stage.until(
        "an Event says so",
        lambda: "PreemptionWithdrawn" in stage.kubectl("get", "events").stdout,
    )
    assert "Gave back" not in stage.plugin("explain", "job/moldable").stdout
    stage.until_consistent()


def test_a_job_at_its_least_is_evicted_as_a_whole(stage: Stage, queue: Queue) -> None:
    all_run(stage, queue)
    stage.apply(queue.job("urgent", 5, priority=10).build())
    stage.until_state("urgent", State.RUNNING)
    stage.until_consistent()
    stage.until(
        "it waits again",
        lambda: (found := stage.row("moldable").fluxjob) is not None and found.status.requeues == 1,
    )
