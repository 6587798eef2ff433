"""Which FluxJobs belong to the object a person names."""

import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, ObjectRef
from fluxqueue.api.objects import ObjectMeta, OwnerReference
from fluxqueue.cli.lookup import of_owner


def fluxjob(kind: str, name: str, uid: str, *owners: str) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(owner_references=[OwnerReference(kind="Pod", uid=owner) for owner in owners]),
        spec=FluxJobSpec(object_ref=ObjectRef(kind=kind, name=name, uid=uid)),
    )


@pytest.mark.parametrize(
    ("job", "belongs"),
    [
        pytest.param(fluxjob("Pod", "ring-0", "p0", "p0"), True, id="one of its pods"),
        pytest.param(fluxjob("Pod", "other-0", "p9", "p9"), False, id="a pod of another"),
        pytest.param(fluxjob("PodGroup", "mpi", "group-p9", "p9", "p1"), True, id="a group with one of its pods"),
        pytest.param(fluxjob("StatefulSet", "ring", "group-p7"), True, id="itself as a gang whose first pod is gone"),
        pytest.param(fluxjob("Deployment", "ring", "group-p7"), False, id="another kind of its name"),
    ],
)
def test_a_fluxjob_is_of_an_owner_by_its_pods_or_by_its_name(job: FluxJob, belongs: bool) -> None:
    assert of_owner(job, "statefulsets", "ring", {"p0", "p1"}) is belongs
