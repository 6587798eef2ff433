"""The commands of docs/install.md for kind and k3d: their file is one that kind reads, and the images that
they load are those that the chart runs. Neither program can run where the tests do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CONFIG = "examples/clusters/kind-config.yaml"
CLUSTER_FIELDS = {
    *("kind", "apiVersion", "name", "nodes", "networking", "featureGates", "runtimeConfig"),
    *("kubeadmConfigPatches", "kubeadmConfigPatchesJSON6902"),
    *("containerdConfigPatches", "containerdConfigPatchesJSON6902"),
}
NODE_FIELDS = {
    *("role", "image", "labels", "extraMounts", "extraPortMappings", "gpus"),
    *("kubeadmConfigPatches", "kubeadmConfigPatchesJSON6902"),
}
"""Of kind's v1alpha4, which refuses others."""
LABELS_OF_KUBELETS = {"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}
"""A kubelet does not start with other labels of kubernetes.io that say where it is."""


def section() -> str:
    page = (ROOT / "docs" / "install.md").read_text()
    return page.partition("## On kind or k3d\n")[2].partition("\n## ")[0]


def images_of_the_chart() -> set[str]:
    chart = ROOT / "charts" / "fluxqueue"
    values: Any = yaml.safe_load((chart / "values.yaml").read_text())
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]
    own = [values[part]["image"] for part in ("webhook", "queue")]
    assert all(image["pullPolicy"] == "IfNotPresent" for image in own), "else the nodes ask a registry"
    return {f"{image['repository']}:{image['tag'] or version}" for image in own}


def test_the_file_is_a_cluster_of_kind() -> None:
    config = yaml.safe_load((ROOT / CONFIG).read_text())
    assert (config["kind"], config["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert config.keys() <= CLUSTER_FIELDS
    for node in config["nodes"]:
        assert node.keys() <= NODE_FIELDS
        assert node["role"] in ("control-plane", "worker")
        assert node.get("labels", {}).keys() <= LABELS_OF_KUBELETS
    assert sum(node["role"] == "worker" for node in config["nodes"]) >= 2


def test_the_images_that_are_built_and_loaded_are_those_of_the_chart() -> None:
    shown, images = section(), images_of_the_chart()
    built = dict(re.findall(r"docker build -f (\S+) -t (\S+) \.", shown))
    assert set(built.values()) == images
    assert all((ROOT / dockerfile).is_file() for dockerfile in built)
    for command in ("kind load docker-image", "k3d image import"):
        (line,) = [line for line in shown.splitlines() if line.startswith(command)]
        assert images <= set(line.split()), command


def test_all_commands_are_about_one_cluster() -> None:
    shown = section()
    assert f"kind create cluster --config {CONFIG}" in shown
    name = yaml.safe_load((ROOT / CONFIG).read_text())["name"]
    for command in (f"--name {name} ", f"k3d cluster create {name} ", f"k3d image import -c {name} "):
        assert command in shown
    assert "helm install fluxqueue charts/fluxqueue" in shown
