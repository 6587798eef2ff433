"""The chart installed by helm into a real control plane, and the people who then work with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders import Builder, Json, make_job, make_pod
from chart_rendering import CHART, NAMESPACE, RELEASE

from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until

QUEUE = f"system:serviceaccount:{NAMESPACE}:fluxqueue-queue"
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"

MANAGED = "managed"
UNMANAGED = "unmanaged"


@dataclass(frozen=True)
class Answer:
    """What kubectl answered."""

    ok: bool
    said: str

    def refused_with(self, sentence: str) -> bool:
        """Whether the request was refused, and with this sentence."""
        return not self.ok and sentence in self.said


@dataclass(frozen=True)
class Person:
    """Somebody, as the API server sees them: kubectl with impersonation."""

    plane: ControlPlane
    user: str
    namespace: str = MANAGED

    def within(self, namespace: str) -> Person:
        """The same person, working in another namespace."""
        return Person(self.plane, self.user, namespace)

    def run(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run kubectl."""
        done = self.plane.kubectl(f"--as={self.user}", f"--namespace={self.namespace}", *arguments, stdin=stdin, check=False)
        return Answer(done.returncode == 0, done.stdout + done.stderr)

    def create(self, thing: Builder | Json, *flags: str) -> Answer:
        """Create an object, in this person's namespace."""
        document = thing.namespace(self.namespace).build() if isinstance(thing, Builder) else thing
        return self.run("create", *flags, "-f", "-", stdin=json.dumps(document))

    def patch(self, kind: str, name: str, change: Mapping[str, Any], *flags: str) -> Answer:
        """Merge a change into an object; ``--type=strategic`` and ``--subresource=...`` as flags."""
        how = [] if any(flag.startswith("--type") for flag in flags) else ["--type=merge"]
        return self.run("patch", kind, name, *how, *flags, f"--patch={json.dumps(change)}")

    def get(self, kind: str, name: str) -> Json:
        """Read an object."""
        answer = self.run("get", kind, name, "--output=json")
        assert answer.ok, answer.said
        found: Json = json.loads(answer.said)
        return found

    def may(self, verb: str, resource: str, *flags: str) -> bool:
        """Whether RBAC lets them."""
        return self.run("auth", "can-i", verb, resource, *flags).ok


class Installation:
    """The chart as an administrator runs it with helm.

    The programs get no replicas (kwok would only pretend to run them), and the webhook is an address where nobody listens: with
    failurePolicy Ignore it is as if there were none, with Fail exactly what would be reviewed is refused.
    """

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self._environment = {
            **plane.kubectl_environment(),
            **{f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        self._values: dict[str, dict[str, Any]] = {
            "webhook": {"replicas": 0, "clientUrl": f"https://127.0.0.1:{free_port()}", "failurePolicy": "Ignore", "timeoutSeconds": 2},
            "queue": {"replicas": 0},
            "postgres": {"enabled": False},
            "database": {"existingSecret": {"name": "dsn"}},
        }

    def install(self) -> None:
        """Install the chart and wait until it is in force.

        The API server learns of policies, and the edit role of its new parts, a moment after they are written.
        """
        self._helm("install", RELEASE, str(CHART), "--values", "-", stdin=json.dumps(self._values))
        wait_until(self._in_force, "the policies in force and the edit role complete", 60)

    def upgrade(self, **changes: Mapping[str, Any]) -> None:
        """Upgrade, with these values over those of the installation."""
        values = {part: {**self._values.get(part, {}), **changes.get(part, {})} for part in {*self._values, *changes}}
        self._helm("upgrade", RELEASE, str(CHART), "--values", "-", stdin=json.dumps(values))

    def uninstall(self) -> None:
        """Uninstall the release."""
        self._helm("uninstall", RELEASE, "--wait")

    def _in_force(self) -> bool:
        anybody = Person(self.plane, "root")
        forged = [thing.annotation("fluxqueue/allocation", "1") for thing in (make_job("canary").suspended(), make_pod("canary"))]
        return (
            all(anybody.create(thing, "--dry-run=server").refused_with("written by fluxqueue only") for thing in forged)
            and anybody.create(fluxjob("canary"), "--dry-run=server").refused_with("made by fluxqueue")
            and Person(self.plane, "alice").may("patch", "fluxjobs")
        )

    def _helm(self, *arguments: str, stdin: str | None = None) -> None:
        done = subprocess.run(
            [self.plane.binaries[Tool.HELM], *arguments, "--namespace", NAMESPACE],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self._environment,
        )
        assert done.returncode == 0, f"helm {arguments[0]}: {done.stderr}"


def fluxjob(name: str = "fluxjob") -> Json:
    """A FluxJob as the queue creates it."""
    return {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxJob",
        "metadata": {"name": name},
        "spec": {"objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "lammps", "uid": "u-1"}, "pods": 4, "jobspec": "{}"},
    }
