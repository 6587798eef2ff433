"""The real scheduler judges the queue, in random worlds (`support.differential_judge` has the rules).

``FLUXQUEUE_WORLDS`` sets how many worlds, ``FLUXQUEUE_WORLDS_SEED`` which, ``FLUXQUEUE_WORLD`` one of them by
its number. A world in which a rule is broken is made smaller and printed as YAML.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog
from support.differential_judge import Judge, Trial
from support.differential_reducer import reduced
from support.differential_worlds import World, make_world
from support.statements import statements_checked

from fluxqueue.kube.transport import Api
from fluxqueue.local.inprocess import ClusterOptions, InProcessCluster

log = structlog.get_logger()

WORLDS = int(os.environ.get("FLUXQUEUE_WORLDS", "24"))
SEED = int(os.environ.get("FLUXQUEUE_WORLDS_SEED", "1"))
ONE = os.environ.get("FLUXQUEUE_WORLD", "")
BATCH = 12
SHOWN = int(os.environ.get("FLUXQUEUE_WORLDS_REDUCED", "1"))
"""How many failing worlds are made smaller."""

pytestmark = pytest.mark.timeout(max(600, WORLDS * 20))


@pytest.fixture(scope="module")
def judged_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """One small node that no world uses, both schedulers, and the controllers of volumes."""
    values = {
        "scheduler": {"enabled": True},
        "queue": {"config": {"pinWindowSeconds": 2, "successorGraceSeconds": 2}},
    }
    cluster = InProcessCluster(
        service_folder / "differential",
        ClusterOptions(nodes=1, node_cpu="1", durable=False, volumes=True, values=values),
    )
    cluster.start(600)
    yield cluster
    cluster.destroy()


async def run(judge: Judge, worlds: Sequence[World]) -> list[Trial]:
    """Judge worlds in batches, each failing one twice: what is not repeated was late and not wrong."""
    failed: list[Trial] = []
    for start in range(0, len(worlds), BATCH):
        again = [trial.world for trial in await judge.judge(worlds[start : start + BATCH]) if trial.fault]
        if again:
            failed += [trial for trial in await judge.judge(again) if trial.fault]
        log.info(
            "differential.judged",
            worlds=judge.worlds,
            failed=[trial.title for trial in failed],
            verdicts=dict(judge.verdicts),
            released=judge.released,
            refusals=judge.refusals,
        )
    return failed


@pytest.mark.parametrize("scheduler", ["stock", "fluxion"])
async def test_the_queue_says_and_does_what_the_real_scheduler_would(
    judged_cluster: InProcessCluster, scheduler: str
) -> None:
    numbers = (
        [int(ONE)] if ONE else [number for number in range(WORLDS) if number % 4 == 3 or scheduler == "stock"]
    )
    with statements_checked(judged_cluster):
        async with Api.connect(judged_cluster.kubeconfig, max_in_flight=32) as api:
            judge = Judge(api, fluxion=scheduler == "fluxion")
            await judge.prepare()
            failed = await run(
                judge, [make_world(SEED, number, devices=scheduler == "stock") for number in numbers]
            )
            small = [await reduced(trial.world, judge.fails) for trial in failed[:SHOWN]]
    lines = [f"seed {SEED} {trial.title}" for trial in failed]
    assert not failed, "\n".join([*lines, *(each.text() for each in small)])
    assert judge.verdicts["started"] > 0.2 * len(numbers)
