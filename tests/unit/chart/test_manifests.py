"""The manifests for people without Helm are the chart's, and contain nothing that is secret or Helm's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support.chart_rendering import Chart
from support.scripts import load_script

_FOLDER = Path(__file__).resolve().parents[3] / "deploy"
_FILES = ["crds.yaml", "default-queue.yaml", "fluxqueue-scheduler.yaml", "fluxqueue.yaml"]


@pytest.fixture(scope="module")
def render() -> ModuleType:
    return load_script("deploy/render.py")


def _objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((_FOLDER / name).read_text()))


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    """Return every key and value of an object, at every depth."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key), each
            yield from _values(each)
    elif isinstance(value, list):
        for each in value:
            yield from _values(each)


def test_the_manifests_are_a_fresh_rendering_of_the_chart(chart: Chart, render: ModuleType) -> None:
    fresh = render.manifests(chart.helm)
    assert sorted(fresh) == _FILES
    stale = [name for name, text in fresh.items() if (_FOLDER / name).read_text() != text]
    assert not stale, "run `make deploy`: the chart has changed"
    assert fresh == render.manifests(chart.helm), "a rendering contains something random"


@pytest.mark.parametrize("name", _FILES)
def test_a_manifest_contains_no_secret_and_nothing_of_helm(name: str) -> None:
    objects = _objects(name)
    assert "Secret" not in {each["kind"] for each in objects}
    assert "PRIVATE KEY" not in (_FOLDER / name).read_text()
    assert "helm.sh/" not in (_FOLDER / name).read_text()
    assert [
        value for key, value in _values(objects) if key == "app.kubernetes.io/managed-by" and value == "Helm"
    ] == []


@pytest.mark.parametrize("name", ["fluxqueue.yaml", "fluxqueue-scheduler.yaml"])
def test_what_is_in_a_namespace_says_so(name: str) -> None:
    """`kubectl apply` without ``-n`` would put it into the namespace of the person's context."""
    bound = ("ClusterRole", "PriorityClass", "ValidatingAdmission", "MutatingWebhook", "ValidatingWebhook")
    elsewhere = {
        (each["kind"], each["metadata"]["name"])
        for each in _objects(name)
        if not each["kind"].startswith(("Namespace", *bound))
        and each["metadata"].get("namespace") != "fluxqueue-system"
    }
    assert elsewhere == set()


def test_each_object_is_in_the_file_of_its_step() -> None:
    kinds = {name: {each["kind"] for each in _objects(name)} for name in _FILES}
    assert kinds["crds.yaml"] == {"CustomResourceDefinition"}
    assert kinds["default-queue.yaml"] == {"FluxQueue"}
    assert not kinds["fluxqueue.yaml"] & (kinds["crds.yaml"] | kinds["default-queue.yaml"])
    assert next(each["kind"] for each in _objects("fluxqueue.yaml")) == "Namespace"


def test_the_scheduler_s_file_after_the_other_is_the_chart_with_the_scheduler(
    chart: Chart, render: ModuleType
) -> None:
    applied = {
        (each["kind"], each["metadata"]["name"]): each
        for name in _FILES
        if name != "fluxqueue-scheduler.yaml"
        for each in _objects(name)
    }
    applied |= {
        (each["kind"], each["metadata"]["name"]): each for each in _objects("fluxqueue-scheduler.yaml")
    }
    del applied["Namespace", "fluxqueue-system"]
    wanted = render._objects(chart.helm, {**render.VALUES, "scheduler": {"enabled": True}})
    assert applied == {(each["kind"], each["metadata"]["name"]): each for each in wanted}


def test_the_overlay_names_the_images_of_the_manifest() -> None:
    (overlay,) = _objects("kustomization.yaml")
    used = {value for key, value in _values(_objects("fluxqueue.yaml")) if key == "image"}
    assert {f"{each['name']}:{each['newTag']}" for each in overlay["images"]} == used
    assert overlay["resources"] == ["fluxqueue.yaml"]
