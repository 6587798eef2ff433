"""A leader of all parts, on an API server and tables in memory, starts a Job that the webhook suspended."""

from __future__ import annotations

from typing import cast

from support.builders import make_job, make_node
from support.controller_bench import RecordedEvents, managed_caches, running, until
from support.memory_api import MemoryApi
from support.memory_store import MemoryStore, memory_ledger

from fluxqueue.api import names
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.fluxion.rpc.inprocess import LocalFluxion
from fluxqueue.queue.config import QueueConfig
from fluxqueue.queue.leadership.context import LeaderContext
from fluxqueue.queue.leadership.controllers import make_controllers
from fluxqueue.queue.leadership.planning import make_capacity, make_planning
from fluxqueue.queue.leadership.repairs import make_sweeper
from fluxqueue.queue.leadership.subscriptions import subscribe
from fluxqueue.queue.leadership.writers import make_writers
from fluxqueue.queue.store.clock import LeaderClock
from fluxqueue.queue.tasks.triggers import ControlTask, Trigger


async def test_the_parts_of_a_leader_start_a_suspended_job() -> None:
    memory, requests = MemoryApi(), list[ControlTask]()
    memory.put("nodes", make_node("n1", cpu="8").build())
    suspended = make_job("lammps").indexed(2).cpu("2").suspended()
    memory.put(
        "jobs", suspended.annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK).build()
    )

    def defer(task: ControlTask) -> None:
        requests.append(task)

    caches, ledger = managed_caches(memory), await memory_ledger()
    context = LeaderContext(
        memory.api, caches, ledger, Trigger(defer), RecordedEvents().recorder, QueueConfig()
    )
    fluxion = LocalFluxion()
    capacity = make_capacity(context, cast("AsyncFluxionClient", fluxion))
    parts = make_controllers(context, capacity.port_volume_pools)
    planning = make_planning(context, capacity, parts.requeuer)
    writers = make_writers(context, planning, parts.idle)
    controllers = (*parts.controllers, *writers.controllers)
    subscribe(caches, ledger, capacity, parts, planning, *controllers)
    sweeper = make_sweeper(
        context,
        capacity,
        controllers,
        None,
        LeaderClock(MemoryStore(ledger.clock), ledger.epoch),
        writers.fluxjobs.is_due,
        parts.intake.is_due,
    )
    await sweeper.adopt()
    await sweeper.resync()
    async with running(*(controller.run() for controller in controllers)):
        await until(lambda: ledger.all())
        await planning.scheduler.cycle()
        assert planning.scheduler.last_error == ""
        await parts.releaser.release_due()
        job = memory.get("jobs", "lammps")
        assert job["spec"]["suspend"] is False
        assert ControlTask.SCHEDULE in requests
        followers = [
            "PriorityKeeper",
            "LeftoverRequests",
            "JobResizer",
            "FluxReservationWriter",
            "Maintenances",
        ]
        assert [type(each).__name__ for each in planning.controllers] == followers
        assert await sweeper.doctor.examine(looks=1, from_api=False) == []
    await fluxion.close()
