"""A queue for tests of `kubectl fluxqueue top`: given work, and what was done to it."""

from __future__ import annotations

from datetime import UTC, datetime

from support.node_work import node

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.live_queue import LiveQueue, QueueView

__all__ = ["NOW", "FakeLiveQueue"]

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class FakeLiveQueue(LiveQueue):
    """Answers from memory, and reads nothing."""

    def __init__(self, *jobs: FluxJob) -> None:
        self.jobs = jobs
        self.done: list[tuple[str, str]] = []
        self.refusal: ClusterError | None = None

    def has(self, *jobs: FluxJob) -> None:
        """Give it other work."""
        self.jobs = jobs

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def view(self) -> QueueView:
        """Return the given work, on one node."""
        return QueueView(1, self.jobs, (node("n1"),), (), ())

    def edit(self, verb: str, job: FluxJob) -> str:
        """Record an edit."""
        if self.refusal is not None:
            raise self.refusal
        self.done.append((verb, job.spec.object_ref.name))
        return f"{verb} done"

    def explain(self, job: FluxJob, now: datetime) -> str:
        """Return a sentence."""
        del now
        return f"why {job.spec.object_ref.name} waits"
