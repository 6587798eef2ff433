"""What is moved where rules about other pods apply: what is sure to restart, for work that starts then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import msgspec
import pytest
from support.builders import Json, make_job, make_node
from support.queue_bench import START, Bench, a_machine
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Outcome, State
from fluxqueue.api.fluxqueues import Consolidation, Policy
from fluxqueue.api.metadata import Namespace
from fluxqueue.api.nodes import Node
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.changes import Ending

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONES = {"n0": "a", "n1": "a", "n2": "b"}


class Cluster:
    """Three nodes of 8 cores, the first two in one zone, and a queue that consolidates."""

    def __init__(self) -> None:
        self.now = START
        self.caches = Caches(cast(Api, None))
        nodes = [
            make_node(name)
            .uid(f"uid-{name}")
            .allocatable(cpu="8", memory="32Gi", pods="110")
            .label("zone", zone)
            .label("kubernetes.io/hostname", name)
            for name, zone in ZONES.items()
        ]
        self.caches.nodes.replace([msgspec.convert(each.build(), Node) for each in nodes])
        namespace = {"metadata": {"name": "default", "uid": "uid-default"}}
        self.caches.namespaces.apply(msgspec.convert(namespace, Namespace))

    async def submit(
        self, bench: Bench, name: str, cpu: str, affinity: Json | None = None, app: str = ""
    ) -> None:
        builder = make_job(name).namespace("default").indexed(1).cpu(cpu).suspended()
        builder = builder.annotation("fluxqueue/suspended-by", "webhook")
        builder = builder.annotation("fluxqueue/duration", "10h")
        builder = builder.with_("spec.template.metadata.labels", {"app": app or name})
        if affinity is not None:
            builder = builder.with_("spec.template.spec.affinity", affinity)
        found = a_job(builder, uid=name)
        self.caches.jobs.apply(found)
        described = describe_job(found, around())
        assert described is not None
        await bench.submit(described)
        await bench.cycle()

    async def run(
        self, bench: Bench, name: str, cpu: str, affinity: Json | None = None, app: str = ""
    ) -> None:
        await self.submit(bench, name, cpu, affinity, app)
        row = bench.row(name)
        assert row.jobid is not None
        await bench.ledger.mark_released([row.jobid])
        await bench.ledger.mark_started([row.id])

    async def fill_others(self, bench: Bench) -> None:
        """Fill the first node for a while, and run other work on the others."""
        for name, cpu in (("filler", "5"), ("other", "3"), ("wide", "8")):
            await self.run(bench, name, cpu)
        assert [bench.row(name).hosts for name in ("filler", "other", "wide")] == ["n0", "n1", "n2"]
        await bench.ledger.finish([Ending(bench.row("filler").id, State.COMPLETED, Outcome.SUCCEEDED)])
        self.now += timedelta(minutes=5)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def bench(cluster: Cluster) -> AsyncIterator[Bench]:
    async with a_machine(lambda: cluster.now, cluster.caches) as made:
        made.policy, made.consolidation = Policy.EASY, Consolidation(enabled=True)
        yield made


def moved(bench: Bench) -> list[str]:
    return sorted(row.name for row in bench.ledger.all() if row.state is State.DRAINING)


def term(app: str, topology: str) -> Json:
    return {REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}]}


@pytest.mark.parametrize("whose", ["nobody", "first", "small"])
async def test_work_is_not_moved_that_must_be_away_from_the_first(
    bench: Bench, cluster: Cluster, whose: str
) -> None:
    """It fits on the other node of the zone, where it could not start beside the first. So all other work of
    the other zone is moved there.
    """
    away = {other: {"podAntiAffinity": term(other, "zone")} for other in ("first", "small")}
    await cluster.run(bench, "small", "3", away["first"] if whose == "small" else None)
    await cluster.fill_others(bench)
    await cluster.submit(bench, "first", "8", away["small"] if whose == "first" else None)
    assert moved(bench) == (["small"] if whose == "nobody" else ["other", "wide"])


async def test_what_the_first_has_to_be_near_is_not_moved_for_it(bench: Bench, cluster: Cluster) -> None:
    for name, cpu in (("db-0", "2"), ("db-1", "1")):
        await cluster.run(bench, name, cpu, app="db")
    await cluster.fill_others(bench)
    await cluster.submit(bench, "first", "8", {"podAffinity": term("db", "kubernetes.io/hostname")})
    assert bench.ledger.reservation(bench.row("first").id) is not None
    assert moved(bench) == []
