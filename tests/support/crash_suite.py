"""Kills the programs of a running queue at crash points, under load, and checks afterwards that nothing was
lost.

Everything is drawn from one seed. A run is a sequence of *waves*. In each, objects of every kind are applied
while a program is killed at one crash point after another. Then no more is applied, everything must end, and
the state of the cluster, the tables, the matcher and the audit log are compared (`CrashSuite.check`).
`CrashSuite.crash_at` arms a point, provokes it, waits until the process is gone, and measures the time until
a new leader has run a whole cycle; for the scheduler, until it has bound a pod.
"""

from __future__ import annotations

import enum
import random
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from support.audit_logs import writes_of_queues
from support.crash_load import AT_START, AnyPoint, CrashLoad
from support.end_to_end import NotInTime, Stage, wrong
from support.invariants import violations
from support.loop_blocks import delays
from support.pod_oracle import PodOracle
from support.replicas import LifeCount, asked, metrics, queues
from support.scheduler_crashes import SchedulerCrashes
from support.transition_model import departures

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.components import Component
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.kubectl import KubectlError
from fluxqueue.local.operator_requests import OperatorRefused
from fluxqueue.local.processes import Process
from fluxqueue.local.verdicts import Row, bound_by_another, settled
from fluxqueue.queue.crashpoints import VARIABLE, CrashPoint
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint

__all__ = [
    "ALL_POINTS",
    "AT_START",
    "CRASH_OPTIONS",
    "ELSEWHERE",
    "FROZEN",
    "AnyPoint",
    "Crash",
    "CrashSuite",
    "Kill",
    "crash_environment",
]

ELSEWHERE = frozenset(
    {
        CrashPoint.OWNER_SUSPENDED,
        CrashPoint.OWNER_RESUMED,
        CrashPoint.GIVEN_BACK,
        CrashPoint.POD_ENDED,
        CrashPoint.PREEMPTION_WITHDRAWN,
    }
)
"""Points that other files provoke: ``tests/e2e/test_preempt_owners.py``, whose cluster serves kinds of other
projects, and ``tests/e2e/test_shrinking.py``, which gives a moldable Job all nodes."""
ALL_POINTS: tuple[AnyPoint, ...] = (
    *(point for point in CrashPoint if point not in ELSEWHERE),
    *SchedulerCrashPoint,
)
FROZEN = "freeze scheduler"
"""The name of a crash in which the leading scheduler was frozen for longer than its Lease."""

CRASH_OPTIONS = ClusterOptions(
    nodes=4,
    durable=False,
    audit=True,
    scheduler="fluxion",
    scheduler_replicas=2,
    values={
        "queue": {"config": {"pinWindowSeconds": 1}},
        "reservations": {"enabled": True},
        # Durations are drawn as bad estimates; `crash-limits` is the queue that ends work.
        "defaultQueue": {"spec": {"enforceDuration": {"enabled": False}}},
    },
)
_CYCLES = re.compile(rb'^fluxqueue_cycles_total\{result="(?:idle|granted)"\} ([0-9.e+]+)', re.MULTILINE)
_FIRST_GRANTS = """
SELECT w.kind, w.namespace || '/' || w.name, min(a.granted_at)
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
 GROUP BY w.id
"""


_ALL_OF_ONE = (
    "SELECT * FROM fluxqueue.workload WHERE uid = %(uid)s",
    (
        "SELECT a.* FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload WHERE w.uid "
        "= %(uid)s"
    ),
    "SELECT s.* FROM fluxqueue.slot s JOIN fluxqueue.workload w ON w.jobid = s.jobid WHERE w.uid = %(uid)s",
    (
        "SELECT t.* FROM fluxqueue.transition t JOIN fluxqueue.workload w ON w.id = t.workload WHERE w.uid "
        "= %(uid)s ORDER BY t.id"
    ),
)


class Kill(enum.StrEnum):
    """Programs that are killed with ``kill -9`` at no particular point."""

    QUEUE = "queue"
    FLUXION = "fluxion"
    POSTGRES = "postgres"
    API_SERVER = "kube-apiserver"
    WEBHOOK = "webhook"
    SCHEDULER = "scheduler"


def crash_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the programs with which points can be armed through a file of this folder."""
    (folder / "armed").mkdir(exist_ok=True)
    return {VARIABLE: str(folder / "armed" / "point")}


@dataclass(frozen=True)
class Crash:
    """One crash: the point, or the program that was killed at no particular point,
    and the time until the program worked again.
    """

    point: str
    recovery_s: float


NO_CYCLES = LifeCount(None, 0.0)


@dataclass
class CrashSuite:
    """Crashes of one cluster.

    Attributes
    ----------
    stage
        A namespace of the cluster, which was started with `crash_environment`.
    folder
        The folder that `crash_environment` got.
    seed
        The seed of everything that is drawn.
    oracle
        The oracle that watches the pods meanwhile.
    crashes
        The crashes so far.
    missed
        Points that were provoked and not reached in time, and how often.
    """

    stage: Stage
    folder: Path
    seed: int
    oracle: PodOracle
    crashes: list[Crash] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._schedulers = SchedulerCrashes(self.stage)
        self._load = CrashLoad(self.stage, self.folder, random.Random(self.seed), self._schedulers)

    @property
    def gangs(self) -> int:
        """The number of workloads that were applied."""
        return self._load.gangs

    def apply_some(self, number: int) -> None:
        """Apply objects of mixed kinds."""
        self._load.apply_some(number)

    # ---- crashes -------------------------------------------------------------------------------------------

    def crash_at(self, point: AnyPoint, *, growing: bool = False) -> Crash | None:
        """Kill the queue or the scheduler at a point, and return the crash; None if the point was not reached
        in time.

        If ``growing``, it is provoked by a Job that starts with fewer pods and grows.
        """
        next_life = point in AT_START or point is CrashPoint.EDITED
        # a starting process needs that long to reach it
        again_s, within_s = (20.0, 90.0) if next_life else (3.0, 30.0)
        programs = self._schedulers.names if isinstance(point, SchedulerCrashPoint) else ["queue"]
        armed = self._load.armed
        self._load.arm(point)
        provoke = self._load.grow if growing else self._load.provocation(point)
        deadline = time.monotonic() + within_s * delays()
        provoked_at = float("-inf")
        lives = self._lives(programs)
        while armed.exists():
            now = time.monotonic()
            if now > deadline:
                armed.unlink(missing_ok=True)
                self.missed[str(point)] += 1
                return None
            if now - provoked_at > again_s:
                provoke()
                provoked_at = time.monotonic()
                if next_life:
                    lives = self._lives(programs)
            time.sleep(0.005)
        # the process removed the file when it was killed; a long action notices that late
        died_at = armed.parent.stat().st_mtime
        victim = self.stage.until("the killed process is gone", lambda: self._gone(lives), 30)
        bound = self._schedulers.counted()
        self.stage.cluster.programs[victim].revive()  # at once, as a kubelet does for the first crash
        log_excerpt = self.stage.cluster.programs[victim].process.log_excerpt
        if isinstance(point, SchedulerCrashPoint):
            self._schedulers.until_binding(bound)
        else:
            self.stage.until(f"the queue recovers from {point}", self._recovered, 120, log_excerpt)
        crash = Crash(str(point), time.time() - died_at)
        self.crashes.append(crash)
        return crash

    def _lives(self, programs: list[str]) -> dict[str, int | None]:
        return {name: self.stage.cluster.programs[name].process.pid for name in programs}

    def _gone(self, lives: dict[str, int | None]) -> str:
        """Return the program that has ended since then; empty if none has."""
        running = {name: self.stage.cluster.programs[name].process for name in lives}
        return next(
            (name for name, process in running.items() if not process.running or process.pid != lives[name]),
            "",
        )

    def freeze(self) -> Crash:
        """Freeze the leading scheduler for longer than its Lease, and resume it next to the new leader."""
        self.apply_some(3)
        crash = Crash(FROZEN, self._schedulers.freeze())
        self.crashes.append(crash)
        return crash

    def kill(self, what: Kill) -> Crash:
        """Kill a program, and wait until new work is scheduled and bound again."""
        cluster = self.stage.cluster
        self.apply_some(3)
        name = self._schedulers.leader() or "scheduler" if what is Kill.SCHEDULER else what.value
        process = self._process(name)
        victim = process.pid
        process.send(signal.SIGKILL)
        died_at = time.monotonic()
        if name in cluster.programs:
            self.stage.until(f"{name} is gone", lambda: process.pid != victim or not process.running, 30)
            cluster.programs[name].revive()
        self.stage.until(f"what was killed runs again: {name}", lambda: self._runs_again(name, victim), 60)
        before = self.stage.until(f"work is accepted after {what} was killed", self._accepts_work, 60)
        assert before is not None
        self.stage.until(
            f"work goes on after {what} was killed", lambda: self._recovered(before), 60, process.log_excerpt
        )
        if what in (Kill.SCHEDULER, Kill.API_SERVER):
            self._schedulers.until_binding(self._schedulers.counted())
        crash = Crash(f"kill {what}", time.monotonic() - died_at)
        self.crashes.append(crash)
        return crash

    def _process(self, name: str) -> Process:
        cluster = self.stage.cluster
        if name == Kill.POSTGRES:
            assert cluster.postgres.process is not None
            return cluster.postgres.process
        if name == Kill.API_SERVER:
            return cluster.control_plane.processes[Component.API_SERVER]
        return cluster.programs[name].process

    def _runs_again(self, name: str, victim: int | None) -> bool:
        process = self._process(name)  # a control plane has another process object for each start
        return process.running and process.pid != victim

    def _accepts_work(self) -> LifeCount | None:
        """Apply more work, and return the number of cycles before that; None if it was not accepted."""
        before = self._counted("queue")
        try:
            self.apply_some(1)
        except KubectlError:
            return None
        return before

    def _recovered(self, before: LifeCount = NO_CYCLES) -> bool:
        """True if a leader has run a whole cycle since ``before``, and reports that it is ready."""
        cluster = self.stage.cluster
        for name in queues(cluster):
            answer = asked(cluster, name)
            if answer["role"] == "leader" and answer["ready"] and self._counted(name).went_on_since(before):
                return True
        return False

    def _counted(self, name: str) -> LifeCount:
        cluster = self.stage.cluster
        return LifeCount(cluster.programs[name].process.pid, _cycles(cluster, name))

    # ---- checks --------------------------------------------------------------------------------------------

    def check(self, within_s: float = 240) -> list[str]:
        """Wait until everything has ended, return what is wrong, and remove all objects."""
        self._load.let_all_go_on()
        try:
            self.stage.until("everything has settled", lambda: settled(self._remaining()), within_s)
        except NotInTime as error:
            raise NotInTime("\n".join([f"not settled within {within_s:g} s:", *self._unsettled()])) from error
        rows = self._remaining()
        # A MiniCluster ends with its leader, and the pods of its followers are deleted.
        miniclusters = [row for row in rows if row.example.kind == "MiniCluster"]
        changed = self._load.cancelled | self._load.edited | self._load.limited | self._load.preempted
        problems = wrong([row for row in rows if row not in miniclusters and row.example.name not in changed])
        problems += [
            f"{row.title} is {row.state} and ran on {row.ran_on}, not {row.hosts}"
            for row in miniclusters
            if not _done(row)
        ]
        # An edit after the release removes a pod from a running Job: it has fewer pods than slots then.
        edited = [row for row in rows if row.example.name in self._load.edited]
        problems += [f"{row.title} was edited and is {row.state}" for row in edited if not _done(row)]
        ours = [row for row in rows if row.example.name not in self._load.stock]
        problems += [problem for row in ours for problem in bound_by_another(row, names.SCHEDULER_NAME)]
        problems += [
            f"{row.title} was cancelled and is {row.state}"
            for row in rows
            if _resisted(row, self._load.cancelled)
        ]
        problems += [
            f"{row.title} reached its time limit and is {row.state}"
            for row in rows
            if _outlived(row, self._load.limited)
        ]
        self.stage.until_consistent()
        problems += violations(self.stage.cluster)
        problems += departures(self.stage.cluster.database_dsn)
        problems += self.oracle.overbookings
        problems += self._schedulers.wrong
        problems += released_before_stored(self.stage.cluster)
        self.stage.clear(120)
        self._schedulers.clear()
        self.stage.examples.clear()
        self._load.cancelled.clear()
        self._load.edited.clear()
        self._load.limited.clear()
        self._load.preempted.clear()
        return problems

    def _remaining(self) -> list[Row]:
        """Return the rows without bare pods that were evicted:
        nobody creates them again, and their FluxJobs go with them.
        """
        return [
            row
            for row in self.stage.rows()
            if row.fluxjob or row.pods or row.example.name not in self._load.preempted
        ]

    def _unsettled(self) -> list[str]:
        """Return all facts about work that did not end:
        from the tables, the cluster and the log of the queue.
        """
        facts: list[str] = []
        log = self.stage.cluster.programs["queue"].process.log_text().splitlines()
        for row in self._remaining():
            if settled([row]):
                continue
            example = row.example
            with psycopg.connect(
                self.stage.cluster.database_dsn, autocommit=True, row_factory=dict_row
            ) as connection:
                for query in _ALL_OF_ONE:
                    stored = connection.execute(query.encode(), {"uid": example.uid}).fetchall()
                    facts += [f"  {row.title}: {each}" for each in stored]
            facts.append(
                self.stage.kubectl("get", example.kind, example.name, "-o", "yaml", check=False).stdout
            )
            facts += [
                line for line in log if example.name in line or (row.jobid and f"jobid={row.jobid}" in line)
            ][-20:]
        return [*facts, *violations(self.stage.cluster), *log[-40:]]


def _done(row: Row) -> bool:
    return row.state == State.COMPLETED and set(row.ran_on) <= set(row.hosts)


def _resisted(row: Row, cancelled: set[str]) -> bool:
    return row.example.name in cancelled and row.state != State.CANCELLED


def _outlived(row: Row, limited: set[str]) -> bool:
    return row.example.name in limited and row.state != State.FAILED


def _cycles(cluster: InProcessCluster, name: str) -> float:
    try:
        return sum(float(number) for number in _CYCLES.findall(metrics(cluster, name)))
    except (OSError, OperatorRefused):
        return 0.0


def released_before_stored(cluster: InProcessCluster) -> list[str]:
    """Return a message for each object that was released, by the audit log,
    before its allocation was stored (I3).
    """
    first: dict[tuple[str, str], datetime] = {}
    for write in writes_of_queues(cluster):
        if write.verb == "patch" and write.resource in ("jobs", "pods") and write.code == 200:
            first.setdefault((write.resource, write.name), write.at)
    with psycopg.connect(cluster.database_dsn, autocommit=True) as connection:
        granted: list[tuple[Any, ...]] = connection.execute(_FIRST_GRANTS).fetchall()
    return [
        (
            f"{kind} {name} was patched at {at:%H:%M:%S.%f}, its first allocation was stored at "
            f"{stored.astimezone(UTC):%H:%M:%S.%f}"
        )
        for kind, name, stored in granted
        if (at := first.get((f"{kind.lower()}s", name))) is not None and at < stored
    ]
