"""Small work that is moved so that wide work starts, on the whole control plane."""

from __future__ import annotations

import json

from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage
from support.preempting_queue import FOREVER, RUN_SECONDS

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State


def test_a_small_job_is_moved_for_a_wide_one_and_restarts(stage: Stage) -> None:
    queue = f"moves-{stage.namespace}"
    rules = {"policy": "easy", "consolidation": {"enabled": True}}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(queue, **rules)))

    def job(name: str, nodes: int, cores: str, seconds: str = FOREVER) -> JobBuilder:
        made = make_job(name).indexed(nodes).cpu(cores).label(names.QUEUE_LABEL, queue)
        return made.pod_annotation(RUN_SECONDS, seconds)

    def explained(name: str) -> str:
        return str(stage.plugin("explain", f"job/{name}").stdout)

    try:
        for name, nodes, cores in (
            ("wide", 6, "8"),
            ("small-0", 1, "3"),
            ("filler", 1, "5"),
            ("small-1", 1, "3"),
        ):
            stage.apply(job(name, nodes, cores).build())
            stage.until_state(name, State.RUNNING)
        stage.kubectl("delete", "job", "filler")
        stage.apply(job("first", 1, "8").build())
        stage.until_state("first", State.RUNNING)
        for name in ("small-0", "small-1"):
            stage.until_state(name, State.RUNNING)
        stage.until("it is told what it came to", lambda: "in fact" in explained("first"))
        assert "1 workload moved or gave pods back" in explained("first")
        moved = explained("small-0") + explained("small-1")
        assert f"is moved so that Job {stage.namespace}/first starts sooner on 1 node" in moved
        stage.until_consistent()
    finally:
        stage.kubectl("delete", "fluxqueue", queue)
