"""A small reference model of the queue's transitions, to compare with the stored transitions of a run.

It is independent of `fluxqueue.queue.model.states` and of the constraint of the table: the states, the arrows
and their requirements are defined here again. It replays transitions in the order in which they were stored,
so it also finds two leaders that wrote in turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import psycopg
from psycopg.rows import dict_row

from fluxqueue.queue.model.records import Transition
from fluxqueue.queue.store.rows import transition_of

__all__ = ["Life", "departures", "replay"]

ARROWS = {
    "nothing": {"Pending"},
    "Pending": {"Allocated", "Completed", "Failed", "Cancelled"},
    "Allocated": {"Running", "Draining", "Pending", "Completed", "Failed", "Cancelled"},
    "Running": {"Draining", "Completed", "Failed", "Cancelled"},
    "Draining": {"Pending", "Allocated", "Running", "Completed", "Failed", "Cancelled"},
    "Completed": set[str](),
    "Failed": set[str](),
    "Cancelled": {"Pending"},
}
HOLDING = {"Allocated", "Running", "Draining"}

_TRANSITIONS = (
    "SELECT workload, before, after, at, epoch, reason, detail FROM fluxqueue.transition ORDER BY id"
)
_WORKLOADS = """
SELECT w.id, w.state, w.requeues, count(a.jobid),
       count(a.jobid) FILTER (WHERE a.kind = 'grant' AND a.freed_at IS NULL),
       count(a.jobid) FILTER (WHERE a.kind = 'grant' AND a.freed_at IS NULL AND a.released_at IS NULL)
  FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id
 GROUP BY w.id
"""


@dataclass
class Life:
    """The result of the transitions of a workload."""

    state: str = "nothing"
    grants: int = 0
    requeues: int = 0
    jobs: set[str] = field(default_factory=set)


def departures(dsn: str) -> list[str]:
    """Return the differences between the tables of a queue and the model, as messages."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        transitions = connection.cursor(row_factory=dict_row).execute(_TRANSITIONS).fetchall()
        workloads = connection.execute(_WORKLOADS).fetchall()
    lives, problems = replay(map(transition_of, transitions))
    jobs = Counter(job for life in lives.values() for job in life.jobs)
    problems += [f"{job} was granted to {number} workloads" for job, number in jobs.items() if number > 1]
    for workload, state, requeues, allocations, live, unreleased in workloads:
        life = lives.get(workload, Life())
        if life.state != state:
            problems.append(f"workload {workload} is {state}, but its transitions end with {life.state}")
        if life.grants != allocations:
            problems.append(
                f"workload {workload} was granted {life.grants} times, and has {allocations} allocations"
            )
        if life.requeues != requeues:
            problems.append(
                f"workload {workload} was requeued {life.requeues} times, and counts {requeues} requeues"
            )
        if live > (state in HOLDING):
            problems.append(f"workload {workload} is {state} and holds {live} allocations")
        if state == "Running" and unreleased:
            problems.append(f"workload {workload} runs on an allocation that was never released")
    return problems


def replay(transitions: Iterable[Transition]) -> tuple[dict[int, Life], list[str]]:
    """Replay transitions in their order, and return the result of each workload and the differences from the
    model.
    """
    lives: dict[int, Life] = {}
    problems: list[str] = []
    newest = 0
    for each in transitions:
        workload, after = each.workload, str(each.after)
        life = lives.setdefault(workload, Life())
        if (each.before or "nothing") != life.state:
            problems.append(
                f"workload {workload} was {life.state} and went from {each.before} to {after} at {each.at}"
            )
        if after not in ARROWS[life.state]:
            problems.append(
                f"workload {workload} went from {life.state} to {after} at {each.at}: there is no such arrow"
            )
        if each.epoch < newest:
            problems.append(
                f"workload {workload} became {after} under epoch {each.epoch} after epoch {newest} had begun"
            )
        newest = max(newest, each.epoch)
        if after == "Allocated" and life.state != "Draining":
            life.grants += 1
            life.jobs.add(each.detail)
        if after == "Pending" and life.state not in ("nothing", "Cancelled"):
            life.requeues += 1
        life.state = after
    return lives, problems
