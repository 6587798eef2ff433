"""A busy cluster whose time passes at once: work ends by its limit, and what waits first takes the nodes."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace
from support.dashboard_site import Stage

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.dashboard.job_rows import JobRow


class PlayedDay:
    """A stage and its time.

    Parameters
    ----------
    stage
        With the work of a busy cluster.
    now
        Its time.
    """

    def __init__(self, stage: Stage, now: datetime) -> None:
        self.stage = stage
        self.now = now
        self.started = 0
        stage.clock_of_day = lambda: self.now
        object.__setattr__(stage.site, "clock", lambda: self.now)

    @property
    def running(self) -> int:
        """How many jobs run."""
        return len(self._of(State.RUNNING))

    def passes(self, time: timedelta) -> None:
        """Let time pass."""
        self.now += time
        self.stage.clock.now += time.total_seconds()
        for row in self._of(State.RUNNING):
            if row.ends is not None and row.ends <= self.now:
                self._show(row.job, state="Completed", outcome="Succeeded", finished_at=_text(row.ends))
        busy = {host for row in self._of(State.RUNNING) for host in row.shares}
        free = [
            node.metadata.name
            for node in self.stage.state.nodes.list()
            if node.status.ready and not node.spec.unschedulable and node.metadata.name not in busy
        ]
        waiting = [row for row in self._of(State.PENDING) if row.eta]
        for row in sorted(waiting, key=lambda row: row.job.status.position or 0):
            if row.job.spec.pods > len(free):
                break
            hosts, free = free[: row.job.spec.pods], free[row.job.spec.pods :]
            at = _text(self.now)
            self._show(
                row.job,
                state="Running",
                nodes=",".join(hosts),
                jobid=10_000 + self.started,
                allocated_at=at,
                started_at=at,
            )
            self.started += 1

    def _of(self, state: State) -> list[JobRow]:
        return [row for row in self.stage.state.table.rows() if row.state == state]

    def _show(self, job: FluxJob, **status: object) -> None:
        version = str(int(job.metadata.resource_version) + 1)
        self.stage.show(
            replace(
                job,
                metadata=replace(job.metadata, resource_version=version),
                status=replace(job.status, **status),
            )
        )


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
