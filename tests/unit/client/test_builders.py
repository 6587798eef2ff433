from __future__ import annotations

from typing import Any

import pytest

from fluxqueue.client import InvalidWork, Job, MiniCluster, Pod, PodGroup


def test_a_job_of_several_pods_is_indexed_and_complete() -> None:
    made = Job(
        name="solver",
        image="solver",
        command=["run", "x y"],
        pods=4,
        cpu=2,
        memory="4Gi",
        gpus=1,
        env={"A": "1"},
        ttl_s=60,
    ).manifest()
    spec = made["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"], spec["backoffLimit"]) == (
        4,
        4,
        "Indexed",
        0,
    )
    assert spec["ttlSecondsAfterFinished"] == 60
    assert spec["template"]["spec"]["containers"] == [
        {
            "name": "main",
            "image": "solver",
            "command": ["run", "x y"],
            "env": [{"name": "A", "value": "1"}],
            "resources": {
                "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
                "limits": {"nvidia.com/gpu": "1"},
            },
        }
    ]


def test_more_fields_of_the_pods_are_merged() -> None:
    made = Job(
        name="j-",
        image="i",
        pod={"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "side", "image": "s"}]},
    ).manifest()
    assert made["metadata"] == {"generateName": "j-"}
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert [each["name"] for each in made["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    assert "completionMode" not in made["spec"]


def test_the_pods_of_a_group_know_its_size_and_their_number() -> None:
    made = PodGroup(name="mesh", image="mpi", pods=2, labels={"team": "a"}).manifests()
    assert [pod["metadata"]["name"] for pod in made] == ["mesh-0", "mesh-1"]
    assert made[1]["metadata"]["labels"] == {"team": "a", "fluxqueue/pod-group": "mesh"}
    assert made[1]["metadata"]["annotations"] == {"fluxqueue/pod-group-size": "2"}
    assert made[1]["spec"]["containers"][0]["env"] == [{"name": "POD_GROUP_INDEX", "value": "1"}]


def test_a_minicluster_has_its_command_as_one_line() -> None:
    made = MiniCluster(
        name="flux",
        image="i",
        command=["echo", "a b"],
        pods=3,
        env={"A": "1"},
        rest=True,
        spec={"maxSize": 5},
    ).manifest()
    assert made["spec"] == {
        "size": 3,
        "tasks": 3,
        "containers": [{"image": "i", "command": "echo 'a b'", "environment": {"A": "1"}}],
        "restful": {"enabled": True},
        "maxSize": 5,
    }


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (Job(name="", image="i"), "Job: give it a name"),
        (Job(name="j", image="i", command="run it"), r"command is one text: write a list"),
        (Job(name="j", image="i", pods=0), "pods is 0"),
        (Job(name="j", image="i", gpus=-1), "gpus is -1"),
        (Job(name="j", image="i", pods=3, completions=2), "completions is 2, fewer than the 3 pods"),
        (Pod(name="p", image="i", pods=2), "use PodGroup"),
        (MiniCluster(name="m-", image="i"), "write the name out"),
        (
            Job(name="j", image="i", memory="512"),
            "Job j: memory: '512' of memory is less than 1Mi, in which nothing runs: write 512Mi",
        ),
        (Job(name="j", image="i", memory=512), "less than 1Mi"),
        (Pod(name="p", image="i", cpu="many"), "Pod p: cpu: 'many' is no amount: write 4, 500m or 16Gi"),
        (
            Job(name="My_Solver", image="i"),
            "Job: name: 'My_Solver' is no name that Kubernetes takes: write my-solver",
        ),
        (Job(name="Solver-", image="i"), "name: 'Solver' is no name"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_remedy(work: Any, sentence: str) -> None:
    with pytest.raises(InvalidWork, match=sentence):
        work.manifest()


def test_a_group_needs_a_whole_name() -> None:
    with pytest.raises(InvalidWork, match="write it out"):
        PodGroup(name="g-", image="i").manifests()
