"""A trace: what was submitted when, how much it asked for, how long it ran and how long it had said.

Everything is in whole seconds and whole nodes; the simulator needs no more. `scaled` changes the offered load by stretching or
squeezing the time between submissions, which leaves the jobs themselves as they are (the usual way since Feitelson).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Trace", "TraceJob"]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job.

    Attributes
    ----------
    number
        From 1, in order of submission.
    submit_s
        Seconds from the beginning of the trace.
    nodes
        Whole nodes.
    runtime_s
        How long it truly runs, at least 1.
    requested_s
        How long it says it will.
    """

    number: int
    submit_s: int
    nodes: int
    runtime_s: int
    requested_s: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, for a machine of so many nodes.

    Attributes
    ----------
    left_out
        Why jobs of the source are missing, with how many.
    """

    name: str
    nodes: int
    jobs: tuple[TraceJob, ...]
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def span_s(self) -> int:
        """From the first submission to the last."""
        return self.jobs[-1].submit_s - self.jobs[0].submit_s if self.jobs else 0

    @property
    def load(self) -> float:
        """Offered load: node-seconds asked for by what the machine could give while jobs arrive."""
        work = sum(job.nodes * job.runtime_s for job in self.jobs)
        return work / (self.nodes * self.span_s) if self.span_s else 0.0

    def scaled(self, load: float) -> Trace:
        """The same jobs, submitted so that the offered load is this.

        Raises
        ------
        ValueError
            The load is not above 0, or all jobs were submitted at once.
        """
        if load <= 0 or not self.span_s:
            raise ValueError(f"the load {load} cannot be offered: it must be above 0, and jobs must be submitted at different times")
        factor = self.load / load
        first = self.jobs[0].submit_s
        return replace(self, jobs=tuple(replace(job, submit_s=round((job.submit_s - first) * factor)) for job in self.jobs))

    def overestimated(self, low: float, high: float, seed: int) -> Trace:
        """The same jobs, each saying it takes between ``low`` and ``high`` times what it does."""
        factors = np.random.default_rng([seed, 1]).uniform(low, high, len(self.jobs))
        jobs = tuple(
            replace(job, requested_s=max(job.runtime_s, round(job.runtime_s * factor)))
            for job, factor in zip(self.jobs, factors.tolist(), strict=True)
        )
        return replace(self, jobs=jobs)


def numbered(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """Jobs in order of submission, numbered from 1."""
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    return tuple(replace(job, number=number) for number, job in enumerate(ordered, start=1))
