import pytest

from fluxqueue.api import names
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.arrays import TaskArray
from fluxqueue.cli.submissions import Submission, job_manifest, job_name


def test_nodes_are_pods_on_different_nodes() -> None:
    job = job_manifest(Submission("x", nodes=4), "science")
    assert (job["spec"]["parallelism"], job["spec"]["completions"], job["spec"]["completionMode"]) == (
        4,
        4,
        "Indexed",
    )
    assert job["metadata"]["annotations"] == {names.PODS_PER_NODE_ANNOTATION: "1"}
    assert job["metadata"]["namespace"] == "science"


@pytest.mark.parametrize(("nodes", "pods", "per_node"), [(4, 8, "2"), (None, 8, None)])
def test_pods_are_divided_among_nodes(nodes: int | None, pods: int, per_node: str | None) -> None:
    annotations = job_manifest(Submission("x", nodes=nodes, pods=pods), "d")["metadata"].get(
        "annotations", {}
    )
    assert annotations.get(names.PODS_PER_NODE_ANNOTATION) == per_node


@pytest.mark.parametrize(
    ("nodes", "pods", "remedy"),
    [(4, 2, "--pods 4"), (2, 5, "--pods 4 or --pods 6"), (4, 9, "--pods 8 or --pods 12")],
)
def test_pods_that_cannot_be_divided_among_the_nodes_are_refused(nodes: int, pods: int, remedy: str) -> None:
    with pytest.raises(
        ClusterError,
        match=rf"{pods} pods \(--pods\) cannot be divided among {nodes} nodes \(-N\).*ask for {remedy}, or",
    ):
        job_manifest(Submission("x", nodes=nodes, pods=pods), "d")


def test_an_array_with_a_limit_runs_so_many_tasks_at_once_for_all_its_rounds() -> None:
    annotations = {names.DURATION_ANNOTATION: "30m"}
    job = job_manifest(Submission("x", array=TaskArray(100, 10), annotations=annotations), "d")
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["completionMode"]) == (
        100,
        10,
        "Indexed",
    )
    assert job["metadata"]["annotations"] == {names.DURATION_ANNOTATION: "18000s"}


def test_an_array_without_a_limit_starts_with_what_there_is_room_for() -> None:
    job = job_manifest(Submission("x", array=TaskArray(100)), "d")
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (100, 100)
    assert job["metadata"]["annotations"] == {names.MIN_PODS_ANNOTATION: "1"}


@pytest.mark.parametrize(
    "asked", [Submission("x", array=TaskArray(4), nodes=2), Submission("x", array=TaskArray(4), pods=2)]
)
def test_the_tasks_of_an_array_have_no_nodes_in_common(asked: Submission) -> None:
    with pytest.raises(ClusterError, match="leave -N and --pods out"):
        job_manifest(asked, "d")


def test_memory_and_devices_have_limits_and_cpu_has_none() -> None:
    (container,) = job_manifest(
        Submission("x", cpu="8", memory="4Gi", gpus=2, gpu_resource="amd.com/gpu"), "d"
    )["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "8", "memory": "4Gi", "amd.com/gpu": "2"},
        "limits": {"memory": "4Gi", "amd.com/gpu": "2"},
    }
    assert "command" not in container


def test_everything_else_has_its_place() -> None:
    asked = Submission(
        "x",
        ("a", "b"),
        name="solve",
        labels={"k": "v"},
        environment={"A": "1"},
        retries=3,
        service_account="robot",
        keep_s=60,
    )
    job = job_manifest(asked, "d")
    pod = job["spec"]["template"]["spec"]
    assert job["metadata"] == {"name": "solve", "namespace": "d", "labels": {"k": "v"}}
    assert (job["spec"]["backoffLimit"], job["spec"]["ttlSecondsAfterFinished"]) == (3, 60)
    assert (pod["serviceAccountName"], pod["containers"][0]["command"]) == ("robot", ["a", "b"])
    assert pod["containers"][0]["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("text", "name"),
    [("My_Solver.v2", "my-solver-v2"), ("---", "job"), ("x" * 90, "x" * 57), ("a" * 56 + "-b", "a" * 56)],
)
def test_any_text_becomes_the_beginning_of_a_name(text: str, name: str) -> None:
    assert job_name(text) == name
