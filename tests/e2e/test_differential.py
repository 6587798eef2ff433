"""The real scheduler judges the queue, in random worlds (`support.differential_judge` has the rules).

``FLUXQUEUE_WORLDS`` sets how many worlds, ``FLUXQUEUE_WORLDS_SEED`` which, ``FLUXQUEUE_WORLD`` one of them by
its number, ``FLUXQUEUE_WORLDS_ABOUT`` only those about ``jobsets``, ``resizes``, ``preemption``, ``devices``
or ``others``. A world in which a rule is broken is made smaller and printed as YAML.

``FLUXQUEUE_WORLDS_RECORD`` names a file that keeps what was judged. Worlds in it are not judged again, so
that a run goes on after an interruption, or with more worlds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from support.differential_cluster import WorldCluster
from support.differential_judge import Judge, Trial
from support.differential_record import Record
from support.differential_reducer import reduced
from support.differential_worlds import World, make_world
from support.gang_standins import serve
from support.statements import statements_checked

from fluxqueue.kube.transport import Api
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.kubernetes_versions import minor_of

log = structlog.get_logger()

WORLDS = int(os.environ.get("FLUXQUEUE_WORLDS", "50"))
SEED = int(os.environ.get("FLUXQUEUE_WORLDS_SEED", "1"))
ONE = os.environ.get("FLUXQUEUE_WORLD", "")
RECORD = os.environ.get("FLUXQUEUE_WORLDS_RECORD", "")
ABOUT = os.environ.get("FLUXQUEUE_WORLDS_ABOUT", "")
TOLD_EACH = 50
JOBSETS = "jobsets.jobset.x-k8s.io"
SHOWN = int(os.environ.get("FLUXQUEUE_WORLDS_REDUCED", "1"))
"""How many failing worlds are made smaller."""

pytestmark = pytest.mark.timeout(max(1_500, WORLDS * 20))


@pytest.fixture(scope="module")
def judged_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """One small node that no world uses, both schedulers, and the controllers of volumes."""
    values = {
        "scheduler": {"enabled": True},
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 2}},
        "gangs": {"resources": [JOBSETS]},
    }
    cluster = InProcessCluster(
        service_folder / "differential",
        ClusterOptions(nodes=1, node_cpu="1", durable=False, volumes=True, values=values),
    )
    cluster.start(600)
    serve(cluster, JOBSETS, "v1alpha2", "JobSet")
    yield cluster
    cluster.destroy()


@pytest.mark.parametrize("scheduler", ["stock", "fluxion"])
async def test_the_queue_says_and_does_what_the_real_scheduler_would(
    judged_cluster: InProcessCluster, scheduler: str
) -> None:
    numbers = (
        [int(ONE)] if ONE else [number for number in range(WORLDS) if number % 4 == 3 or scheduler == "stock"]
    )
    failed: list[World] = []
    begun = time.monotonic()
    with statements_checked(judged_cluster):
        async with Api.connect(judged_cluster.kubeconfig, max_in_flight=32) as api:
            cluster = WorldCluster(api)
            await cluster.prepare()
            record = Record(Path(RECORD) if RECORD else None, SEED, scheduler, minor_of(await api.version()))
            made = (
                make_world(SEED, number, devices=scheduler == "stock")
                for number in numbers
                if number not in record.numbers
            )
            worlds = [world for world in made if ABOUT in ("", world.about)]

            def judged(trial: Trial) -> None:
                record.add(trial)
                if trial.fault:
                    failed.append(trial.world)
                if len(record.numbers) % TOLD_EACH == 0 or trial.fault:
                    log.info(
                        "differential.judged", s=round(time.monotonic() - begun), so_far=record.summary()
                    )

            judge = Judge(cluster, fluxion=scheduler == "fluxion")
            await judge.judge(worlds, judged)
            small = [await reduced(world, judge.fails) for world in failed[:SHOWN]]
    log.info(
        "differential.ended", worlds=len(worlds), s=round(time.monotonic() - begun), all=record.summary()
    )
    assert not record.faults, "\n".join([*record.faults, *(each.text() for each in small)])
    assert record.started > 0.2 * len(record.numbers)
