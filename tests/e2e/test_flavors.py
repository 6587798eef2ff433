"""A queue with flavors: its work uses the next kind of nodes when it has waited for it, on the whole control
plane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage
from support.preempting_queue import FOREVER, RUN_SECONDS

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State

WAIT_S = 8
NODES = {"node-1": "reserved", "node-2": "spot", "node-3": "spot"}
MAY_USE = "it may use flavor 'spot' too from"
WITHDRAWN = "example.com/withdrawn"


class Queue:
    """A FluxQueue whose work runs on the nodes of two flavors."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.name = f"flavors-{stage.namespace}"

    def put(self, spot_s: int) -> None:
        flavors = [
            {"name": name, "nodeSelector": {"capacity": name}, "waitSeconds": wait_s}
            for name, wait_s in (("reserved", 0), ("spot", spot_s))
        ]
        thing = make_queue(self.name, policy="easy", flavors=flavors)
        self._stage.kubectl("apply", "-f", "-", stdin=json.dumps(thing))

    def submit(self, name: str) -> None:
        made: JobBuilder = make_job(name).indexed(1).cpu("8").label(names.QUEUE_LABEL, self.name)
        self._stage.apply(made.pod_annotation(RUN_SECONDS, FOREVER).build())

    def runs_on(self, name: str) -> str:
        """Wait until a Job runs, and return its node."""
        return self._stage.until_state(name, State.RUNNING).hosts[0]

    def message(self, name: str) -> str:
        shown = self._stage.row(name).fluxjob
        return shown.status.message if shown is not None else ""


@pytest.fixture
def queue(stage: Stage) -> Iterator[Queue]:
    for node, flavor in NODES.items():
        stage.kubectl("label", "node", node, f"capacity={flavor}")
    made = Queue(stage)
    yield made
    stage.kubectl("taint", "node", "node-2", f"{WITHDRAWN}-", check=False)
    stage.kubectl("delete", "job", "--all", "--wait=false")
    stage.kubectl("delete", "fluxqueue", made.name, "--ignore-not-found")
    stage.kubectl("label", "nodes", "--all", "capacity-")


def waits(stage: Stage, name: str) -> bool:
    return stage.row(name).state == State.PENDING


def waited(stage: Stage, name: str) -> timedelta:
    """Return how long a Job waited for its nodes; the times are in whole seconds."""
    shown = stage.row(name).fluxjob
    assert shown is not None
    allocated, submitted = (
        datetime.fromisoformat(at or "") for at in (shown.status.allocated_at, shown.status.submitted_at)
    )
    return allocated - submitted


def test_work_uses_the_next_flavor_when_it_has_waited_for_it(stage: Stage, queue: Queue) -> None:
    queue.put(WAIT_S)
    queue.submit("first")
    assert queue.runs_on("first") == "node-1"
    queue.submit("second")
    stage.until("it is told what comes next", lambda: MAY_USE in queue.message("second"))
    assert MAY_USE in str(stage.plugin("explain", "job/second").stdout)
    assert queue.runs_on("second") == "node-2"
    assert waited(stage, "second") >= timedelta(seconds=WAIT_S)
    queue.put(3_600)
    queue.submit("third")
    stage.until("it is told what comes next", lambda: MAY_USE in queue.message("third"))
    queue.put(1)
    assert queue.runs_on("third") == "node-3"
    stage.until_consistent()


def test_work_of_a_withdrawn_node_restarts_elsewhere_first_in_line(stage: Stage, queue: Queue) -> None:
    queue.put(1)
    for name, node in (("own", "node-1"), ("victim", "node-2"), ("other", "node-3")):
        queue.submit(name)
        assert queue.runs_on(name) == node
    queue.submit("later")
    stage.until("its flavors are open", lambda: (told := queue.message("later")) and MAY_USE not in told)
    stage.kubectl("taint", "node", "node-2", f"{WITHDRAWN}:NoExecute")
    stage.until("the work of the node waits again", lambda: waits(stage, "victim"))
    stage.kubectl("delete", "job", "other")
    assert queue.runs_on("victim") == "node-3"
    assert waits(stage, "later")
    stage.until_consistent()
