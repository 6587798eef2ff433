"""Strikes a running queue at named places, under load of mixed kinds, and checks afterwards that nothing was lost and nothing is left.

All that happens is drawn from one seed. A run is a sequence of *waves*: in each, objects of every kind are applied while the queue is
killed at one crash point after another; then no more is applied, everything must come to its end, and what the cluster, the tables, the
matcher and the audit log say is compared (`CrashSuite.judge`). A strike arms its point, provokes it, waits until the process is gone, and
measures how long it takes until a new leader has gone through a whole cycle again.
"""

from __future__ import annotations

import enum
import random
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from audit_logs import writes_of_queues
from builders import JobBuilder, Json, PodBuilder, make_job, make_minicluster, make_pod
from end_to_end import NotInTime, Stage, wrong
from invariants import violations
from pod_oracle import PodOracle
from psycopg.rows import dict_row
from replicas import asked, queues
from transition_model import departures

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State, fluxjob_name
from fluxqueue.local.controlplane import Component, KubectlError
from fluxqueue.local.inprocess import InProcessPlane
from fluxqueue.local.processes import Process
from fluxqueue.local.verdicts import Row, settled
from fluxqueue.queue.crashpoints import VARIABLE, Point

__all__ = ["Blow", "CrashSuite", "Strike", "crash_environment"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
AT_START = frozenset({Point.LED, Point.LOADED, Point.GRAPH_EMPTY, Point.GRAPH_FILLED, Point.SWEPT})
"""Reached at every start: the queue is killed once more, so that its next life dies there."""
_CYCLES = re.compile(rb'^fluxqueue_cycles_total\{result="(?:idle|granted)"\} ([0-9.e+]+)', re.MULTILINE)
_FIRST_GRANTS = """
SELECT w.kind, w.namespace || '/' || w.name, min(a.granted_at)
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
 GROUP BY w.id
"""


_ALL_OF_ONE = (
    "SELECT * FROM fluxqueue.workload WHERE uid = %(uid)s",
    "SELECT a.* FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload WHERE w.uid = %(uid)s",
    "SELECT s.* FROM fluxqueue.slot s JOIN fluxqueue.workload w ON w.jobid = s.jobid WHERE w.uid = %(uid)s",
    "SELECT t.* FROM fluxqueue.transition t JOIN fluxqueue.workload w ON w.id = t.workload WHERE w.uid = %(uid)s ORDER BY t.id",
)


class Blow(enum.StrEnum):
    """``kill -9`` at no particular place."""

    QUEUE = "queue"
    FLUXION = "fluxion"
    POSTGRES = "postgres"
    API_SERVER = "kube-apiserver"
    WEBHOOK = "webhook"


def crash_environment(folder: Path) -> dict[str, str]:
    """What the queue's environment needs so that its points can be armed through a file of this folder."""
    (folder / "armed").mkdir(exist_ok=True)
    return {VARIABLE: str(folder / "armed" / "point")}


@dataclass(frozen=True)
class Strike:
    """One death: where (a point, or what was killed at no particular place), and the seconds until a leader had run a whole cycle."""

    point: str
    recovery_s: float


@dataclass(frozen=True)
class CycleCount:
    """Cycles that a life of the queue has run; every life counts from nothing."""

    pid: int | None
    cycles: float

    def went_on_since(self, before: CycleCount) -> bool:
        """Whether a cycle ended since: one more of the same life, or any of another."""
        return self.cycles > (before.cycles if self.pid == before.pid else 0.0)


NO_CYCLES = CycleCount(None, 0.0)


@dataclass
class CrashSuite:
    """Strikes a plane.

    Attributes
    ----------
    stage
        A namespace of the plane, which was started with `crash_environment`.
    folder
        The one given there.
    seed
        Of all that is drawn.
    oracle
        Watches the pods meanwhile.
    strikes
        What was done so far.
    missed
        Points that were provoked and not reached in time, and how often.
    gangs
        Workloads that were applied.
    """

    stage: Stage
    folder: Path
    seed: int
    oracle: PodOracle
    strikes: list[Strike] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    gangs: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._cancelled: set[str] = set()
        self._edited: set[str] = set()
        self._suspended: set[str] = set()

    # ---- load --------------------------------------------------------------------------------------------------------------------

    def apply_some(self, number: int) -> list[str]:
        """Apply objects of mixed kinds; their names."""
        things = [self._anything() for _ in range(number)]
        self.gangs += len(things)
        self.stage.apply_all(*things)
        return [str(thing["metadata"]["name"]) for thing in things]

    def _anything(self) -> Json:
        drawn = self._random.random()
        name = f"work-{self.gangs}-{self._random.randrange(10**6)}"
        seconds = str(self._random.choice((0, 1, 1, 2)))
        cpu = str(self._random.choice((1, 2, 4)))
        if drawn < 0.2:
            pod: PodBuilder = make_pod(name).cpu(cpu).with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, seconds)
            return pod.build()
        job: JobBuilder = make_job(name).pod_annotation(RUN_SECONDS, seconds)
        if drawn < 0.5:
            job = job.indexed(self._random.randint(2, 4)).cpu(cpu)
        elif drawn < 0.7:
            job = job.indexed(self._random.randint(2, 4)).cpu(cpu).annotation(names.REPLACE_ANNOTATION, "pod")
        elif drawn < 0.85:
            job = job.pods(2, self._random.choice((2, 3))).cpu(cpu)
        else:  # whole nodes: blocks, and is promised a start
            job = job.indexed(self._random.randint(2, 3)).cpu("8")
        if self._random.random() < 0.5:
            job = job.annotation(names.DURATION_ANNOTATION, self._random.choice(("1s", "5s", "1m")))
        return job.build()

    # ---- strikes -----------------------------------------------------------------------------------------------------------------

    def strike(self, point: Point) -> Strike | None:
        """Kill the queue at a point; None if it was not reached in time."""
        next_life = point in AT_START or point is Point.EDITED
        again_s, within_s = (20.0, 90.0) if next_life else (3.0, 30.0)  # a process that starts must be let come that far
        program = self.stage.plane.programs["queue"]
        queue = program.process
        armed = self.folder / "armed" / "point"
        self._arm(armed, point)
        provoke = self._provocation(point)
        deadline = time.monotonic() + within_s
        provoked_at = float("-inf")
        victim = queue.pid
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
                    victim = queue.pid
            time.sleep(0.005)
        died_at = armed.parent.stat().st_mtime  # the file was removed by the dying process: seen late where a provocation takes long
        self.stage.until("the struck process is gone", lambda: not queue.running or queue.pid != victim, 30)
        program.revive()  # at once, as a kubelet does that was not kept busy with it before
        self.stage.until(f"the queue recovers from {point}", self._recovered, 120, queue.log_excerpt)
        strike = Strike(str(point), time.time() - died_at)
        self.strikes.append(strike)
        return strike

    def blow(self, what: Blow) -> Strike:
        """Kill something at whatever it is doing, and wait until new work goes all the way again."""
        plane = self.stage.plane
        self.apply_some(3)
        process = self._process(what)
        victim = process.pid
        process.send(signal.SIGKILL)
        died_at = time.monotonic()
        if what.value in plane.programs:
            self.stage.until(f"{what} is gone", lambda: process.pid != victim or not process.running, 30)
            plane.programs[what].revive()
        self.stage.until(f"what was killed runs again: {what}", lambda: self._runs_again(what, victim), 60)
        before = self.stage.until(f"work is taken after {what} was killed", self._took_more, 60)
        assert before is not None
        self.stage.until(f"work goes on after {what} was killed", lambda: self._recovered(before), 60, process.log_excerpt)
        strike = Strike(f"kill {what}", time.monotonic() - died_at)
        self.strikes.append(strike)
        return strike

    def _process(self, what: Blow) -> Process:
        plane = self.stage.plane
        if what is Blow.POSTGRES:
            assert plane.postgres.process is not None
            return plane.postgres.process
        if what is Blow.API_SERVER:
            return plane.control_plane.processes[Component.API_SERVER]
        return plane.programs[what].process

    def _runs_again(self, what: Blow, victim: int | None) -> bool:
        process = self._process(what)
        return process.running and process.pid != victim

    def _took_more(self) -> CycleCount | None:
        """How many cycles there had been just before more work was taken; None if it was not."""
        before = self._counted("queue")
        try:
            self.apply_some(1)
        except KubectlError:
            return None
        return before

    def _arm(self, armed: Path, point: Point, *, first: bool = False) -> None:
        """Let the process die where it reaches a point, the first time or a later one."""
        number = 1 if first or point in AT_START else self._random.choice((1, 1, 2))
        unfinished = armed.with_suffix(".new")
        unfinished.write_text(f"{point} {number}")
        unfinished.rename(armed)

    def _provocation(self, point: Point) -> Callable[[], object]:
        match point:
            case _ if point in AT_START:
                return self._begin_anew
            case Point.EDITED:
                return self._edit_while_released
            case Point.TAKEN_BACK | Point.CLEARED | Point.PUT_BACK:
                return self._suspend_one
            case Point.CANCELLED:
                return self._cancel_one
            case Point.ENDED_WAITING:
                return self._delete_one
            case Point.RESERVED | Point.EXTENDED:
                return self._overrun_and_block
            case Point.MINICLUSTER_MADE | Point.PREPARED:
                return self._minicluster
            case Point.PLACED | Point.UNGATED:
                return self._released_pod_by_pod
            case _:
                return lambda: self.apply_some(3)

    def _begin_anew(self) -> None:
        program = self.stage.plane.programs["queue"]
        victim = program.process.pid
        program.process.send(signal.SIGKILL)
        self.stage.until("the queue is gone", lambda: not program.process.running or program.process.pid != victim, 30)
        program.revive()

    def _gang(self, prefix: str, nodes: int, seconds: str) -> JobBuilder:
        self.gangs += 1
        name = f"{prefix}-{self.gangs}-{self._random.randrange(10**6)}"
        return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)

    def _overrun_and_block(self) -> None:
        long = self._gang("overruns", 2, "4").annotation(names.DURATION_ANNOTATION, "1s").build()
        self.stage.apply_all(long, self._gang("blocked", 4, "0").build())
        self.apply_some(2)

    def _released_pod_by_pod(self) -> None:
        self.stage.apply_all(self._gang("gated", 3, "1").annotation(names.REPLACE_ANNOTATION, "pod").build())

    def _minicluster(self) -> None:
        self.gangs += 1
        name = f"flux-{self.gangs}-{self._random.randrange(10**6)}"
        asked = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}
        brokers = {"metadata": {"annotations": {RUN_SECONDS: "1"}}}  # what runs beside them goes on until it is stopped
        services = [{"name": "registry", "image": "registry", **asked}]
        made = make_minicluster(name, 2, services=services, podTemplate=brokers, pod={"annotations": {RUN_SECONDS: "forever"}})
        made["spec"]["containers"][0] |= asked
        self.stage.apply_all(made)

    def _edit_while_released(self) -> None:
        """A patch comes between grant and release: the process dies in between, and its next life finds the Job edited."""
        program = self.stage.plane.programs["queue"]
        armed = self.folder / "armed" / "point"
        armed.unlink(missing_ok=True)
        self.stage.until_settled(60)  # so that it dies over these Jobs and no others
        victim = program.process.pid
        self._arm(armed, Point.CLAIMED, first=True)
        applied = self.stage.apply_all(*(self._gang("edited", 2, "0").build() for _ in range(2)))
        self.stage.until("the queue died with a release claimed", lambda: not armed.exists(), 10)
        for each in applied:
            patch = '{"spec":{"parallelism":1,"completions":1}}'
            self.stage.kubectl("patch", "job", each.name, "-p", patch, check=False)
            self._edited.add(each.name)
        self._arm(armed, Point.EDITED, first=True)
        self.stage.until("the struck process is gone", lambda: not program.process.running or program.process.pid != victim, 30)
        program.revive()

    def _suspend_one(self) -> None:
        gang = self._gang("suspended", 2, "8").cpu("1").build()
        name = str(gang["metadata"]["name"])
        self.stage.apply_all(gang)
        self._suspended.add(name)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and (self.stage.row(name).state not in (State.ALLOCATED, State.RUNNING)):
            time.sleep(0.1)
        self.stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":true}}', check=False)

    def _cancel_one(self) -> None:
        gang = self._gang("cancelled", 6, "0").annotation(names.DURATION_ANNOTATION, "1h").build()  # more nodes than there are
        (applied,) = self.stage.apply_all(gang)
        name = fluxjob_name(applied.kind, applied.name, applied.uid)
        self._cancelled.add(applied.name)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            patch = '{"spec":{"cancel":true}}'
            if self.stage.kubectl("patch", "fluxjob", name, "--type=merge", "-p", patch, check=False).returncode == 0:
                return
            time.sleep(0.05)

    def _delete_one(self) -> None:
        gang = self._gang("deleted", 6, "0").build()
        (applied,) = self.stage.apply_all(gang)
        self.stage.examples.remove(applied)
        time.sleep(0.3)  # give it a chance to be taken in first; if it was not, the next one will be
        self.stage.kubectl("delete", "job", applied.name, "--wait=false")

    def _recovered(self, before: CycleCount = NO_CYCLES) -> bool:
        """Whether a leader has run a whole cycle since ``before``, and says that nothing is missing."""
        plane = self.stage.plane
        for name in queues(plane):
            answer = asked(plane, name)
            if answer["role"] == "leader" and answer["ready"] and self._counted(name).went_on_since(before):
                return True
        return False

    def _counted(self, name: str) -> CycleCount:
        plane = self.stage.plane
        return CycleCount(plane.programs[name].process.pid, _cycles(plane, name))

    # ---- judgement ---------------------------------------------------------------------------------------------------------------

    def judge(self, within_s: float = 240) -> list[str]:
        """Let everything come to its end, and say what is wrong; then remove it all."""
        for name in self._suspended:
            self.stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}', check=False)
        self._suspended.clear()
        try:
            rows = self.stage.until_settled(within_s)
        except NotInTime as error:
            raise NotInTime("\n".join([f"not settled within {within_s:g} s:", *self._unsettled()])) from error
        loose = [row for row in rows if row.example.kind == "MiniCluster"]  # it ends with its leader, and its followers' pods go
        found = wrong([row for row in rows if row not in loose and row.example.name not in self._cancelled | self._edited])
        found += [f"{row.title} is {row.state} and ran on {row.ran_on}, not {row.hosts}" for row in loose if not _done(row)]
        # An edit that came after the release takes a pod off a Job that runs: it has fewer pods than places then.
        found += [f"{row.title} was edited and is {row.state}" for row in rows if row.example.name in self._edited and not _done(row)]
        found += [f"{row.title} was cancelled and is {row.state}" for row in rows if _resisted(row, self._cancelled)]
        self.stage.until_consistent()
        found += violations(self.stage.plane)
        found += departures(self.stage.plane.database_dsn)
        found += self.oracle.overbookings
        found += released_before_stored(self.stage.plane)
        self.stage.clear(120)
        self.stage.examples.clear()
        self._cancelled.clear()
        self._edited.clear()
        return found

    def _unsettled(self) -> list[str]:
        """All that is known of what did not come to its end: tables, cluster, and what the queue said of it."""
        told: list[str] = []
        log = self.stage.plane.programs["queue"].process.log_text().splitlines()
        for row in self.stage.rows():
            if settled([row]):
                continue
            example = row.example
            with psycopg.connect(self.stage.plane.database_dsn, autocommit=True, row_factory=dict_row) as connection:
                for query in _ALL_OF_ONE:
                    told += [f"  {row.title}: {found}" for found in connection.execute(query.encode(), {"uid": example.uid}).fetchall()]
            told.append(self.stage.kubectl("get", example.kind, example.name, "-o", "yaml", check=False).stdout)
            told += [line for line in log if example.name in line or (row.jobid and f"jobid={row.jobid}" in line)][-20:]
        return [*told, *violations(self.stage.plane), *log[-40:]]


def _done(row: Row) -> bool:
    return row.state == State.COMPLETED and set(row.ran_on) <= set(row.hosts)


def _resisted(row: Row, cancelled: set[str]) -> bool:
    return row.example.name in cancelled and row.state != State.CANCELLED


def _cycles(plane: InProcessPlane, name: str) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{plane.programs[name].port}/metrics", timeout=5) as answer:
            return sum(float(number) for number in _CYCLES.findall(answer.read()))
    except OSError:
        return 0.0


def released_before_stored(plane: InProcessPlane) -> list[str]:
    """Objects the queue let go, by the audit log, before the tables had an allocation of theirs (I3); in sentences."""
    first: dict[tuple[str, str], datetime] = {}
    for write in writes_of_queues(plane):
        if write.verb == "patch" and write.resource in ("jobs", "pods") and write.code == 200:
            first.setdefault((write.resource, write.name), write.at)
    with psycopg.connect(plane.database_dsn, autocommit=True) as connection:
        granted: list[tuple[Any, ...]] = connection.execute(_FIRST_GRANTS).fetchall()
    return [
        f"{kind} {name} was patched at {at:%H:%M:%S.%f}, its first allocation was stored at {stored.astimezone(UTC):%H:%M:%S.%f}"
        for kind, name, stored in granted
        if (at := first.get((f"{kind.lower()}s", name))) is not None and at < stored
    ]
