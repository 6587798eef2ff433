"""`fluxqueue simulate --from-cluster` and the queue expect the same of the same work."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from support.builders import make_job
from support.end_to_end import Stage
from support.statement_pictures import seconds_at

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.simulator.main import main

_LINE = r"^{namespace}/(?P<name>\S+) +in (?P<minutes>\d+) min$"
_ROUNDING = timedelta(seconds=60)
"""The table has whole minutes, from the moment at which it is made."""
_APART = timedelta(minutes=3)
"""The work that runs was not started at the same time."""


def apply(stage: Stage, name: str, nodes: int, minutes: int) -> None:
    """Apply a Job of whole nodes that runs until it is deleted."""
    job = make_job(name).cpu("8").indexed(nodes).annotation(names.DURATION_ANNOTATION, f"{minutes}m")
    stage.apply(job.pod_annotation("fluxqueue.local/run-seconds", "forever").build())


def test_the_simulator_and_the_queue_give_the_same_times(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, minutes in (("short", 30), ("long", 60)):
        apply(stage, name, 4, minutes)
        stage.until_state(name, State.RUNNING)
    apply(stage, "all", 8, 10)
    # so the next one is submitted in another second, which FluxJobs tell
    stage.until("it has an estimate", lambda: "all" in shown(stage))
    apply(stage, "again", 8, 10)
    apply(stage, "beside", 4, 15)
    expected = {"all": 60, "again": 70, "beside": 30}

    def agree() -> bool:
        plan, queue = forecast(stage, capsys), shown(stage)
        known = plan.keys() & queue.keys()
        return known == expected.keys() and all(abs(plan[name] - queue[name]) < _ROUNDING for name in known)

    stage.until("both have planned it alike", agree, said=lambda: (forecast(stage, capsys), shown(stage)))
    running = stage.row("long").fluxjob
    began = seconds_at(running.status.allocated_at) if running is not None else None
    assert began is not None
    wrong = {
        name: at
        for name, at in shown(stage).items()
        if abs(at - began - timedelta(minutes=expected[name])) > _APART
    }
    assert wrong == {}


def shown(stage: Stage) -> dict[str, datetime]:
    """Return the estimates of the queue, by name."""
    rows = ((row.example.name, row.fluxjob) for row in stage.rows())
    return {
        name: eta for name, job in rows if job is not None and (eta := seconds_at(job.status.eta)) is not None
    }


def forecast(stage: Stage, capsys: pytest.CaptureFixture[str]) -> dict[str, datetime]:
    """Return the starts that the simulator expects, by name."""
    now = datetime.now(UTC)
    assert main(["--from-cluster", "--kubeconfig", str(stage.cluster.kubeconfig)]) == 0
    lines = re.finditer(_LINE.format(namespace=stage.namespace), capsys.readouterr().out, re.MULTILINE)
    return {line["name"]: now + timedelta(minutes=int(line["minutes"])) for line in lines}
