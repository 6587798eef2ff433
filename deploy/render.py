"""Render the chart into manifests for people without Helm: ``make deploy``.

The manifests contain nothing that is generated: they have no Postgres, whose password and certificate Helm
generates at the installation, and the queue itself creates the certificates of the webhook at run time. The
connection string is in a Secret that the administrator creates first. What belongs to Helm alone (labels,
annotations, tests) is removed; a hook becomes a manifest of its own, because a FluxQueue can only be created
once its kind exists and the webhook answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fluxqueue.local.binaries import Tool, find_tool

FOLDER = Path(__file__).resolve().parent
CHART = FOLDER.parent / "charts" / "fluxqueue"
NAMESPACE = "fluxqueue-system"
VALUES: Mapping[str, Any] = {
    "postgres": {"enabled": False},
    "database": {"existingSecret": {"name": "fluxqueue-database"}},
}
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FluxQueue",
    "MutatingWebhookConfiguration",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
)
HEADER = "# Written by `make deploy` from charts/fluxqueue; README.md in this folder says how to apply it.\n"

Json = dict[str, Any]


def main() -> int:
    """Write the manifests into this folder."""
    helm = find_tool(Tool.HELM)
    if helm is None:
        print("make deploy: there is no helm: run `make controlplane` first", file=sys.stderr)
        return 1
    for name, text in manifests(helm).items():
        (FOLDER / name).write_text(text)
        print(f"deploy/{name}: {text.count(chr(10))} lines")
    return 0


def manifests(helm: Path) -> dict[str, str]:
    """Return the content of each manifest by its file name."""
    objects = _objects(helm, VALUES)
    definitions = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    queues = [each for each in objects if each["kind"] == "FluxQueue"]
    others = [each for each in objects if each not in definitions and each not in queues]
    with_scheduler = _objects(helm, {**VALUES, "scheduler": {"enabled": True}})
    return {
        "crds.yaml": _text(definitions),
        "default-queue.yaml": _text(queues),
        "fluxqueue.yaml": _text([_namespace(), *others]),
        "fluxqueue-scheduler.yaml": _text(each for each in with_scheduler if each not in objects),
    }


def _objects(helm: Path, values: Mapping[str, Any]) -> list[Json]:
    return [_placed(_without_helm(each)) for each in _render(helm, values) if not _is_test(each)]


def _render(helm: Path, values: Mapping[str, Any]) -> list[Json]:
    command: list[str | Path] = [
        helm,
        "template",
        "fluxqueue",
        CHART,
        "--namespace",
        NAMESPACE,
        "--include-crds",
        "--values",
        "-",
    ]
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=120, check=True
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def _namespace() -> Json:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _placed(each: Json) -> Json:
    """Return an object with its namespace, which Helm gives it when it installs."""
    if each["kind"] in CLUSTER_WIDE:
        return each
    name = each["metadata"]["name"]
    return {**each, "metadata": {"name": name, "namespace": NAMESPACE, **each["metadata"]}}


def _is_test(each: Json) -> bool:
    hook = str((each["metadata"].get("annotations") or {}).get("helm.sh/hook", ""))
    return bool({"test", "pre-delete", "post-delete"} & set(hook.split(",")))


def _without_helm(value: Any) -> Any:
    """Return an object without Helm's labels and annotations, also in its pod templates."""
    if isinstance(value, list):
        return [_without_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    cleaned = {
        key: _without_helm(each)
        for key, each in value.items()
        if not str(key).startswith(("helm.sh/", "argocd.argoproj.io/hook"))
    }
    if cleaned.get("app.kubernetes.io/managed-by") == "Helm":
        del cleaned["app.kubernetes.io/managed-by"]
    return {key: each for key, each in cleaned.items() if not (key == "annotations" and each == {})}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and the same object twice in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _text(objects: Iterable[Json]) -> str:
    return HEADER + yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, width=140, explicit_start=True, allow_unicode=True
    )


if __name__ == "__main__":
    sys.exit(main())
