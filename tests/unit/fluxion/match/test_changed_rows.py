"""What changed decides which reservations are searched again: never another answer, and few searches."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from support.fluxion_builders import ask, check_books, engine, jobspec, node, nodes, slot, state_of

from fluxqueue.fluxion.changes import CancelJobs, ExtendJob, SetNodeStatus
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.changed_rows import Shortfall
from fluxqueue.fluxion.match.earliest import EarliestStart
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchResult

_LENGTHS_S = (20, 45, 90, 200)
_NODES = 12
_WAITING = 15
_CYCLES = 25


def _request(chance: random.Random) -> str:
    """A request for slots of any nodes, or for whole nodes."""
    duration_s = chance.choice(_LENGTHS_S)
    if chance.random() < 0.2:
        return jobspec(nodes(chance.randint(1, 4), slot(1, cpu=100), exclusive=True), duration=duration_s)
    cpu = chance.choice((100, 200, 300, 500, 700))
    return jobspec(slot(chance.randint(1, 8), cpu=cpu, pods=1), duration=duration_s)


class _History:
    """A cluster in which work ends early, starts, is extended and waits with reservations."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        specs = [node(f"n{number:02}", cpu=700, pods=6) for number in range(_NODES)]
        self.engine: Engine = engine(*specs, policy=self.chance.choice(("lonode", "hinode", "lonodex")))
        self.asked: dict[int, str] = {}
        self.clock = 1_000
        self.said: list[MatchResult] = []

    @property
    def call(self) -> CallContext:
        return CallContext(now=self.clock)

    def request(self, *, reserve: bool) -> None:
        jobid = len(self.asked) + 1
        self.asked[jobid] = _request(self.chance)
        self.said.append(ask(self.engine, self.asked[jobid], jobid, self.call, reserve=reserve))

    def live(self, *, reserved: bool) -> Sequence[int]:
        return sorted(job.jobid for job in state_of(self.engine).jobs.values() if job.reserved is reserved)

    def change(self) -> None:
        """Change something: mostly, running work ends."""
        kind = self.chance.choice(("end", "end", "end", "withdraw", "start", "extend", "time", "down", "try"))
        running, waiting = self.live(reserved=False), self.live(reserved=True)
        if kind == "end" and running:
            self.engine.apply([CancelJobs([self.chance.choice(running)])], self.call)
        elif kind == "withdraw" and waiting:
            self.engine.apply([CancelJobs([self.chance.choice(waiting)])], self.call)
        elif kind == "start":
            self.request(reserve=False)
        elif kind == "extend" and running:
            end = self.clock + self.chance.choice((30, 150))
            self.engine.apply([ExtendJob(self.chance.choice(running), end)], self.call)
        elif kind == "time":
            self.clock += self.chance.randint(1, 25)
            self.end_what_is_due()
        elif kind == "down":
            name = f"n{self.chance.randrange(_NODES):02}"
            path = state_of(self.engine).graph.by_name[name].path
            self.engine.apply([SetNodeStatus({path: self.chance.random() < 0.6})], self.call)
        elif kind == "try" and running and waiting:
            jobid = self.chance.choice(waiting)
            asked = JobMatchRequest(self.asked[jobid], jobid, reserve=True, improve=True)
            self.engine.trial([asked], self.chance.sample(running, 1), self.call)

    def end_what_is_due(self) -> None:
        """End work that has run its time, all but some of it."""
        jobs = state_of(self.engine).jobs
        due = [jobid for jobid in self.live(reserved=False) if jobs[jobid].end <= self.clock]
        kept = due[:1] if self.chance.random() < 0.2 else []
        self.engine.apply([CancelJobs([jobid for jobid in due if jobid not in kept])], self.call)

    def cycle(self) -> None:
        """Ask each reservation for an earlier start, and make new ones."""
        for jobid in self.live(reserved=True):
            text = self.asked[jobid]
            self.said.append(ask(self.engine, text, jobid, self.call, reserve=True, improve=True))
        for _ in range(_WAITING - len(self.live(reserved=True))):
            self.request(reserve=True)

    def run(self) -> list[MatchResult]:
        for _ in range(_CYCLES):
            self.cycle()
            self.change()
        check_books(self.engine)
        return self.said


def _count_searches(patched: pytest.MonkeyPatch) -> list[int]:
    """Count from now on how often all nodes are surveyed at all times."""
    searches, begin = [0], EarliestStart._begin

    def counted(self: EarliestStart) -> None:
        searches[0] += 1
        begin(self)

    patched.setattr(EarliestStart, "_begin", counted)
    return searches


@pytest.mark.parametrize("seed", range(12))
def test_reservations_are_those_of_cycles_that_search_for_each_of_them(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        some = _count_searches(patched)
        said = _History(seed).run()
    with pytest.MonkeyPatch.context() as patched:
        every = _count_searches(patched)
        patched.setattr(Matcher, "may_improve", lambda *_: True)
        assert _History(seed).run() == said
    assert some[0] < every[0]


def test_what_was_found_to_be_too_little_is_not_examined_again() -> None:
    made = engine(*(node(f"n{number}", cpu=400, pods=9) for number in range(4)))
    call = CallContext(now=1_000)
    one, four = (jobspec(slot(count, cpu=400, pods=1), duration=900) for count in (1, 4))
    for jobid in range(1, 5):
        ask(made, one, jobid, call)
    ask(made, four, 5, call, reserve=True)
    made.apply([CancelJobs([1, 2])], call)
    changed = state_of(made).table.changed
    assert ask(made, four, 5, call, reserve=True, improve=True).at == 1_900
    shortfall = state_of(made).jobs[5].shortfall
    assert shortfall is not None
    assert list(zip(shortfall.rows.tolist(), shortfall.steps.tolist(), strict=True)) == [(0, 1), (1, 1)]
    rows = changed.since(shortfall.tick)
    assert rows is not None
    assert not len(rows)
    made.apply([CancelJobs([3, 4])], call)
    assert ask(made, four, 5, call, reserve=True, improve=True).at == 1_000


def _shortfall(*steps: tuple[int, int, int]) -> Shortfall:
    """A shortfall of these rows, times and steps."""
    return Shortfall.of(100, *np.array(steps, dtype=np.int64).reshape(-1, 3).T)


def test_changed_rows_are_enough_only_with_slots_of_their_own_at_that_time() -> None:
    before = _shortfall((0, 0, 2), (0, 50, 2), (1, 0, 0), (1, 20, 1), (3, 0, 0), (3, 120, 9))
    assert before.rows.tolist() == [0, 0, 1]
    changed = np.array([False, True, True, False, False])
    new = _shortfall((1, 0, 0), (1, 30, 1), (2, 0, 3), (2, 50, -3))
    assert before.after(changed, new, 6) is None, "at 30, and with the new rows"
    after = before.after(changed, new, 7)
    assert after is not None
    assert after.rows.tolist() == [0, 0, 1, 2, 2]
    assert after.after(changed, _shortfall(), 4) is not None, "what is left was too little before"
