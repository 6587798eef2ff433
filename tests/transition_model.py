"""A small reference model of the queue, compared with the transitions a run has left.

Written down independently of the code (`fluxqueue.queue.states`) and of the table's own constraint: the states, the arrows, and what goes
with each. It replays the table in the order of its ids, so it also sees whether two leaders ever wrote in turns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

__all__ = ["departures"]

ARROWS = {
    "nothing": {"Pending"},
    "Pending": {"Allocated", "Completed", "Failed", "Cancelled"},
    "Allocated": {"Running", "Draining", "Pending", "Completed", "Failed", "Cancelled"},
    "Running": {"Draining", "Completed", "Failed", "Cancelled"},
    "Draining": {"Pending", "Completed", "Failed", "Cancelled"},
    "Completed": set[str](),
    "Failed": set[str](),
    "Cancelled": set[str](),
}
ENDED = {state for state, follow in ARROWS.items() if not follow}
HOLDING = {"Allocated", "Running", "Draining"}

_TRANSITIONS = "SELECT workload, before, after, at, epoch, detail FROM fluxqueue.transition ORDER BY id"
_WORKLOADS = """
SELECT w.id, w.state, w.requeues, count(a.jobid) FILTER (WHERE a.kind <> 'extension'),
       count(a.jobid) FILTER (WHERE a.kind = 'grant' AND a.freed_at IS NULL),
       count(a.jobid) FILTER (WHERE a.kind = 'grant' AND a.freed_at IS NULL AND a.released_at IS NULL)
  FROM fluxqueue.workload w LEFT JOIN fluxqueue.allocation a ON a.workload = w.id
 GROUP BY w.id
"""


@dataclass
class _Life:
    state: str = "nothing"
    grants: int = 0
    returns: int = 0
    jobs: set[str] = field(default_factory=set)


def departures(dsn: str) -> list[str]:
    """Where the tables of a queue depart from the model, in sentences; empty if nowhere."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        transitions = connection.execute(_TRANSITIONS).fetchall()
        workloads = connection.execute(_WORKLOADS).fetchall()
    lives, found = _replay(transitions)
    jobs = Counter(job for life in lives.values() for job in life.jobs)
    found += [f"{job} was granted to {number} workloads" for job, number in jobs.items() if number > 1]
    for workload, state, requeues, allocations, live, unreleased in workloads:
        life = lives.get(workload, _Life())
        if life.state != state:
            found.append(f"workload {workload} is {state}, but its transitions end with {life.state}")
        if life.grants != allocations:
            found.append(f"workload {workload} was granted {life.grants} times, and has {allocations} allocations")
        if life.returns != requeues:
            found.append(f"workload {workload} was put back {life.returns} times, and counts {requeues} requeues")
        if live > (state in HOLDING):
            found.append(f"workload {workload} is {state} and holds {live} allocations")
        if state == "Running" and unreleased:
            found.append(f"workload {workload} runs on an allocation that was never released")
    return found


def _replay(transitions: list[tuple[Any, ...]]) -> tuple[dict[int, _Life], list[str]]:
    lives: dict[int, _Life] = {}
    found: list[str] = []
    newest = 0
    for workload, before, after, at, epoch, detail in transitions:
        life = lives.setdefault(workload, _Life())
        if (before or "nothing") != life.state:
            found.append(f"workload {workload} was {life.state} and went from {before} to {after} at {at}")
        if after not in ARROWS[life.state]:
            found.append(f"workload {workload} went from {life.state} to {after} at {at}: there is no such arrow")
        if epoch < newest:
            found.append(f"workload {workload} became {after} under epoch {epoch} after epoch {newest} had begun")
        newest = max(newest, epoch)
        if after == "Allocated":
            life.grants += 1
            life.jobs.add(detail)
        if after == "Pending" and life.state != "nothing":
            life.returns += 1
        life.state = after
    return lives, found
