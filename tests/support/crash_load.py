"""The load of the crash suite, and the actions that make a program reach a crash point.

Everything is drawn from one random source, so a seed replays a run.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.builders import (
    JobBuilder,
    Json,
    PodBuilder,
    make_job,
    make_minicluster,
    make_pod,
    make_queue,
    make_reservation,
)
from support.end_to_end import NotInTime, Stage
from support.scheduler_crashes import RUN_SECONDS, SchedulerCrashes

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State, fluxjob_name
from fluxqueue.api.pinwindows import pin_until
from fluxqueue.local.verdicts import settled
from fluxqueue.queue.crashpoints import CrashPoint
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint

__all__ = ["AT_START", "AnyPoint", "CrashLoad"]

AnyPoint = CrashPoint | SchedulerCrashPoint
AT_START = frozenset(
    {
        CrashPoint.EPOCH_RAISED,
        CrashPoint.LOADED,
        CrashPoint.GRAPH_EMPTY,
        CrashPoint.GRAPH_FILLED,
        CrashPoint.SWEPT,
    }
)
"""Points that are reached at every start.
The queue is killed without a point first, so that it reaches the point when it starts again."""


class CrashLoad:
    """Applies objects of mixed kinds, and provokes crash points.

    Parameters
    ----------
    stage
        A namespace of the cluster.
    folder
        The folder of the file that arms points.
    drawing
        The random source.
    schedulers
        The schedulers of the cluster.

    Attributes
    ----------
    gangs
        The number of workloads that were applied.
    cancelled, limited, edited, suspended, preempted, stock
        Names of objects that were cancelled, ended at their time limit, edited or suspended, of bare pods
        that may be preempted, and of those for the stock scheduler.
    """

    def __init__(
        self, stage: Stage, folder: Path, drawing: random.Random, schedulers: SchedulerCrashes
    ) -> None:
        self.stage = stage
        self.gangs = 0
        self.cancelled: set[str] = set()
        self.limited: set[str] = set()
        self.edited: set[str] = set()
        self.suspended: set[str] = set()
        self.preempted: set[str] = set()
        self.stock: set[str] = set()
        self._random = drawing
        self._schedulers = schedulers
        self.armed = folder / "armed" / "point"

    def apply_some(self, number: int) -> list[str]:
        """Apply objects of mixed kinds, and return their names."""
        objects = [self._draw() for _ in range(number)]
        self.gangs += len(objects)
        self.stage.apply_all(*objects)
        return [str(each["metadata"]["name"]) for each in objects]

    def _draw(self) -> Json:
        kind = self._random.random()
        name = f"work-{self.gangs}-{self._random.randrange(10**6)}"
        seconds = str(self._random.choice((0, 1, 1, 2)))
        cpu = str(self._random.choice((1, 2, 4)))
        if kind < 0.2:
            pod: PodBuilder = (
                make_pod(name).cpu(cpu).with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, seconds)
            )
            return pod.build()
        job: JobBuilder = make_job(name).pod_annotation(RUN_SECONDS, seconds)
        if kind < 0.5:
            job = job.indexed(self._random.randint(2, 4)).cpu(cpu)
        elif kind < 0.7:
            job = job.indexed(self._random.randint(2, 4)).cpu(cpu).annotation(names.REPLACE_ANNOTATION, "pod")
        elif kind < 0.85:
            job = job.pods(2, self._random.choice((2, 3))).cpu(cpu)
        else:  # whole nodes: it is blocked and gets a reservation
            job = job.indexed(self._random.randint(2, 3)).cpu("8")
        if self._random.random() < 0.5:
            job = job.annotation(names.DURATION_ANNOTATION, self._random.choice(("1s", "5s", "1m")))
        if self._random.random() < 0.25:
            job = job.label(names.SCHEDULER_LABEL, "stock")
            self.stock.add(name)
        return job.build()

    def arm(self, point: AnyPoint, *, first: bool = False) -> None:
        """Have the process killed when it reaches a point the first time, or (if drawn) the second time."""
        number = 1 if first or point in AT_START else self._random.choice((1, 1, 2))
        unfinished = self.armed.with_suffix(".new")
        unfinished.write_text(f"{point} {number}")
        unfinished.rename(self.armed)

    def provocation(self, point: AnyPoint) -> Callable[[], object]:
        """Return the action that makes a program reach a point."""
        if point in AT_START:
            return self._restart_queue
        return self._actions().get(point, lambda: self.apply_some(3))

    def _actions(self) -> dict[AnyPoint, Callable[[], object]]:
        """Return the actions for points that ordinary work does not reach."""
        one_by_one = self._random.choice((self._released_pod_by_pod, self._replaced_after_the_pin_window))

        def refuse() -> None:
            self._schedulers.fill_its_node(self._named("refused"))

        return {
            CrashPoint.EDITED: self._edit_while_released,
            **dict.fromkeys((CrashPoint.EVICTED, CrashPoint.CLEARED, CrashPoint.REQUEUED), self._suspend_one),
            CrashPoint.CANCELLED: self._cancel_one,
            CrashPoint.ENDED_WAITING: self._delete_one,
            CrashPoint.DEPENDENCIES_JUDGED: self._depend,
            **dict.fromkeys((CrashPoint.RESERVED, CrashPoint.EXTENDED), self._overrun_and_block),
            **dict.fromkeys(
                (CrashPoint.TIME_LIMIT_STORED, CrashPoint.TIME_LIMIT_ASKED), self._reach_time_limit
            ),
            CrashPoint.RESIZED: self.grow,
            CrashPoint.PREEMPTION_TOLD: self._preempt_with_grace,
            CrashPoint.DISRUPTED: self._preempt_pods,
            **dict.fromkeys((CrashPoint.MINICLUSTER_CREATED, CrashPoint.PREPARED), self._minicluster),
            **dict.fromkeys((SchedulerCrashPoint.REFUSED, SchedulerCrashPoint.REPORTED), refuse),
            **dict.fromkeys((CrashPoint.WITHDRAWN, CrashPoint.REFUSAL_NOTED), refuse),
            SchedulerCrashPoint.CLAIM_SELECTED: lambda: self._schedulers.request_a_volume(
                self._named("claims")
            ),
            **dict.fromkeys((CrashPoint.CORDONED, CrashPoint.UNCORDONED), self._maintain_a_node),
            **dict.fromkeys((CrashPoint.SLOTS_TAKEN, CrashPoint.UNGATED), one_by_one),
        }

    def _restart_queue(self) -> None:
        program = self.stage.cluster.programs["queue"]
        victim = program.process.pid
        program.process.send(signal.SIGKILL)
        self.stage.until(
            "the queue is gone", lambda: not program.process.running or program.process.pid != victim, 30
        )
        program.revive()

    def _named(self, prefix: str) -> str:
        self.gangs += 1
        return f"{prefix}-{self.gangs}-{self._random.randrange(10**6)}"

    def _gang(self, prefix: str, nodes: int, seconds: str) -> JobBuilder:
        return make_job(self._named(prefix)).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)

    def _overrun_and_block(self) -> None:
        long = self._gang("overruns", 2, "4").annotation(names.DURATION_ANNOTATION, "1s").build()
        self.stage.apply_all(long, self._gang("blocked", 4, "0").build())
        self.apply_some(2)

    def _reach_time_limit(self) -> None:
        """Let two Jobs run beyond their duration in a queue that ends them then."""
        queue = make_queue("crash-limits", enforceDuration={"enabled": True, "graceSeconds": 0})
        self.stage.kubectl("apply", "-f", "-", stdin=json.dumps(queue))
        limited = [
            self._gang("limited", 2, "60").cpu("1").annotation(names.DURATION_ANNOTATION, "1s")
            for _ in range(2)
        ]
        for each in limited:
            self.limited.add(str(each.build()["metadata"]["name"]))
        self.stage.apply_all(*(each.label(names.QUEUE_LABEL, "crash-limits").build() for each in limited))

    def _preempt_with_grace(self) -> None:
        """Preempt a Job on all nodes, which is told before."""
        self._preempt(self._gang("victim", 3, "8").label(names.QUEUE_LABEL, "crash-preemption").build())

    def _preempt_pods(self) -> None:
        """Preempt bare pods on all nodes, which nobody creates again."""
        pods = [
            make_pod(self._named("lost"))
            .cpu("8")
            .annotation(RUN_SECONDS, "30")
            .with_("spec.restartPolicy", "Never")
            for _ in range(3)
        ]
        self.preempted |= {str(pod.build()["metadata"]["name"]) for pod in pods}
        self._preempt(*(pod.label(names.QUEUE_LABEL, "crash-preemption").build() for pod in pods))

    def _preempt(self, *victims: Json) -> None:
        queue = make_queue(
            "crash-preemption", preemption="lowerPriority", preemptionRules={"graceSeconds": 2}
        )
        self.stage.kubectl("apply", "-f", "-", stdin=json.dumps(queue))
        applied = self.stage.apply_all(*victims)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and any(
            self.stage.row(each.name).state != State.RUNNING for each in applied
        ):
            time.sleep(0.1)
        urgent = self._gang("urgent", 3, "0").annotation(names.PRIORITY_ANNOTATION, "10")
        self.stage.apply_all(urgent.label(names.QUEUE_LABEL, "crash-preemption").build())

    def grow(self) -> None:
        """Let a Job start with one of its pods beside a long one, which ends early:
        it grows into what no other work can use.
        """
        self.let_all_go_on()
        deadline = time.monotonic() + 20
        while self.armed.exists() and time.monotonic() < deadline and not settled(self.stage.rows()):
            time.sleep(0.1)
        if not self.armed.exists():
            return  # the process is gone
        self.stage.apply_all(
            self._gang("ends-early", 3, "3").annotation(names.DURATION_ANNOTATION, "1h").build()
        )
        grows = (
            self._gang("grows", 4, "8")
            .annotation(names.DURATION_ANNOTATION, "10m")
            .annotation(names.MIN_PODS_ANNOTATION, "1")
        )
        self.stage.apply_all(grows.build())

    def _depend(self) -> None:
        """Apply two Jobs of which one waits for the other."""
        first = self._gang("first", 1, "1").cpu("1").build()
        second = (
            self._gang("second", 1, "0")
            .cpu("1")
            .annotation(names.AFTER_ANNOTATION, f"any:job/{first['metadata']['name']}")
            .build()
        )
        self.stage.apply_all(second, first)

    def _maintain_a_node(self) -> None:
        """Begin a maintenance of a node that ends in a few seconds: the node is cordoned, and uncordoned."""
        now = datetime.now(UTC)
        start, end = (f"{now + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}" for seconds in (-5, 4))
        nodes = [f"node-{self._random.randint(1, 4)}"]
        made = make_reservation(
            self._named("power"), start=start, end=end, nodes=nodes, maintenance=True, atStart="drain"
        )
        del made["metadata"]["uid"]
        self.stage.kubectl("apply", "-f", "-", stdin=json.dumps(made))

    def _released_pod_by_pod(self) -> None:
        self.stage.apply_all(self._gang("gated", 3, "1").annotation(names.REPLACE_ANNOTATION, "pod").build())

    def _replaced_after_the_pin_window(self) -> None:
        """Delete the pods of a running Indexed Job: their replacements are gated,
        and each is released onto its own slot.
        """
        gang = self._gang("replaced", 2, "4").cpu("2").build()
        (applied,) = self.stage.apply_all(gang)
        try:
            self.stage.until("its pin window has closed", lambda: self._pin_window_closed(applied.name), 10)
        except NotInTime:
            return  # the cluster is full
        self.stage.kubectl(
            "delete", "pods", "-l", f"{names.JOB_NAME_LABEL}={applied.name}", "--wait=false", check=False
        )

    def _pin_window_closed(self, job: str) -> bool:
        meta = self.stage.job(job).spec.template.metadata
        return meta.annotation(names.PIN_UNTIL_ANNOTATION) is not None and pin_until(meta) < datetime.now(UTC)

    def _minicluster(self) -> None:
        name = self._named("flux")
        requests = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}
        # the services pod runs until it is stopped
        brokers = {"metadata": {"annotations": {RUN_SECONDS: "1"}}}
        services = [{"name": "registry", "image": "registry", **requests}]
        made = make_minicluster(
            name, 2, services=services, podTemplate=brokers, pod={"annotations": {RUN_SECONDS: "forever"}}
        )
        made["spec"]["containers"][0] |= requests
        self.stage.apply_all(made)

    def let_all_go_on(self) -> None:
        """End what work of earlier provocations waits for: users that suspended it, and volumes."""
        for name in self.suspended:
            self.stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}', check=False)
        self.suspended.clear()
        self._schedulers.provide_volumes()
        self.stage.kubectl("delete", "fluxreservations", "--all", check=False)

    def _edit_while_released(self) -> None:
        """Edit Jobs between allocation and release: the process is killed in between,
        and reads the edited Jobs when it starts again.
        """
        program = self.stage.cluster.programs["queue"]
        self.armed.unlink(missing_ok=True)
        self.let_all_go_on()
        self.stage.until_settled(60)  # so that it is killed at these Jobs and not at others
        victim = program.process.pid
        self.arm(CrashPoint.CLAIMED, first=True)
        applied = self.stage.apply_all(*(self._gang("edited", 2, "0").build() for _ in range(2)))
        self.stage.until("the queue is killed with a release claimed", lambda: not self.armed.exists(), 10)
        for each in applied:
            patch = '{"spec":{"parallelism":1,"completions":1}}'
            self.stage.kubectl("patch", "job", each.name, "-p", patch, check=False)
            self.edited.add(each.name)
        self.arm(CrashPoint.EDITED, first=True)
        self.stage.until(
            "the killed process is gone",
            lambda: not program.process.running or program.process.pid != victim,
            30,
        )
        program.revive()

    def _suspend_one(self) -> None:
        gang = self._gang("suspended", 2, "8").cpu("1").build()
        name = str(gang["metadata"]["name"])
        self.stage.apply_all(gang)
        self.suspended.add(name)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and (
            self.stage.row(name).state not in (State.ALLOCATED, State.RUNNING)
        ):
            time.sleep(0.1)
        self.stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":true}}', check=False)

    def _cancel_one(self) -> None:
        # more nodes than the cluster has
        gang = self._gang("cancelled", 6, "0").annotation(names.DURATION_ANNOTATION, "1h").build()
        (applied,) = self.stage.apply_all(gang)
        name = fluxjob_name(applied.kind, applied.name, applied.uid)
        self.cancelled.add(applied.name)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            patch = '{"spec":{"cancel":true}}'
            if (
                self.stage.kubectl(
                    "patch", "fluxjob", name, "--type=merge", "-p", patch, check=False
                ).returncode
                == 0
            ):
                return
            time.sleep(0.05)

    def _delete_one(self) -> None:
        gang = self._gang("deleted", 6, "0").build()
        (applied,) = self.stage.apply_all(gang)
        self.stage.examples.remove(applied)
        time.sleep(0.3)  # it is usually submitted by then; if not, the next one will be
        self.stage.kubectl("delete", "job", applied.name, "--wait=false")
