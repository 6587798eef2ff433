"""Two queues, one leads. The other takes over if the leader is killed, terminated or paused, and a former
leader that resumes writes nothing.

The tests use a local cluster of their own: two queues with a matcher each, four nodes of 8 cpu, and the API
server's audit log, which names the pod of each replica.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from support.audit_logs import writes_of_queues
from support.builders import JobBuilder, make_job
from support.end_to_end import Stage, managed_namespace, wrong
from support.replicas import asked, leader, queues

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"


@pytest.fixture(scope="module")
def cluster_of_two(service_folder: Path) -> Iterator[InProcessCluster]:
    cluster = InProcessCluster(
        service_folder / "leaders", ClusterOptions(nodes=4, queue_replicas=2, durable=False, audit=True)
    )
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster_of_two: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(cluster_of_two) as stage:
        stage.until(
            "both queues are ready, and one leads",
            lambda: _standing(cluster_of_two) == ["follower", "leader"],
        )
        yield stage


def _standing(cluster: InProcessCluster) -> list[str]:
    return sorted(answer["role"] for name in queues(cluster) if (answer := asked(cluster, name))["ready"])


def job(name: str, nodes: int = 1, seconds: str = "1") -> JobBuilder:
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)


def until_led_by_another(stage: Stage, former: str, within_s: float) -> float:
    """Wait until another queue leads, and return the seconds until then."""
    began = time.monotonic()
    (other,) = [name for name in queues(stage.cluster) if name != former]
    stage.until(f"{other} leads", lambda: asked(stage.cluster, other)["role"] == "leader", within_s)
    return time.monotonic() - began


class Admissions:
    """Jobs created one after the other, and a record of each that was refused."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.created: list[str] = []
        self.refused: list[str] = []
        self._ended = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[Admissions]:
        thread = threading.Thread(target=self._create)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(60)

    def _create(self) -> None:
        for number in itertools.count():
            if self._ended.wait(0.05):
                return
            name = f"streaming-{number}"
            document = job(name).cpu("2").namespace(self.stage.namespace).build()
            done = self.stage.kubectl(
                "create", "-f", "-", "-o", "json", stdin=json.dumps(document), check=False
            )
            if done.returncode:
                self.refused.append(done.stderr)
            else:
                self.created.append(name)
                self.stage.adopt(json.loads(done.stdout))


def test_when_the_leader_is_killed_the_other_takes_over_within_15_seconds(stage: Stage) -> None:
    stage.apply(job("runs", 1, "forever").build())
    running = stage.until_state("runs", State.RUNNING)
    former = leader(stage.cluster)
    assert former is not None
    process = stage.cluster.programs[former].process
    stage.apply(job("fills", 3, "forever").build(), job("waits", 2).build())
    stage.until_reason("waits", "WaitingForNodes")
    program = stage.cluster.programs[former]
    program.stop(graceful=False)
    try:
        stage.kubectl("delete", "job", "fills")
        until_led_by_another(stage, former, 15)
        stage.until_state("waits", State.COMPLETED, 15)
    finally:
        program.start()
    stage.until(
        f"{former} stands by", lambda: asked(stage.cluster, former)["role"] == "follower" and process.running
    )
    assert stage.row("runs").hosts == running.hosts
    assert wrong([stage.row("waits")]) == []
    stage.until_consistent()


def test_a_leader_that_is_terminated_hands_over_at_once_and_no_admission_fails(stage: Stage) -> None:
    former = leader(stage.cluster)
    assert former is not None
    program = stage.cluster.programs[former]
    admissions = Admissions(stage)
    with admissions.going_on():
        stage.until("work is flowing", lambda: any(row.state == State.COMPLETED for row in stage.rows()))
        ending = threading.Thread(target=program.stop)
        ending.start()
        handed_over_s = until_led_by_another(stage, former, 30)
        ending.join(30)
        last_words = program.process.log_text()
        seen = len(admissions.created)
        program.start()
        stage.until("more was admitted meanwhile", lambda: len(admissions.created) > seen + 5)
    assert admissions.refused == []
    print(f"handed over within {handed_over_s:.2f} s")  # noqa: T201  # the figure of docs/reference/measurements-programs.md
    assert "lease.released" in last_words, "the Lease was waited for instead of handed over"
    rows = stage.until_settled(90)
    assert wrong(rows) == []
    stage.until_consistent()


def test_a_paused_leader_that_resumes_after_its_replacement_writes_nothing(stage: Stage) -> None:
    former = leader(stage.cluster)
    assert former is not None
    process = stage.cluster.programs[former].process
    paused_pid = process.pid
    pod = f"fluxqueue-queue-{queues(stage.cluster).index(former)}"
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        stage.apply_all(*(job(f"before-{number}", 2).cpu("2").build() for number in range(8)))
        stage.until("some of it is granted", lambda: any(row.hosts for row in stage.rows()))
        process.send(signal.SIGSTOP)
        try:
            (old_epoch,) = connection.execute("SELECT epoch FROM fluxqueue.leader").fetchone() or (0,)
            stage.apply_all(*(job(f"meanwhile-{number}", 1).cpu("2").build() for number in range(8)))
            until_led_by_another(stage, former, 15)
            # it gets the Lease first, and the table a little later
            newer = "SELECT acquired_at FROM fluxqueue.leader WHERE epoch > %s"
            (replaced_at,) = stage.until(
                "it leads in the table too", lambda: connection.execute(newer, (old_epoch,)).fetchone()
            ) or (None,)
            stage.until_settled(90)
            stage.apply_all(*(job(f"as-it-wakes-{number}", 1).cpu("2").build() for number in range(8)))
        finally:
            process.send(signal.SIGCONT)
        stage.until("the one that woke up has ended", lambda: process.pid != paused_pid, 15)
        rows = stage.until_settled(90)
        late = connection.execute(
            "SELECT count(*) FROM fluxqueue.transition WHERE epoch = %s AND at > %s", (old_epoch, replaced_at)
        )
        assert late.fetchone() == (0,)
    assert wrong(rows) == []
    late_writes = [
        write for write in writes_of_queues(stage.cluster) if write.replica == pod and write.at > replaced_at
    ]
    assert [write for write in late_writes if not write.refused_for_its_version] == []
    assert len(late_writes) <= 1, "at most the request that was being sent at that moment"
    stage.until_consistent()


def test_a_replica_writes_only_while_it_leads(stage: Stage) -> None:
    """Read the audit log of all tests before: the writes of two replicas never interleave."""
    spans = [
        replica
        for replica, _ in itertools.groupby(
            sorted(
                (write for write in writes_of_queues(stage.cluster) if not write.refused_for_its_version),
                key=lambda w: w.at,
            ),
            key=lambda w: w.replica,
        )
    ]
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        epochs = connection.execute("SELECT count(DISTINCT epoch) FROM fluxqueue.transition").fetchone() or (
            0,
        )
    assert len(spans) <= epochs[0] + 1, spans
