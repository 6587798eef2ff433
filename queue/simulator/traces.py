"""A trace: when each job was submitted, its size, its runtime and its stated duration.

All times are whole seconds, and all sizes whole nodes unless the trace is scattered. `Trace.scaled` changes
the offered load: it scales the time between submissions and leaves the jobs as they are, which is the usual
method since Feitelson.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        Real runtime, at least 1.
    requested_s
        Stated duration.
    queue, priority
        Its queue, and its priority there.
    account
        Who it counts for; empty: nobody.
    user
        Who submitted it; empty: not known.
    after, think_s
        Number of the job whose end it waits for, and seconds after that; 0: none.
    least_nodes
        With how few nodes it may start; 0: with all.
    cores
        Of each of its nodes.
    checkpoint_s
        How often it saves what it has; 0: as the simulation says.
    """

    number: int
    submit_s: int
    nodes: int
    runtime_s: int
    requested_s: int
    queue: str = "default"
    priority: int = 0
    account: str = ""
    user: str = ""
    after: int = 0
    think_s: int = 0
    least_nodes: int = 0
    cores: int = 1
    checkpoint_s: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, and the number of nodes of their machine.

    Attributes
    ----------
    cores
        Of each node.
    left_out
        Reasons why jobs of the source are missing, each with their number.
    """

    name: str
    nodes: int
    jobs: tuple[TraceJob, ...]
    left_out: tuple[tuple[str, int], ...] = ()
    cores: int = 1

    @property
    def span_s(self) -> int:
        """From the first submission to the last."""
        return self.jobs[-1].submit_s - self.jobs[0].submit_s if self.jobs else 0

    @property
    def load(self) -> float:
        """Offered load: node-seconds of all jobs in proportion to those of the machine while jobs arrive."""
        work = sum(job.nodes * job.cores * job.runtime_s for job in self.jobs)
        return work / (self.nodes * self.cores * self.span_s) if self.span_s else 0.0

    def scaled(self, load: float) -> Trace:
        """Return the same jobs, submitted so that the offered load has this value.

        Raises
        ------
        ValueError
            The load is not above 0, or all jobs have the same submit time.
        """
        if load <= 0 or not self.span_s:
            raise ValueError(
                f"the load {load} cannot be offered: it must be above 0, "
                "and jobs must be submitted at different times"
            )
        factor = self.load / load
        first = self.jobs[0].submit_s
        return replace(
            self,
            jobs=tuple(replace(job, submit_s=round((job.submit_s - first) * factor)) for job in self.jobs),
        )

    def scattered(self, cores: int) -> Trace:
        """Return the same jobs on nodes with so many cores: a job of one node takes one core, others take
        whole nodes.
        """
        jobs = (replace(job, cores=1 if job.nodes == 1 else cores) for job in self.jobs)
        return replace(self, jobs=tuple(jobs), cores=cores)

    def moldable(self, percent: int) -> Trace:
        """Return the same jobs, each of which may start with so many percent of its nodes."""
        least = {job.nodes: -(-job.nodes * percent // 100) for job in self.jobs}
        jobs = tuple(
            replace(job, least_nodes=least[job.nodes] if least[job.nodes] < job.nodes else 0)
            for job in self.jobs
        )
        return replace(self, jobs=jobs)

    def overestimated(self, low: float, high: float, seed: int) -> Trace:
        """Return the same jobs, each with a stated duration between ``low`` and ``high`` times its
        runtime.
        """
        factors = np.random.default_rng([seed, 1]).uniform(low, high, len(self.jobs))
        jobs = tuple(
            replace(job, requested_s=max(job.runtime_s, round(job.runtime_s * factor)))
            for job, factor in zip(self.jobs, factors.tolist(), strict=True)
        )
        return replace(self, jobs=jobs)


def numbered(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """Return the jobs in order of submission, numbered from 1.
    A job that waits for one that is missing or not before it waits for none.
    """
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    places = (
        {job.number: number for number, job in enumerate(ordered, start=1)}
        if any(job.after for job in ordered)
        else {}
    )
    return tuple(_numbered(job, number, places) for number, job in enumerate(ordered, start=1))


def _numbered(job: TraceJob, number: int, places: Mapping[int, int]) -> TraceJob:
    after = places.get(job.after, 0) if job.after else 0
    return replace(job, number=number, after=after if after < number else 0)
