"""The chart installed by helm into a real control plane, and the people who then work with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.builders import Builder, Json, make_job, make_pod
from support.chart_rendering import CHART, NAMESPACE, RELEASE

from fluxqueue.kube import kinds
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until

QUEUE = f"system:serviceaccount:{NAMESPACE}:fluxqueue-queue"
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
CONTROLLER_MANAGER = "system:kube-controller-manager"

_PROGRAM = f"system:serviceaccount:{NAMESPACE}:"
_KINDS: Mapping[str, kinds.Kind[Any]] = {
    **{each.kind.lower(): each for each in vars(kinds).values() if isinstance(each, kinds.Kind)},
    "pvc": kinds.CLAIMS,
    "pv": kinds.VOLUMES,
}

MANAGED = "managed"
UNMANAGED = "unmanaged"


@dataclass(frozen=True)
class Answer:
    """The result of kubectl."""

    ok: bool
    output: str

    def refused_with(self, sentence: str) -> bool:
        """True if the request was refused with this message."""
        return not self.ok and sentence in self.output


@dataclass(frozen=True)
class Person:
    """A person as the API server sees them: kubectl with impersonation."""

    cluster: ControlPlane
    user: str
    namespace: str = MANAGED

    def within(self, namespace: str) -> Person:
        """Return the same person in another namespace."""
        return Person(self.cluster, self.user, namespace)

    def run(self, *arguments: str, stdin: str | None = None) -> Answer:
        """Run kubectl."""
        done = self.cluster.kubectl(
            f"--as={self.user}", f"--namespace={self.namespace}", *arguments, stdin=stdin, check=False
        )
        return Answer(done.returncode == 0, done.stdout + done.stderr)

    def create(self, thing: Builder | Json, *flags: str) -> Answer:
        """Create an object, in this person's namespace."""
        document = thing.namespace(self.namespace).build() if isinstance(thing, Builder) else thing
        return self.run("create", *flags, "-f", "-", stdin=json.dumps(document))

    def patch(self, kind: str, name: str, change: Mapping[str, Any], *flags: str) -> Answer:
        """Merge a change into an object; ``--type=strategic`` and ``--subresource=...`` as flags.

        A program of the chart sends the patch alone, as it does in a cluster: kubectl would read the object
        first, which it may not.
        """
        if self.user.startswith(_PROGRAM) and kind in _KINDS:
            return self._patch_as_program(kind, name, change, flags)
        how = [] if any(flag.startswith("--type") for flag in flags) else ["--type=merge"]
        return self.run("patch", kind, name, *how, *flags, f"--patch={json.dumps(change)}")

    def _patch_as_program(
        self, kind: str, name: str, change: Mapping[str, Any], flags: Sequence[str]
    ) -> Answer:
        told = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        unknown = told.keys() - {"type", "subresource", "dry-run"}
        assert not unknown, f"flags that are not sent: {unknown}"
        which = _KINDS[kind]
        path = which.path(self.namespace if which.namespaced else None, name, told.get("subresource"))
        how = "strategic-merge" if told.get("type") == "strategic" else "merge"
        query = {"dryRun": "All"} if "dry-run" in told else None
        try:
            self.cluster.client.request("PATCH", path, dict(change), query=query, patch=how, user=self.user)
        except ApiServerError as error:
            return Answer(False, str(error))
        return Answer(True, "")

    def get(self, kind: str, name: str) -> Json:
        """Read an object."""
        answer = self.run("get", kind, name, "--output=json")
        assert answer.ok, answer.output
        document: Json = json.loads(answer.output)
        return document

    def may(self, verb: str, resource: str, *flags: str) -> bool:
        """True if RBAC allows it."""
        return self.run("auth", "can-i", verb, resource, *flags).ok


class Installation:
    """The chart as an administrator runs it with helm.

    The programs get no replicas, because kwok would only simulate them. No server listens at the address of
    the webhook: with failurePolicy Ignore it has no effect, and with Fail exactly the requests that it would
    review are refused.
    """

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.cluster = cluster
        self._environment = {
            **cluster.kubectl_environment(),
            **{f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        self._values: dict[str, dict[str, Any]] = {
            "webhook": {
                "replicas": 0,
                "clientUrl": f"https://127.0.0.1:{free_port()}",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 2,
            },
            "queue": {
                "replicas": 0,
                "config": {"nodeShapes": [{"name": "large", "allocatable": {"cpu": "64"}, "maxNodes": 1}]},
            },
            "reservations": {"enabled": True},
            "postgres": {"enabled": False},
            "miniclusters": {"enabled": True, "namespaces": ["*"]},
            "database": {"existingSecret": {"name": "dsn"}},
        }

    def install(self) -> None:
        """Install the chart and wait until it is in effect.

        Policies, and the aggregation of the edit role, take effect a short time after they are written.
        """
        self._helm("install", RELEASE, str(CHART), "--values", "-", stdin=json.dumps(self._values))
        wait_until(self._in_force, "the policies in force and the edit role complete", 60)

    def upgrade(self, **changes: Mapping[str, Any]) -> None:
        """Upgrade, with these values over those of the installation."""
        values = {
            part: {**self._values.get(part, {}), **changes.get(part, {})}
            for part in {*self._values, *changes}
        }
        self._helm("upgrade", RELEASE, str(CHART), "--values", "-", stdin=json.dumps(values))

    def tried(self, **changes: Any) -> Answer:
        """Try an installation under another name, with these values;
        the API server checks it and nothing is made.
        """
        values = {**self._values, **changes}
        arguments = (
            "install",
            "tried",
            str(CHART),
            "--dry-run=server",
            "--namespace",
            NAMESPACE,
            "--values",
            "-",
        )
        done = subprocess.run(
            [self.cluster.binaries[Tool.HELM], *arguments],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self._environment,
        )
        return Answer(done.returncode == 0, done.stdout + done.stderr)

    def uninstall(self) -> None:
        """Uninstall the release."""
        self._helm("uninstall", RELEASE, "--wait")

    def is_installed(self) -> bool:
        """True if Helm has a record of the release."""
        records = (
            "get",
            "secrets",
            f"--namespace={NAMESPACE}",
            f"--selector=owner=helm,name={RELEASE}",
            "--output=name",
        )
        return bool(self.cluster.kubectl(*records).stdout)

    def uninstall_if_installed(self) -> None:
        """Remove the release, or what Helm still records of one whose objects are gone."""
        if self.is_installed():
            self.uninstall()

    def _in_force(self) -> bool:
        anybody = Person(self.cluster, "root")
        forged = [
            thing.annotation("fluxqueue/allocation", "1")
            for thing in (make_job("canary").suspended(), make_pod("canary"))
        ]
        return (
            all(
                anybody.create(thing, "--dry-run=server").refused_with("written by fluxqueue only")
                for thing in forged
            )
            and anybody.create(fluxjob("canary"), "--dry-run=server").refused_with("made by fluxqueue")
            and Person(self.cluster, "alice").may("patch", "fluxjobs")
        )

    def _helm(self, *arguments: str, stdin: str | None = None) -> None:
        done = subprocess.run(
            [self.cluster.binaries[Tool.HELM], *arguments, "--namespace", NAMESPACE],
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
        "spec": {
            "objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "lammps", "uid": "u-1"},
            "pods": 4,
            "jobspec": "{}",
        },
    }
