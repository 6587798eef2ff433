from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as models

from fluxqueue.client import InvalidWork, Job, MiniCluster, PodGroup
from fluxqueue.client.submissions import MAX_TEXT, submissions

JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec: {template: {}}\n"


def units(work: Any, **terms: Any) -> list[tuple[str, str, str, int]]:
    found = submissions(work, "team", terms)  # type: ignore[arg-type]  # as a caller without types
    return [(unit.kind, unit.namespace, unit.name, len(unit.manifests)) for unit in found]


def test_every_form_of_work_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text(JOB % "a" + "---\n" + JOB % "b" + "---\n")
    assert units(file) == [("Job", "team", "a", 1), ("Job", "team", "b", 1)]
    assert units(JOB % "a") == [("Job", "team", "a", 1)]
    assert units(
        {"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "p", "namespace": "x"}, "spec": {}}]}
    ) == [("Pod", "x", "p", 1)]
    assert units(Job(name="j", image="i")) == [("Job", "team", "j", 1)]
    assert units(PodGroup(name="g", image="i", pods=3)) == [("PodGroup", "team", "g", 3)]
    assert units(MiniCluster(name="m", image="i")) == [("MiniCluster", "team", "m", 1)]


def test_an_object_of_the_kubernetes_package_gets_its_kind_and_terms() -> None:
    template = models.V1PodTemplateSpec(
        spec=models.V1PodSpec(restart_policy="Never", containers=[models.V1Container(name="m", image="i")])
    )
    (unit,) = submissions(
        models.V1Job(metadata=models.V1ObjectMeta(name="k"), spec=models.V1JobSpec(template=template)),
        "team",
        {"queue": "q"},
    )
    (made,) = unit.manifests
    assert (made["apiVersion"], made["kind"]) == ("batch/v1", "Job")
    assert made["metadata"] == {"name": "k", "namespace": "team", "labels": {"fluxqueue/queue": "q"}}
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_all_of_several_workloads_wait_for_what_an_iterator_yields() -> None:
    text = "---\n".join(
        f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{}}}}\n" for name in "ab"
    )
    found = submissions(text, "team", {"after": iter(["ok:job/x", "any:job/y"])})
    assert [unit.manifests[0]["metadata"]["annotations"]["fluxqueue/after"] for unit in found] == [
        "ok:job/x, any:job/y"
    ] * 2


def test_the_status_of_an_object_that_was_read_is_left_out() -> None:
    (unit,) = submissions(
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Failed"}}, "team", {}
    )
    assert "status" not in unit.manifests[0]


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        ("", "there is no object in it"),
        ("a: [", "is no YAML"),
        ("work.yaml", "a file is given as pathlib.Path"),
        (Path("/nowhere/work.yaml"), "cannot be read"),
        (7, "int is no work"),
        ({"kind": "ConfigMap"}, "apply other objects with kubectl"),
        ({"kind": "Job", "spec": {}}, "metadata.name is missing"),
        ({"kind": "Job", "metadata": {"name": "j"}}, "Job j: spec is missing"),
        (
            {"kind": "Job", "apiVersion": "v1", "metadata": {"name": "j"}, "spec": {}},
            "apiVersion is 'v1': write batch/v1",
        ),
        (
            {"kind": "Job", "metadata": {"name": "j", "labels": 3}, "spec": {}},
            "metadata.labels is no mapping",
        ),
        ("x" * (MAX_TEXT + 1), "divide it"),
    ],
)
def test_what_is_no_work_is_refused_before_any_request(work: Any, sentence: str) -> None:
    with pytest.raises(InvalidWork, match=sentence):
        units(work)


def pod(name: str, size: str | None) -> dict[str, Any]:
    annotations = {"fluxqueue/pod-group-size": size} if size else {}
    meta = {"name": name, "labels": {"fluxqueue/pod-group": "g"}, "annotations": annotations}
    return {"kind": "Pod", "metadata": meta, "spec": {}}


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        ([pod("a", "2")], "is 2, but it has 1 pods here"),
        ([pod("a", "2"), pod("b", "3")], "with one value: found 2"),
        ([pod("a", None)], "with one value: found 0"),
        ([pod("a", "many")], "is not the size of a group"),
        (
            [pod("a", "1"), {"kind": "Pod", "metadata": {"name": "x"}, "spec": {}}, pod("b", "1")],
            "put them together",
        ),
    ],
)
def test_an_incomplete_group_is_refused_because_it_would_wait_for_ever(
    pods: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(InvalidWork, match=sentence):
        units({"kind": "List", "items": pods})
