"""A stage for end-to-end tests: one managed namespace in a running local cluster, used as a person would use
it, with checks.

The checks are those of `fluxqueue.local.verdicts`, which are also the rules of the demo.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from support.invariants import fluxion_jobs, unfinished, violations
from support.loop_blocks import assert_short_logged_blocks, delays, log_sizes
from support.replicas import status
from support.statements import statements_checked

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import JobInfo
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.applying import Applier
from fluxqueue.local.components import Component
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.operator_requests import OperatorRefused
from fluxqueue.local.verdicts import (
    OWNING_KINDS,
    AppliedExample,
    NamespaceSnapshot,
    Row,
    differences,
    leftovers,
    rows_of,
    settled,
)

T = TypeVar("T")
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.2
_PATIENCE_S = 30
_numbers = itertools.count(1)


class _Owned(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class NotInTime(AssertionError):
    """A condition did not become true in time. The message has the current state."""


@dataclass
class Stage:
    """A managed namespace. Every object that is applied through it is followed."""

    cluster: InProcessCluster
    namespace: str

    def __post_init__(self) -> None:
        self.examples: list[AppliedExample] = []
        self._applier = Applier(self.cluster.control_plane.client)
        self._paths: list[str] = []
        self._cluster_wide: list[tuple[str, str]] = []

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> Any:
        """Run kubectl in the namespace, and return the CompletedProcess."""
        return self.cluster.kubectl("-n", self.namespace, *words, stdin=stdin, check=check)

    def pod_logs(self) -> str:
        """Return the ends of the logs of all pods."""
        return str(
            self.kubectl(
                "logs", "-l", "!of-no-interest", "--prefix", "--tail=50", "--max-log-requests=50", check=False
            ).stdout
        )

    def plugin(
        self, *words: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl fluxqueue`` in the namespace."""
        program = Path(sys.executable).with_name("kubectl-fluxqueue")
        command = [str(program), "-n", self.namespace, "--kubeconfig", str(self.cluster.kubeconfig), *words]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            env={**os.environ, **(environ or {})},
        )

    def apply(self, *things: Mapping[str, Any] | Path) -> list[AppliedExample]:
        """``kubectl apply`` objects or files, in this order."""
        applied = []
        for thing in things:
            text = (
                thing.read_text() if isinstance(thing, Path) else json.dumps(_placed(thing, self.namespace))
            )
            applied.append(
                self.adopt(json.loads(self.kubectl("apply", "-f", "-", "-o", "json", stdin=text).stdout))
            )
        return applied

    def apply_all(self, *things: Mapping[str, Any]) -> list[AppliedExample]:
        """Apply many objects at once, as from one file."""
        items = [_placed(thing, self.namespace) for thing in things]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        done = json.loads(self.kubectl("apply", "-f", "-", "-o", "json", stdin=text).stdout)
        # for a single object, kubectl prints only that object
        return [self.adopt(item) for item in done.get("items", [done])]

    def claim(self, name: str, storage_class: str) -> None:
        """Create a PersistentVolumeClaim, which has no volume yet."""
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        thing = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(thing))

    def bind(self, claim: str, node: str = "") -> None:
        """Give a claim a volume that only one node can reach, as the volume controllers of a cluster do.
        The local cluster has none.
        """
        client, volume = self.cluster.control_plane.client, f"{self.namespace}-{claim}"
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{claim}"
        stored = client.get(path)
        here = {"key": names.HOSTNAME_LABEL, "operator": "In", "values": [node]}
        affinity = (
            {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}
            if node
            else {}
        )
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": stored["spec"]["accessModes"],
            "storageClassName": stored["spec"]["storageClassName"],
            "csi": {"driver": "example.com", "volumeHandle": volume},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": self.namespace,
                "name": claim,
                "uid": stored["metadata"]["uid"],
            },
        }
        client.request(
            "POST", "/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec | affinity}
        )
        self._cluster_wide.append(("persistentvolume", volume))
        client.request("PATCH", f"/api/v1/persistentvolumes/{volume}/status", {"status": {"phase": "Bound"}})
        bound = {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        }
        client.request("PATCH", path, bound)
        client.request("PATCH", f"{path}/status", {"status": {"phase": "Bound"}})

    def storage_class(self, **spec: Any) -> str:
        """Create a StorageClass of a driver that does not exist, and return its name."""
        name = f"made-{self.namespace}"
        body = {"metadata": {"name": name}, "provisioner": "example.com", **spec}
        self.cluster.control_plane.client.request("POST", "/apis/storage.k8s.io/v1/storageclasses", body)
        self._cluster_wide.append(("storageclass", name))
        return name

    def adopt(self, item: Mapping[str, Any]) -> AppliedExample:
        """Follow an object that was created in another way, as the API server returns it."""
        self.examples.append(_applied(item))
        self._paths.append(self._applier.path(item, self.namespace))
        return self.examples[-1]

    def rows(self) -> list[Row]:
        """Return the current state of everything that was applied."""
        between = [*self.items("replicasets", _Owned), *self.items("jobs", _Owned)]
        owners = {
            one.metadata.uid: owner.uid
            for one in between
            if (owner := one.metadata.controller) and owner.kind in ("Deployment", "MiniCluster")
        }
        return rows_of(
            self.examples, NamespaceSnapshot(tuple(self.fluxjobs()), tuple(self.items("pods", Pod)), owners)
        )

    def succeed(self, name: str) -> None:
        """End the containers of an object's pods with success, for work that runs until another event of the
        test, independent of time.
        """
        for pod in self.row(name).pods:
            self.end_pod(pod.metadata.name)

    def end_pod(self, name: str) -> None:
        """End the containers of a pod with success."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        self.cluster.control_plane.client.request("PATCH", path, {"status": {"phase": "Succeeded"}})

    def row(self, name: str) -> Row:
        """Return the (first) workload of the object with this name."""
        return next(row for row in self.rows() if row.example.name == name)

    def fluxjobs(self) -> list[FluxJob]:
        """Return all FluxJobs of the namespace."""
        return self.items(names.FLUXJOBS, FluxJob)

    def job(self, name: str) -> Job:
        """Return the current state of a Job."""
        return next(job for job in self.items("jobs", Job) if job.metadata.name == name)

    def items(self, resource: str, kind: type[T]) -> list[T]:
        """Return objects of the namespace."""
        group = {
            "pods": "api/v1",
            "events": "api/v1",
            "jobs": "apis/batch/v1",
            names.FLUXJOBS: f"apis/{names.API_VERSION}",
        }.get(resource, "apis/apps/v1")
        documents = self.cluster.control_plane.client.get(f"/{group}/namespaces/{self.namespace}/{resource}")[
            "items"
        ]
        return [msgspec.convert(item, kind) for item in documents]

    def until(
        self,
        what: str,
        holds: Callable[[], T],
        within_s: float = 90,
        said: Callable[[], object] | None = None,
    ) -> T:
        """Wait until a condition is true, and return its value.
        From half a minute on, ``within_s`` is patience, of which a slow or busy machine gets more
        (`support.loop_blocks.delays`); a shorter time is what the test claims.
        ``said`` returns details for the message of a time-out.
        """
        began, pause_s = time.monotonic(), _FIRST_PAUSE_S
        while not (value := holds()):
            waited_s = time.monotonic() - began
            if waited_s > within_s and (within_s < _PATIENCE_S or waited_s > within_s * delays()):
                raise NotInTime(
                    f"not within {within_s:g} s: {what}; {said() if said else ''} {self._standing()}"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        return value

    def _standing(self) -> object:
        try:
            return [(row.title, row.fluxjob.status if row.fluxjob else None) for row in self.rows()]
        except (OSError, ApiServerError) as error:
            return error

    def until_state(self, name: str, state: str, within_s: float = 90) -> Row:
        """Wait until the FluxJobs of an object are in a state, and return its first row."""
        self.until(
            f"{name} is {state}",
            lambda: {row.state for row in self.rows() if row.example.name == name} == {state},
            within_s,
        )
        return self.row(name)

    def until_reason(self, name: str, reason: str, within_s: float = 90) -> FluxJob:
        """Wait until the FluxJob of an object has a reason, and return it."""

        def given() -> FluxJob | None:
            fluxjob = self.row(name).fluxjob
            return fluxjob if fluxjob and fluxjob.status.reason == reason else None

        shown = self.until(f"{name} waits as {reason}", given, within_s)
        assert shown is not None
        return shown

    def until_settled(self, within_s: float = 120) -> list[Row]:
        """Wait until no more changes are expected."""
        self.until("everything has settled", lambda: settled(self.rows()), within_s)
        return self.rows()

    def fluxion_jobs(self) -> Sequence[JobInfo]:
        """Return the jobs of workloads in Fluxion, of all namespaces."""
        return fluxion_jobs(self.cluster)

    def until_consistent(self, within_s: float = 90) -> None:
        """Wait until cluster, queue and matcher are consistent."""
        self.until(
            "cluster, queue and matcher agree",
            lambda: not violations(self.cluster),
            within_s,
            lambda: violations(self.cluster),
        )

    def queue_misses(self) -> dict[str, str]:
        """Return the conditions that the queue reports as not met, as name -> message;
        empty if it is ready.
        """
        try:
            return dict(status(self.cluster, "queue")["missing"])
        except (OSError, OperatorRefused) as error:
            return {"queue": str(error)}

    def until_missed(self, name: str, within_s: float = 90) -> str:
        """Wait until the queue reports that a service it needs is unavailable, and return the message."""
        return str(self.until(f"the queue misses {name}", lambda: self.queue_misses().get(name), within_s))

    def kill(self, name: str) -> None:
        """``kill -9`` a program, and wait until the supervisor has started it again."""
        process = self.cluster.programs[name].process
        killed = process.pid
        process.send(signal.SIGKILL)
        self.until(f"{name} runs again", lambda: process.pid != killed and process.running)

    def until_ready(self, *programs: str, within_s: float = 90) -> None:
        """Wait until programs report that they are ready."""
        for name in programs:
            self.until(
                f"{name} is ready",
                self.cluster.programs[name].ready,
                within_s,
                self.cluster.programs[name].process.log_excerpt,
            )

    def clear(self, within_s: float = 120) -> None:
        """Delete everything that was applied, and wait until nothing of it is left in any component."""
        self.delete_applied(within_s)
        self.until_nothing_left(within_s)
        for kind, name in self._cluster_wide:
            self.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")

    def delete_applied(self, within_s: float = 120) -> None:
        """Delete everything that was applied to the namespace, and wait until the API server has nothing of
        it.
        """
        client = self.cluster.control_plane.client
        left = [path for path in self._paths if client.find(path) is not None]
        for path in left:
            self.delete(path)
        self.until(
            "what was applied is gone", lambda: all(client.find(path) is None for path in left), within_s
        )

    def delete(self, path: str) -> None:
        """Delete an object that may be gone already."""
        try:
            self.cluster.control_plane.client.request("DELETE", path, {"propagationPolicy": "Background"})
        except ApiServerError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def until_nothing_left(self, within_s: float = 120) -> None:
        """Wait until there are no FluxJobs here and no allocations in Fluxion,
        and the queue has ended all that was applied.
        """
        self.until("nothing is left", lambda: not self._left(), within_s, self._left)

    def _left(self) -> list[str]:
        try:
            held = self.fluxion_jobs()
        except FluxionError as error:
            return [f"Fluxion does not answer: {error}"]
        return [*leftovers(held, self.fluxjobs()), *unfinished(self.cluster, self.namespace)]


@contextmanager
def managed_namespace(cluster: InProcessCluster, *, statements: bool = True) -> Iterator[Stage]:
    """Create a managed namespace. At the end its objects are deleted, and then nothing may be left in any
    component.

    No event loop may have been blocked for long meanwhile. With ``statements``, no FluxJob may have said what
    was not so (`support.statements`).
    """
    logs = cluster.folder / "logs"
    logged = log_sizes(logs)
    name = f"e2e-{next(_numbers)}"
    client = cluster.control_plane.client
    client.request(
        "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {names.MANAGED_LABEL: "true"}}}
    )
    stage = Stage(cluster, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    stage.until("the default service account is there", lambda: client.find(account) is not None)
    with statements_checked(cluster, name) if statements else nullcontext():
        yield stage
        try:
            stage.clear()
        except NotInTime:  # what stays on the nodes would fail the tests that follow
            path = f"/api/v1/namespaces/{name}/pods"
            client.request("DELETE", path, {"gracePeriodSeconds": 0})
            raise
        finally:
            stage.delete(f"/api/v1/namespaces/{name}")
        assert_short_logged_blocks(logs.glob("*.log"), logged)


@contextmanager
def scheduler_paused(stage: Stage) -> Iterator[None]:
    """Stop the scheduler, and restart it without state at the end:
    if it only resumed, it could bind a pod before it gets the changes.
    """
    stage.cluster.control_plane.processes[Component.SCHEDULER].send(signal.SIGSTOP)
    try:
        yield
    finally:
        stage.cluster.control_plane.restart_component(Component.SCHEDULER, graceful=False)


def wrong(rows: Sequence[Row]) -> list[str]:
    """Return what is not as expected, as messages."""
    return [sentence for row in rows for sentence in differences(row)]


def _placed(thing: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {
        **{key: value for key, value in thing.items() if key != "status"},
        "metadata": {**thing["metadata"], "namespace": namespace},
    }


def _applied(item: Mapping[str, Any]) -> AppliedExample:
    replicas = item.get("spec", {}).get("replicas", 1) if item["kind"] in OWNING_KINDS else 1
    return AppliedExample(item["kind"], item["metadata"]["name"], item["metadata"]["uid"], replicas)
