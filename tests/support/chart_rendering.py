"""The project's chart, rendered by helm as an installation would render it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

CHART = Path(__file__).resolve().parents[2] / "charts" / "fluxqueue"
SHARED = CHART / "values-shared.yaml"
"""The values of a cluster that several groups share."""
RELEASE = "fluxqueue"
NAMESPACE = "fluxqueue-system"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ValuesRefused(Exception):
    """Helm refused these values; the text is its message."""


@dataclass(frozen=True)
class Rendered:
    """The result of one rendering."""

    text: str
    objects: Sequence[Json]

    def all(self, kind: str) -> list[Json]:
        """Return the objects of a kind."""
        return [document for document in self.objects if document["kind"] == kind]

    def one(self, kind: str, name: str) -> Json:
        """Return the object of a kind and name."""
        named = [document for document in self.all(kind) if document["metadata"]["name"] == name]
        assert len(named) == 1, (
            f"{len(named)} objects {kind}/{name} among "
            f"{[document['metadata']['name'] for document in self.all(kind)]}"
        )
        return named[0]

    def pod_specs(self) -> Iterator[tuple[str, Json]]:
        """Return name and pod spec of every workload."""
        for kind in ("Deployment", "StatefulSet"):
            for document in self.all(kind):
                yield document["metadata"]["name"], document["spec"]["template"]["spec"]

    def container(self, workload: str, name: str) -> Json:
        """Return one container of one workload."""
        return next(
            c for spec in [dict(self.pod_specs())[workload]] for c in spec["containers"] if c["name"] == name
        )


@dataclass(frozen=True)
class Chart:
    """The chart in the repository, and the helm that renders it."""

    helm: Path

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        serves: Sequence[str] = (),
        files: Sequence[Path] = (),
    ) -> Rendered:
        """Render with these values over those files and the chart's own.

        The cluster serves these kinds too (``group/version/Kind``).

        Raises
        ------
        ValuesRefused
            The schema or a template refuses them.
        """
        done = subprocess.run(
            [
                *(self.helm, "template", release, CHART, "--namespace", namespace),
                *(word for file in files for word in ("--values", file)),
                *("--values", "-"),
                *(word for kind in serves for word in ("--api-versions", kind)),
            ],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise ValuesRefused(done.stderr)
        return Rendered(
            done.stdout, [document for document in yaml.load_all(done.stdout, _Loader) if document]
        )

    def notes(self, values: Mapping[str, Any] | None = None, files: Sequence[Path] = ()) -> str:
        """Return what an installation says at its end."""
        command: list[str | Path] = [
            self.helm,
            "install",
            RELEASE,
            CHART,
            "--namespace",
            NAMESPACE,
            "--dry-run=client",
        ]
        command += [word for file in files for word in ("--values", file)]
        environment = {**os.environ, "KUBECONFIG": os.devnull}
        done = subprocess.run(
            [*command, "--values", "-"],
            input=json.dumps(values or {}),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.rpartition("\nNOTES:\n")[2]


def flag(arguments: Sequence[str], name: str) -> list[str]:
    """Return every value of a flag in a program's arguments."""
    return [value for option, value in itertools.pairwise(arguments) if option == name]
