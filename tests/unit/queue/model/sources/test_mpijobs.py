"""MPIJobs of the MPI Operator."""

from __future__ import annotations

from typing import Any

import pytest
from support.builders import PodBuilder, make_job
from support.gang_builders import gather, pod_builder, pods_of, read_object
from support.queue_builders import a_job

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of, group_of_job
from fluxqueue.queue.model.sources.gang_sources import InvalidGang
from fluxqueue.queue.model.sources.mpijobs import MPI_JOBS

KEY = GroupKey("default", "pi", "MPIJob", "mpijob")
LABELS = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "pi"}
LAUNCHER_JOB = make_job("pi-launcher").owned_by("MPIJob", "pi", api_version="kubeflow.org/v2beta1")


def worker(index: int) -> PodBuilder:
    builder = pod_builder(f"pi-worker-{index}", LABELS | {"training.kubeflow.org/job-role": "worker"})
    return builder.owned_by("MPIJob", "pi", api_version="kubeflow.org/v2beta1")


def launcher() -> PodBuilder:
    return pod_builder("pi-launcher-x", LABELS | {"training.kubeflow.org/job-role": "launcher"}).owned_by(
        "Job", "pi-launcher"
    )


def mpijob(workers: Any = 2, **spec: Any) -> Any:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    replicas = {
        "Launcher": {"replicas": 1, "template": template},
        "Worker": {"replicas": workers, "template": template},
    }
    return read_object(MPI_JOBS, {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas, **spec}, name="pi")


def test_workers_and_launcher_are_one_gang() -> None:
    (first, last) = pods_of(worker(0), launcher())
    assert group_of(first) == group_of(last) == KEY
    job = a_job(LAUNCHER_JOB)
    assert group_of(last, job) == group_of_job(job) == KEY


def test_the_pod_of_a_job_that_no_mpijob_controls_is_the_jobs() -> None:
    (pod,) = pods_of(launcher())
    plain = a_job(make_job("pi-launcher"))
    assert (group_of(pod, plain), group_of_job(plain)) == (None, None)


def test_nothing_starts_before_the_launcher_and_all_workers_are_there() -> None:
    for missing in (pods_of(worker(0), worker(1)), pods_of(launcher(), worker(0))):
        found = gather(MPI_JOBS, missing, mpijob())
        assert found is not None
        assert (found.reason, found.message) == (
            Reason.WAITING_FOR_GROUP,
            "MPIJob default/x has 2 of 3 pods: it can start when all are there",
        )
    whole = gather(MPI_JOBS, pods_of(launcher(), worker(0), worker(1)), mpijob())
    assert whole is not None
    assert (whole.reason, whole.size) == (Reason.NONE, 3)


def test_a_launcher_that_waits_for_its_workers_gets_a_slot_with_them() -> None:
    found = gather(
        MPI_JOBS, pods_of(worker(0), worker(1)), mpijob(launcherCreationPolicy="WaitForWorkersReady")
    )
    assert found is not None
    assert (found.reason, found.size, [each.pods for each in found.later_pods]) == (Reason.NONE, 3, [1])


def test_a_stated_minimum_counts() -> None:
    owner = mpijob(4, runPolicy={"schedulingPolicy": {"minAvailable": 3}})
    found = gather(MPI_JOBS, pods_of(launcher(), *(worker(number) for number in range(4))), owner)
    assert found is not None
    assert (found.size, len(found.excess)) == (3, 2)


def test_a_nonsense_number_names_its_field() -> None:
    with pytest.raises(InvalidGang, match=r"spec\.mpiReplicaSpecs\.Worker\.replicas is -1"):
        MPI_JOBS.read((), mpijob(-1))


def test_a_suspended_mpijob_creates_no_pods() -> None:
    assert not MPI_JOBS.read((), mpijob(runPolicy={"suspend": True})).active
