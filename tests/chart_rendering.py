"""The project's chart, rendered by helm as an installation would render it."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

CHART = Path(__file__).resolve().parent.parent / "charts" / "fluxqueue"
RELEASE = "fluxqueue"
NAMESPACE = "fluxqueue-system"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ValuesRefused(Exception):
    """Helm would not render these values; the text is what it says."""


@dataclass(frozen=True)
class Rendered:
    """Everything one rendering gives."""

    text: str
    objects: Sequence[Json]

    def all(self, kind: str) -> list[Json]:
        """The objects of a kind."""
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str) -> Json:
        """The object of that kind and name."""
        named = [found for found in self.all(kind) if found["metadata"]["name"] == name]
        assert len(named) == 1, f"{len(named)} objects {kind}/{name} among {[found['metadata']['name'] for found in self.all(kind)]}"
        return named[0]

    def pod_specs(self) -> Iterator[tuple[str, Json]]:
        """Name and pod spec of every workload."""
        for kind in ("Deployment", "StatefulSet"):
            for found in self.all(kind):
                yield found["metadata"]["name"], found["spec"]["template"]["spec"]

    def container(self, workload: str, name: str) -> Json:
        """One container of one workload."""
        return next(c for spec in [dict(self.pod_specs())[workload]] for c in spec["containers"] if c["name"] == name)


@dataclass(frozen=True)
class Chart:
    """The chart in the repository, and the helm to render it with."""

    helm: Path

    def render(self, values: Mapping[str, Any] | None = None, release: str = RELEASE, namespace: str = NAMESPACE) -> Rendered:
        """Render with these values over the chart's own.

        Raises
        ------
        ValuesRefused
            The schema or a template refuses them.
        """
        done = subprocess.run(
            [self.helm, "template", release, CHART, "--namespace", namespace, "--values", "-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise ValuesRefused(done.stderr)
        return Rendered(done.stdout, [found for found in yaml.load_all(done.stdout, _Loader) if found])


def flag(arguments: Sequence[str], name: str) -> list[str]:
    """Every value of a flag in a program's arguments."""
    return [value for option, value in itertools.pairwise(arguments) if option == name]
