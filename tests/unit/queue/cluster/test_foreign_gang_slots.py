"""What the slots of a released gang of another project are for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.builders import PodBuilder
from support.gang_builders import pod_builder, read_object
from support.memory_api import MemoryApi
from support.queue_builders import EPOCH, a_pod, a_workload, around

from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.cluster.foreign_gang_slots import ForeignGangSlots
from fluxqueue.queue.cluster.gang_objects import Lookup, Readable
from fluxqueue.queue.intake.describe import describe_group
from fluxqueue.queue.model.groups import GroupKey
from fluxqueue.queue.model.sources.gathering import GangPods, gather_gang_of_source
from fluxqueue.queue.model.sources.mpijobs import MPI_JOBS

KEY = GroupKey("default", "pi", "MPIJob", "mpijob")


def worker(name: str) -> PodBuilder:
    return pod_builder(name, {"training.kubeflow.org/job-role": "worker"}).owned_by(
        "MPIJob", "pi", api_version="kubeflow.org/v2beta1"
    )


def mpijob(**metadata: Any) -> Any:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]}}
    replicas = {"Launcher": {"template": template}, "Worker": {"replicas": 1, "template": template}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas}
    return read_object(MPI_JOBS, spec, **{"name": "pi", **metadata})


class Bench:
    """Caches with the workers of an MPIJob, and what is known of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lookup: Lookup, *pods: PodBuilder) -> None:
        self.caches = Caches(MemoryApi().api)
        for pod in pods:
            self.caches.pods.apply(a_pod(pod, uid=pod.build()["metadata"]["name"]))
        monkeypatch.setattr(self.caches.gang_objects, "find", lambda *_args: lookup)
        self.slots = ForeignGangSlots(self.caches)


def row_of(bench: Bench) -> Any:
    group = gather_gang_of_source(
        GangPods(MPI_JOBS, "MPIJob default/pi", bench.caches.pods.list()), mpijob(), None, EPOCH
    )
    assert group is not None
    return a_workload("pi", jobspec=describe_group(KEY, group, around()).jobspec)


def test_a_slot_is_kept_for_the_launcher_until_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, Lookup(Readable.YES, mpijob()), worker("w0"))
    row = row_of(bench)
    labels = bench.slots.later_slot_labels(row, KEY)
    assert labels is not None
    assert sorted(labels.values()) == [1]


def test_nothing_is_known_before_the_first_list_and_nothing_is_kept_for_an_object_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        Bench(monkeypatch, Lookup(Readable.NOT_YET), worker("w0")).slots.later_slot_labels(a_workload(), KEY)
        is None
    )
    assert (
        Bench(monkeypatch, Lookup(Readable.YES), worker("w0")).slots.later_slot_labels(a_workload(), KEY)
        == Counter()
    )


@pytest.mark.parametrize(
    ("lookup", "ended"),
    [
        pytest.param(Lookup(Readable.YES, mpijob()), False, id="it exists"),
        pytest.param(
            Lookup(Readable.YES, mpijob(deletionTimestamp="2026-01-01T00:00:00Z")),
            True,
            id="it is being deleted",
        ),
        pytest.param(Lookup(Readable.YES), True, id="it is gone"),
        pytest.param(Lookup(Readable.YES, None, "unreadable"), False, id="it does not fit"),
        pytest.param(Lookup(Readable.NOT_YET), False, id="it is not known yet"),
    ],
)
def test_no_pod_follows_once_its_object_is_gone(
    monkeypatch: pytest.MonkeyPatch, lookup: Lookup, ended: bool
) -> None:
    assert Bench(monkeypatch, lookup, worker("w0")).slots.ended(KEY) is ended


def test_a_gang_whose_object_is_unknown_gets_slots_in_the_order_of_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, Lookup(Readable.NOT_YET), worker("b"), worker("a"))
    pods = bench.caches.pods.list()
    assert [pod.metadata.name for pod in sorted(pods, key=bench.slots.order(KEY, pods))] == ["a", "b"]
