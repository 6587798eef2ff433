"""A release waits for the first status of a new Job where it must, and not for long."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from support.builders import JobBuilder, make_job

from fluxqueue.api.jobs import Job
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.release.new_jobs import NewJobs

SUSPENDED = [{"type": "Suspended", "status": "True"}]


def watching(jobs: ObjectCache[Job]) -> NewJobs:
    new = NewJobs()
    jobs.add_handler(new.job_changed)
    return new


def _job(builder: JobBuilder, version: int = 1) -> Job:
    return msgspec.convert(
        builder.with_("metadata.resourceVersion", str(version))
        .with_("metadata.uid", "uid-of-lammps")
        .build(),
        Job,
    )


@pytest.fixture
def jobs() -> ObjectCache[Job]:
    return ObjectCache()


def _numbered(number: int, *, shown: bool = False) -> Job:
    """The Job of a burst that came as this one."""
    builder = (
        make_job(f"burst-{number}")
        .suspended()
        .with_("metadata.resourceVersion", "2" if shown else "1")
        .uid(f"uid-{number}")
    )
    return msgspec.convert((builder.with_("status.conditions", SUSPENDED) if shown else builder).build(), Job)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that only the watch ends."""
    monkeypatch.setattr("fluxqueue.queue.release.new_jobs._PATIENCE_S", 600.0)


async def test_a_job_that_shows_its_status_or_runs_is_not_waited_for(jobs: ObjectCache[Job]) -> None:
    new = watching(jobs)
    for job in (
        _job(make_job("lammps").suspended().with_("status.conditions", SUSPENDED)),
        _job(make_job("lammps")),
    ):
        await asyncio.wait_for(new.first_status(job), 60)


@pytest.mark.parametrize("ways", ["status", "resumed", "deleted"])
async def test_the_watch_ends_the_wait(jobs: ObjectCache[Job], ways: str) -> None:
    new, first = watching(jobs), _job(make_job("lammps").suspended())
    jobs.apply(first)
    waiting = asyncio.create_task(new.first_status(first))
    await asyncio.sleep(0)
    jobs.apply(_job(make_job("lammps").suspended().label("team", "blue"), 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    later = (
        make_job("lammps")
        if ways == "resumed"
        else make_job("lammps").suspended().with_("status.conditions", SUSPENDED)
    )
    if ways == "deleted":
        jobs.remove(first)
    else:
        jobs.apply(_job(later, 3))
    await asyncio.wait_for(waiting, 60)


async def test_the_wait_ends_by_itself(jobs: ObjectCache[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.queue.release.new_jobs._PATIENCE_S", 0.01)
    first = _job(make_job("lammps").suspended())
    jobs.apply(first)
    await asyncio.wait_for(watching(jobs).first_status(first), 60)


async def test_the_jobs_that_the_job_controller_has_not_looked_at_are_counted(jobs: ObjectCache[Job]) -> None:
    new = watching(jobs)
    jobs.replace([_numbered(number) for number in range(20)])
    jobs.apply(
        msgspec.convert(
            make_job("foreign").with_("spec.managedBy", "example.com/other").uid("foreign").build(), Job
        )
    )
    assert new.waiting == 20
    jobs.apply(_numbered(3, shown=True))
    assert new.waiting == 19
    jobs.replace([_numbered(3, shown=True)])
    assert new.waiting == 0


async def test_a_job_is_waited_for_only_where_the_api_server_requires_the_status(
    jobs: ObjectCache[Job],
) -> None:
    new, first = watching(jobs), _job(make_job("lammps").suspended())
    jobs.apply(first)
    await asyncio.wait_for(new.first_status_if_required(first), 60)
    new.require_status()
    waiting = asyncio.create_task(new.first_status_if_required(first))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
