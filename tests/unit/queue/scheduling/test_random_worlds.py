"""Random worlds: what one scheduling cycle decides, judged by the checks that agree with kube-scheduler's.

``FLUXQUEUE_WORLDS`` sets how many worlds, ``FLUXQUEUE_WORLDS_SEED`` which; a fault names the world, and
`make_world` makes it again.
"""

from __future__ import annotations

import os
from collections import Counter

from support.differential_memory import judge_in_memory
from support.differential_worlds import make_world, path_of

WORLDS = int(os.environ.get("FLUXQUEUE_WORLDS", "60"))
SEED = int(os.environ.get("FLUXQUEUE_WORLDS_SEED", "1"))


async def test_work_waits_only_where_the_scheduler_would_not_place_it() -> None:
    verdicts: Counter[str] = Counter()
    faults = []
    for number in range(WORLDS):
        found = await judge_in_memory(make_world(SEED, number))
        verdicts[found.verdict] += 1
        if found.fault:
            faults.append(f"seed {SEED} world {number}: {found.fault}")
    assert not faults, "\n".join(faults)
    assert verdicts["started"] > 0.2 * WORLDS


def test_a_world_is_made_again_from_its_number_and_copies_do_not_share_a_name() -> None:
    assert make_world(SEED, 7) == make_world(SEED, 7)
    one, other = (
        {(path_of(each), each["metadata"]["name"]) for each in make_world(SEED, 7).marked(mark)}
        for mark in ("x", "y")
    )
    assert not one & other
