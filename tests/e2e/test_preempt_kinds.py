"""Work of every kind is preempted, on the whole control plane:
it frees its nodes, comes back if its owner creates it again, or says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from support.builders import Json, PodBuilder, make_job, make_owner, make_pod, make_queue
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREVER = "forever"


class Queue:
    """A FluxQueue whose work preempts and is preempted, on a cluster of eight nodes that the victims fill."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.name = f"preempts-{stage.namespace}"
        spec = make_queue(self.name, preemption="lowerPriority")
        stage.kubectl("apply", "-f", "-", stdin=json.dumps(spec))

    def pod(self, name: str) -> PodBuilder:
        pod = make_pod(name).cpu("8").label(names.QUEUE_LABEL, self.name).annotation(RUN_SECONDS, FOREVER)
        return pod.with_("spec.terminationGracePeriodSeconds", 1)

    def owner(self, kind: str, name: str, replicas: int, *, gang: bool = False) -> Json:
        owner = (
            make_owner(kind, name, replicas, podManagementPolicy="Parallel")
            if kind == "StatefulSet"
            else make_owner(kind, name, replicas)
        )
        template = owner["spec"]["template"]
        template["metadata"].setdefault("labels", {})[names.QUEUE_LABEL] = self.name
        template["metadata"]["annotations"] = {
            RUN_SECONDS: FOREVER,
            **({names.GANG_ANNOTATION: "true"} if gang else {}),
        }
        template["spec"]["terminationGracePeriodSeconds"] = 1
        return owner

    def fill(self, nodes: int) -> None:
        """Have a Job of higher priority run on so many nodes."""
        job = (
            make_job("filler")
            .indexed(nodes)
            .cpu("8")
            .label(names.QUEUE_LABEL, self.name)
            .annotation(names.PRIORITY_ANNOTATION, "90")
        )
        self.stage.apply(job.pod_annotation(RUN_SECONDS, FOREVER).build())
        self.stage.until_state("filler", State.RUNNING)

    def urgent(self, nodes: int, seconds: str = FOREVER) -> None:
        job = (
            make_job("urgent")
            .indexed(nodes)
            .cpu("8")
            .label(names.QUEUE_LABEL, self.name)
            .annotation(names.PRIORITY_ANNOTATION, "50")
        )
        self.stage.apply(job.pod_annotation(RUN_SECONDS, seconds).build())

    def fluxjobs(self, kind: str) -> list[FluxJob]:
        found = [each for each in self.stage.fluxjobs() if each.spec.object_ref.kind == kind]
        return sorted(found, key=lambda each: each.spec.object_ref.name)

    def until_all(self, kind: str, state: State, count: int = 1) -> list[FluxJob]:
        def reached() -> list[FluxJob] | None:
            found = [each for each in self.fluxjobs(kind) if each.status.state == state]
            return found if len(found) == count else None

        found = self.stage.until(
            f"{count} {kind} {state}", reached, said=lambda: [each.status for each in self.stage.fluxjobs()]
        )
        assert found is not None
        return found

    def nodes(self, prefix: str) -> set[str]:
        pods = self.stage.items("pods", Pod)
        return {
            pod.spec.node_name
            for pod in pods
            if pod.metadata.name.startswith(prefix) and pod.spec.node_name and not pod.terminal
        }


@pytest.fixture
def queue(stage: Stage) -> Iterator[Queue]:
    made = Queue(stage)
    yield made
    stage.kubectl("delete", "fluxqueue", made.name)


def submitted(fluxjob: FluxJob) -> datetime | str | None:
    return fluxjob.status.submitted_at


def preempted_by_urgent(queue: Queue, prefix: str, nodes: int) -> None:
    """Have the urgent Job start on the nodes of the victim, and end."""
    before = queue.nodes(prefix)
    queue.urgent(nodes, seconds="3")
    queue.stage.until_state("urgent", State.RUNNING, 60)
    assert set(queue.stage.row("urgent").hosts) <= before


def test_a_gang_of_a_statefulset_makes_room_and_comes_back_as_one(stage: Stage, queue: Queue) -> None:
    queue.fill(5)
    stage.apply(queue.owner("StatefulSet", "db", 3, gang=True))
    (first,) = queue.until_all("StatefulSet", State.RUNNING)
    preempted_by_urgent(queue, "db-", 2)
    (again,) = queue.until_all("StatefulSet", State.RUNNING)
    assert (again.spec.object_ref.uid, submitted(again)) == (first.spec.object_ref.uid, submitted(first))
    assert again.status.requeues == 1
    stage.until_consistent()


def test_a_pod_of_a_deployment_makes_room_and_its_replacement_keeps_the_submit_time(
    stage: Stage, queue: Queue
) -> None:
    queue.fill(6)
    stage.apply(queue.owner("Deployment", "web", 2))
    first = queue.until_all("Pod", State.RUNNING, 2)
    preempted_by_urgent(queue, "web-", 1)
    again = queue.until_all("Pod", State.RUNNING, 2)
    assert {submitted(each) for each in again} <= {submitted(each) for each in first}
    stage.until_consistent()


def ended_group(stage: Stage) -> tuple[str, str] | None:
    """Return state and message of a group that has ended, else None; its FluxJob goes with its pods."""
    of_group = "WHERE kind = 'PodGroup' AND namespace = %(namespace)s AND finished_at IS NOT NULL"
    query = (
        f"SELECT state, message FROM fluxqueue.workload {of_group} UNION ALL SELECT state, "
        f"message FROM fluxqueue.history {of_group}"
    )
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        row = connection.execute(query.encode(), {"namespace": stage.namespace}).fetchone()
    return (str(row[0]), str(row[1])) if row is not None else None


def test_a_plain_pod_group_ends_and_says_that_it_is_lost(stage: Stage, queue: Queue) -> None:
    queue.fill(6)
    member = (
        queue.pod("mpi-0")
        .label(names.POD_GROUP_LABEL, "mpi")
        .annotation(names.POD_GROUP_SIZE_ANNOTATION, "2")
    )
    stage.apply_all(member.build(), member.with_("metadata.name", "mpi-1").build())
    queue.until_all("PodGroup", State.RUNNING)
    queue.urgent(2)
    stage.until_state("urgent", State.RUNNING, 60)
    ended = stage.until("the group has ended", lambda: ended_group(stage))
    assert ended is not None
    state, message = ended
    assert state == State.CANCELLED
    assert "nobody created its pods again, so submit it again; PodGroup" in message
    assert "was preempted by Job" in message


def until_allowed(stage: Stage, budget: str, allowed: Callable[[int], bool]) -> None:
    def known() -> bool:
        status: Any = json.loads(stage.kubectl("get", "pdb", budget, "-o", "json").stdout).get("status", {})
        return status.get("expectedPods", 0) > 0 and allowed(status.get("disruptionsAllowed", 0))

    stage.until(f"the budget {budget} is counted", known)


def test_work_that_a_budget_protects_is_spared_and_the_next_makes_room(stage: Stage, queue: Queue) -> None:
    queue.fill(5)
    stage.apply(queue.owner("StatefulSet", "open", 1, gang=True))
    queue.until_all("StatefulSet", State.RUNNING)
    stage.apply(queue.owner("StatefulSet", "guarded", 2, gang=True))
    queue.until_all("StatefulSet", State.RUNNING, 2)
    selector = {"matchLabels": {"app": "guarded"}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
    stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps({**budget, "spec": {"minAvailable": 2, "selector": selector}})
    )
    until_allowed(stage, "guard", lambda allowed: allowed == 0)
    queue.urgent(1)
    stage.until_state("urgent", State.RUNNING, 60)
    assert len(queue.nodes("guarded-")) == 2
    assert queue.nodes("open-") == set()
