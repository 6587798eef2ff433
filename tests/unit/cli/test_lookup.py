"""Which FluxJobs belong to the object a person names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, fluxjob_name
from fluxqueue.api.metadata import ObjectMeta, OwnerReference
from fluxqueue.api.pods import Pod
from fluxqueue.cli import lookup
from fluxqueue.cli.api_client import ApiClient, ClusterError, ObjectNotFound
from fluxqueue.cli.lookup import fluxjobs_of, is_of_gang, of_owner
from fluxqueue.client import async_workloads
from fluxqueue.queue.status import fluxjob_pace


def fluxjob(kind: str, name: str, uid: str, *owners: str) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(owner_references=[OwnerReference(kind="Pod", uid=owner) for owner in owners]),
        spec=FluxJobSpec(object_ref=ObjectRef(kind=kind, name=name, uid=uid)),
    )


def allocated(job: FluxJob, jobid: int) -> FluxJob:
    return msgspec.structs.replace(job, status=FluxJobStatus(jobid=jobid))


@pytest.mark.parametrize(
    ("job", "belongs"),
    [
        pytest.param(fluxjob("Pod", "ring-0", "p0", "p0"), True, id="one of its pods"),
        pytest.param(fluxjob("Pod", "other-0", "p9", "p9"), False, id="a pod of another"),
        pytest.param(
            fluxjob("PodGroup", "mpi", "group-p9", "p9", "p1"), True, id="a group with one of its pods"
        ),
        pytest.param(
            fluxjob("StatefulSet", "ring", "group-p7"), True, id="itself as a gang whose first pod is gone"
        ),
        pytest.param(fluxjob("Deployment", "ring", "group-p7"), False, id="another kind of its name"),
    ],
)
def test_a_fluxjob_is_of_an_owner_by_its_pods_or_by_its_name(job: FluxJob, belongs: bool) -> None:
    assert of_owner(job, "statefulsets", "ring", {"p0", "p1"}) is belongs


@pytest.mark.parametrize("name", ["", "job/", "fluxjob/"])
def test_an_empty_name_is_refused_before_any_request(name: str) -> None:
    with pytest.raises(ClusterError, match="has no name: write lammps, or job/lammps"):
        fluxjobs_of(cast(ApiClient, None), "default", name)


class OneJob:
    """An API server that has one Job, and its FluxJob from some read of it on."""

    def __init__(
        self, age: timedelta, labels: dict[str, str], shown_at: int = 10**9, owner: str = ""
    ) -> None:
        self._hidden_reads = shown_at
        self._meta: dict[str, object] = {
            "name": "lammps",
            "uid": "u1",
            "labels": labels,
            "creationTimestamp": f"{datetime.now(UTC) - age:%Y-%m-%dT%H:%M:%SZ}",
        }
        if owner:
            self._meta["ownerReferences"] = [
                {"kind": owner, "name": "lammps", "uid": "u0", "controller": True}
            ]

    def get(self, path: str, *_query: Any, **_accept: Any) -> bytes:
        """Answer a read."""
        if path.endswith("/jobs/lammps"):
            return json.dumps({"metadata": self._meta}).encode()
        if path.endswith(f"/{names.FLUXJOBS}/{fluxjob_name('Job', 'lammps', 'u1')}"):
            self._hidden_reads -= 1
            if self._hidden_reads <= 0:
                return json.dumps(
                    {"metadata": {}, "spec": {"objectRef": {"kind": "Job", "name": "lammps", "uid": "u1"}}}
                ).encode()
        if path.endswith(f"/{names.FLUXJOBS}"):
            return json.dumps({"metadata": {}, "items": []}).encode()
        raise ObjectNotFound(404, "NotFound", path)


@pytest.mark.parametrize(
    ("age", "labels", "sentence"),
    [
        pytest.param(
            timedelta(seconds=1),
            {names.SEEN_LABEL: "yes"},
            "job/lammps has no FluxJob yet: .* Repeat the command",
            id="new",
        ),
        pytest.param(
            timedelta(seconds=70),
            {names.SEEN_LABEL: "yes"},
            "job/lammps has no FluxJob yet: ",
            id="in a burst",
        ),
        pytest.param(timedelta(hours=1), {names.SEEN_LABEL: "yes"}, "no FluxJob belongs to it", id="old"),
        pytest.param(timedelta(seconds=1), {}, "no FluxJob belongs to it", id="outside the queue"),
    ],
)
def test_a_new_object_is_told_from_one_outside_the_queue(
    monkeypatch: pytest.MonkeyPatch, age: timedelta, labels: dict[str, str], sentence: str
) -> None:
    monkeypatch.setattr(lookup, "_WAIT_S", 0.0)
    with pytest.raises(ClusterError, match=sentence):
        fluxjobs_of(cast("ApiClient", OneJob(age, labels)), "default", "job/lammps")


def test_commands_and_the_client_wait_longer_than_a_burst_keeps_fluxjobs_back() -> None:
    assert min(lookup._WAIT_S, async_workloads._SHOWN_WITHIN_S) > fluxjob_pace._STARTED_BUSY_S
    assert lookup._SHOWN_WITHIN.total_seconds() > lookup._WAIT_S


def test_the_fluxjob_of_a_new_object_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_POLL_S", 0.0)
    server = OneJob(timedelta(seconds=1), {names.SEEN_LABEL: "yes"}, shown_at=3)
    (found,) = fluxjobs_of(cast("ApiClient", server), "default", "job/lammps")
    assert found.spec.object_ref.uid == "u1"


@pytest.mark.parametrize("kind", ["minicluster", "mc", "MiniClusters.flux-framework.org"])
def test_a_minicluster_stands_for_its_job(kind: str) -> None:
    server = OneJob(timedelta(hours=1), {}, shown_at=1, owner="MiniCluster")
    (found,) = fluxjobs_of(cast("ApiClient", server), "default", f"{kind}/lammps")
    assert found.spec.object_ref.uid == "u1"


@pytest.mark.parametrize("owner", ["", "CronJob"])
def test_a_job_of_that_name_is_no_minicluster(owner: str) -> None:
    server = OneJob(timedelta(hours=1), {}, shown_at=1, owner=owner)
    with pytest.raises(ClusterError, match="job/lammps belongs to no MiniCluster"):
        fluxjobs_of(cast("ApiClient", server), "default", "minicluster/lammps")


@pytest.mark.parametrize(
    ("labels", "job", "belongs"),
    [
        pytest.param({}, fluxjob("PodGroup", "train", "group-p0", "p0", "p1"), True, id="while it waits"),
        pytest.param({}, fluxjob("PodGroup", "train", "group-p7", "p7"), False, id="another group"),
        pytest.param({}, fluxjob("Job", "train", "u1", "p1"), False, id="a Job"),
        pytest.param(
            {names.JOBID_LABEL: "7"},
            allocated(fluxjob("PodGroup", "train", "group-p0", "p0"), 7),
            True,
            id="a replaced pod",
        ),
        pytest.param(
            {names.JOBID_LABEL: "7"},
            allocated(fluxjob("PodGroup", "train", "group-p1", "p1"), 8),
            False,
            id="a later group",
        ),
    ],
)
def test_a_pod_of_a_group_stands_for_the_group(labels: dict[str, str], job: FluxJob, belongs: bool) -> None:
    assert is_of_gang(Pod(metadata=ObjectMeta(name="train-1", uid="p1", labels=labels)), job) is belongs


def test_a_pod_of_a_group_is_explained_by_its_group() -> None:
    assert (
        fluxjobs_of(cast(ApiClient, OneGroup()), "default", "pod/train-server")[0].spec.object_ref.name
        == "train"
    )


class OneGroup:
    """An API server that has one pod, and the FluxJob of its group."""

    def get(self, path: str, *_query: Any, **_accept: Any) -> bytes:
        group = {
            "metadata": {
                "name": "podgroup-train-1",
                "namespace": "default",
                "ownerReferences": [{"kind": "Pod", "uid": "p1"}],
            },
            "spec": {"objectRef": {"kind": "PodGroup", "name": "train", "uid": "group-p1"}},
        }
        if path.endswith("/pods/train-server"):
            return json.dumps(
                {"metadata": {"name": "train-server", "namespace": "default", "uid": "p1"}}
            ).encode()
        if path.endswith("/fluxjobs"):
            return json.dumps({"metadata": {}, "items": [group]}).encode()
        raise ObjectNotFound(404, "NotFound", path)
