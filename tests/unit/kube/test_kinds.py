import pytest

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.kinds import FLUXJOBS, JOBS, NODES, PODS


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="core group, all namespaces"),
        pytest.param(JOBS.path("a"), "/apis/batch/v1/namespaces/a/jobs", id="one namespace"),
        pytest.param(
            JOBS.path("a", "b", "status"), "/apis/batch/v1/namespaces/a/jobs/b/status", id="subresource"
        ),
        pytest.param(NODES.path(None, "n1"), "/api/v1/nodes/n1", id="cluster scoped"),
        pytest.param(
            FLUXJOBS.path("a", "b"),
            "/apis/jobs.converged-computing.org/v1alpha1/namespaces/a/fluxjobs/b",
            id="custom resource",
        ),
        pytest.param(
            PODS.path("a", "../secrets/b"),
            "/api/v1/namespaces/a/pods/..%2Fsecrets%2Fb",
            id="a name cannot leave its place",
        ),
    ],
)
def test_paths_are_those_of_the_api(path: str, expected: str) -> None:
    assert path == expected


def test_refuses_pieces_that_make_no_path() -> None:
    with pytest.raises(ValueError, match="cluster scoped"):
        NODES.path("a", "n1")
    with pytest.raises(ValueError, match="lives in a namespace"):
        JOBS.path(None, "b")
    with pytest.raises(ValueError, match="no empty name"):
        JOBS.path("a", "")
    with pytest.raises(ValueError, match="give its name"):
        JOBS.path("a", None, "status")


def test_an_owner_reference_names_kind_and_uid() -> None:
    job = Job(metadata=ObjectMeta(name="lammps", namespace="a", uid="u1"))
    assert JOBS.reference(job) == {"apiVersion": "batch/v1", "kind": "Job", "name": "lammps", "uid": "u1"}
    assert JOBS.reference(job, controller=True)["controller"] is True
