"""What fluxqueue must reach beside plain Kubernetes and Kueue, and what it reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cluster.summary import FLUXQUEUE, PLAIN, Summary

__all__ = ["GOALS", "Goal", "Verdict", "verdicts"]


@dataclass(frozen=True)
class Goal:
    """One row: a figure of a comparison, what it must be and what it should be.

    Attributes
    ----------
    claim
        What is compared with what.
    measured
        Reads the figure; None if a run that it needs is missing.
    must, aim
        The limits. Higher figures are better if ``higher``.
    unit
        Behind the figure.
    """

    claim: str
    measured: Callable[[Summary], float | None]
    must: float
    aim: float
    higher: bool = False
    unit: str = ""

    def met(self, figure: float, limit: float) -> bool:
        """True if a figure is within a limit."""
        return figure >= limit if self.higher else figure <= limit


@dataclass(frozen=True)
class Verdict:
    """A goal and its figure."""

    goal: Goal
    figure: float

    @property
    def text(self) -> str:
        """``aim``, ``must`` or ``missed``: the best limit that is met."""
        if self.goal.met(self.figure, self.goal.aim):
            return "aim"
        return "must" if self.goal.met(self.figure, self.goal.must) else "missed"


def _beside(
    other: Callable[[Summary], float | None], scenario: str, name: str
) -> Callable[[Summary], float | None]:
    def measured(summary: Summary) -> float | None:
        ours, theirs = summary.median(scenario, FLUXQUEUE, name), other(summary)
        return ours / theirs if ours is not None and theirs else None

    return measured


def _plain(scenario: str, name: str) -> Callable[[Summary], float | None]:
    return _beside(lambda summary: summary.median(scenario, PLAIN, name), scenario, name)


def _kueue(scenario: str, name: str, *, higher: bool) -> Callable[[Summary], float | None]:
    return _beside(lambda summary: summary.better_kueue(scenario, name, higher=higher), scenario, name)


def _ours(scenario: str, name: str) -> Callable[[Summary], float | None]:
    return lambda summary: summary.median(scenario, FLUXQUEUE, name)


_RATE = "jobs_per_s"
_ADDED = "cpu_ms added"
_GANGS = {
    "gangs-20x100": "20 gangs of 100",
    "gangs-2x2000": "2 gangs of 2,000",
    "gangs-1x10000": "a gang of 10,000",
}
_SERVER = "cpu_ms kube-apiserver"


def _rate_goals() -> Iterator[Goal]:
    """Yield how fast work starts, beside plain Kubernetes and Kueue."""
    for jobs, must, aim in ((600, 0.65, 0.8), (2_000, 0.6, 0.75), (10_000, 0.6, 0.75)):
        claim = f"burst of {jobs:,}, Jobs/s against plain"
        yield Goal(claim, _plain(f"burst-{jobs}", _RATE), must, aim, higher=True, unit="x")
    yield Goal(
        "burst of 600, Jobs/s against Kueue's better setting",
        _kueue("burst-600", _RATE, higher=True),
        2.8,
        3.5,
        higher=True,
        unit="x",
    )
    yield Goal("burst of 600, p50 wait against plain", _plain("burst-600", "wait_p50_s"), 1.9, 1.3, unit="x")
    yield Goal(
        "100 gangs of 8, Jobs/s against plain", _plain("gangs-100x8", _RATE), 0.8, 0.9, higher=True, unit="x"
    )
    yield Goal(
        "100 gangs of 8, Jobs/s against Kueue's better setting",
        _kueue("gangs-100x8", _RATE, higher=True),
        1.5,
        1.7,
        higher=True,
        unit="x",
    )
    for scenario, what in _GANGS.items():
        claim = f"{what}, pods/s against plain"
        yield Goal(claim, _plain(scenario, "pods_per_s"), 0.7, 0.9, higher=True, unit="x")


def _cpu_goals() -> Iterator[Goal]:
    """Yield what a Job or a pod costs, beside plain Kubernetes."""
    claim = "all CPU per Job, {}, against plain"
    yield Goal(claim.format("burst of 600"), _plain("burst-600", "cpu_ms"), 1.7, 1.35, unit="x")
    yield Goal(claim.format("steady 10/s"), _plain("steady-10", "cpu_ms"), 1.8, 1.5, unit="x")
    claim = "API server CPU per {}, against plain"
    yield Goal(claim.format("Job, burst of 600"), _plain("burst-600", _SERVER), 1.55, 1.3, unit="x")
    yield Goal(claim.format("pod, 100 gangs of 8"), _plain("gangs-100x8", _SERVER), 1.25, 1.1, unit="x")


GOALS = (
    *_rate_goals(),
    Goal("steady 10 Jobs/s, p50 wait", _ours("steady-10", "wait_p50_s"), 0.07, 0.045, unit="s"),
    Goal("steady 10 Jobs/s, p99 wait", _ours("steady-10", "wait_p99_s"), 0.18, 0.1, unit="s"),
    *_cpu_goals(),
    Goal("CPU per Job of fluxqueue's programs, burst of 600", _ours("burst-600", _ADDED), 8, 5, unit="ms"),
    Goal("CPU per Job of fluxqueue's programs, steady 10/s", _ours("steady-10", _ADDED), 16, 8, unit="ms"),
    Goal(
        "idle, fluxqueue's programs together, of a core",
        _ours("idle", "cpu_percent added"),
        0.4,
        0.2,
        unit="%",
    ),
    *(
        Goal(
            f"Kueue's baseline scenario, {number:,} Workloads, against its time",
            _kueue(f"baseline-{number}", "makespan_s", higher=False),
            0.5,
            0.33,
            unit="x",
        )
        for number in (3_000, 15_000)
    ),
    Goal("the first of them, sizes that wait in the wrong order", _ours("baseline-3000", "inversions"), 0, 0),
    Goal(
        "10,000 pending, node free to next pod bound, p50",
        _ours("backlog-10000", "wait_p50_s"),
        0.3,
        0.1,
        unit="s",
    ),
)


def verdicts(summary: Summary) -> Iterator[Verdict]:
    """Yield each goal whose runs are there."""
    for goal in GOALS:
        if (figure := goal.measured(summary)) is not None:
            yield Verdict(goal, figure)
