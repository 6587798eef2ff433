"""Which pods on a node are the queue's before their slots are stored, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import make_pod
from support.queue_builders import a_pod, a_workload, an_allocation
from support.recording_ledger import RecordingLedger

from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.foreign_pods import ForeignPods
from fluxqueue.queue.model.records import Allocation, Workload


class Bench:
    """Jobs of one pod each, on one node."""

    def __init__(self, *names: str) -> None:
        self.rows = [a_workload(name, uid=f"uid-of-{name}", state=State.RUNNING, jobid=jobid) for jobid, name in enumerate(names, 1)]
        self.ledger = RecordingLedger(*((row, replace(an_allocation(["n0"], jobid=row.jobid or 0), workload=row.id)) for row in self.rows))
        self.pods: ObjectCache[Pod] = ObjectCache()
        self.foreign = ForeignPods(self.pods, self.ledger)

    def put(self, row: Workload, name: str = "", jobid: int | None = None) -> None:
        name = name or f"{row.name}-0"
        pod = make_pod(name).owned_by("Job", row.name).on_node("n0").cpu("100m")
        self.pods.apply(a_pod(pod.annotation("fluxqueue/allocation", str(jobid or row.jobid)), uid=name))


def test_pods_whose_slots_are_not_stored_yet_are_the_queues() -> None:
    bench = Bench("a", "b")
    for row in bench.rows:
        bench.put(row)
    assert bench.foreign.take_changed() == set()


def test_a_second_pod_beside_the_one_slot_of_its_job_is_foreign() -> None:
    bench = Bench("a", "b")
    bench.put(bench.rows[0])
    bench.put(bench.rows[0], "a-1")
    assert bench.foreign.take_changed() == {"n0"}


def test_a_pod_that_names_the_allocation_of_another_job_is_foreign() -> None:
    bench = Bench("a", "b")
    bench.put(bench.rows[0], jobid=bench.rows[1].jobid)
    assert bench.foreign.take_changed() == {"n0"}


def test_a_new_pod_is_compared_with_those_of_its_own_allocation_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(*"abcdefgh")
    compared: list[str] = []
    held_by = bench.foreign._held_by

    def note(pod: Pod) -> Allocation | None:
        compared.append(pod.metadata.name)
        return held_by(pod)

    monkeypatch.setattr(bench.foreign, "_held_by", note)
    for row in bench.rows:
        bench.put(row)
    assert set(compared) == {f"{name}-0" for name in "abcdefgh"}
    assert len(compared) == 2 * len(bench.rows)
