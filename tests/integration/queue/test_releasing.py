"""A workload that the API server refuses to release frees its nodes, and is held until its object changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from support.builders import JobBuilder, make_job
from support.queue_bench import Bench, a_leader, a_node
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.controller import IntakeController
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.model.records import FluxionJobId, Workload
from fluxqueue.queue.release.object_release import ObjectReleaser
from fluxqueue.queue.release.pod_gates import PodGates
from fluxqueue.queue.release.releaser import Releaser
from fluxqueue.queue.store import Store
from fluxqueue.queue.tasks.triggers import Trigger

SENTENCE = "nothing is resumed today"


class _Refusing:
    """An API server whose admission refuses every patch."""

    async def patch(self, *words: object, **settings: object) -> None:
        raise Forbidden(403, "Forbidden", SENTENCE)


async def _unprepared(*words: object) -> None: ...


class ReleaseBench:
    """A bench with an intake and a releaser, and one Job in the caches."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.caches = bench, Caches(cast(Api, None), all_but_system=True)
        self.caches.nodes.replace(bench.nodes.list())
        trigger, api = Trigger(bench._note), cast(Api, _Refusing())
        self.intake = IntakeController(api, self.caches, bench.ledger, trigger)
        subscribe(self.caches, bench.ledger, self.intake)
        gates = PodGates(api, bench.ledger, self.caches.pods.get_by_uid)
        objects = ObjectReleaser(api, self.caches, bench.ledger.clock, gates, cast(Any, _unprepared))
        subscribe(self.caches, objects)
        self.releaser = Releaser(objects, bench.ledger, trigger, lambda _uid: None)

    async def see(self, generation: int = 1) -> None:
        """Submit the Job in this generation."""
        self.caches.jobs.apply(_job(generation))
        await self.intake.take_in(["lammps"])

    async def refuse(self) -> Workload:
        """Match it, and have its release refused until it is held."""
        await self.bench.cycle()
        jobid = self.bench.row("lammps").jobid
        for _ in range(3):
            await self.bench.store.retry_releases(self.bench.ledger.epoch, [FluxionJobId(jobid or 0)])
            await self.releaser.release_due()
        return self.bench.row("lammps")


def _job(generation: int) -> Job:
    builder: JobBuilder = (
        make_job("lammps").indexed(2).cpu("8").suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    job = a_job(builder, uid="lammps", generation=generation)
    return msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, resource_version=str(10 + generation))
    )


@pytest.fixture
def nodes() -> ObjectCache[Node]:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([a_node(f"n{number}") for number in range(2)])
    return cache


@pytest.fixture
async def stand(store: Store, nodes: ObjectCache[Node], fluxion: LocalFluxion) -> AsyncIterator[ReleaseBench]:
    async with a_leader(store, nodes, fluxion) as bench:
        yield ReleaseBench(bench)


async def test_one_refusal_is_written_and_retried(stand: ReleaseBench) -> None:
    await stand.see()
    await stand.bench.cycle()
    await stand.releaser.release_due()
    row = stand.bench.row("lammps")
    assert (row.state, row.reason) == (State.ALLOCATED, Reason.RELEASE_FAILED)
    assert SENTENCE in row.message


async def test_three_refusals_free_the_nodes_and_hold_the_work(stand: ReleaseBench) -> None:
    await stand.see()
    row = await stand.refuse()
    assert (row.state, row.reason) == (State.PENDING, Reason.HELD)
    assert row.message.startswith("Job default/lammps could not be released 3 times and is held")
    assert SENTENCE in row.message
    await stand.see()
    await stand.bench.cycle()
    assert await stand.bench.held() == {}
    assert stand.bench.row("lammps").message == row.message


async def test_an_edit_of_the_object_lifts_the_hold(stand: ReleaseBench) -> None:
    await stand.see()
    await stand.refuse()
    await stand.see()
    await stand.see(generation=2)
    await stand.bench.cycle()
    row = stand.bench.row("lammps")
    assert (row.state, row.overrides.hold, row.requeue_state.unreleasable) == (State.ALLOCATED, False, 0)
