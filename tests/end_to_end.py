"""A stage for end-to-end tests: one managed namespace on a running plane, used as a person would, and read back.

What is judged is judged by `fluxqueue.local.verdicts`, the rules of the demo.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from invariants import fluxion_jobs, unfinished, violations
from replicas import asked

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.objects import Job, ObjectMeta, Part, Pod
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.fluxion.messages import JobInfo
from fluxqueue.local.apiserver_client import ApiError
from fluxqueue.local.inprocess import InProcessPlane
from fluxqueue.local.verdicts import OWNING_KINDS, Applied, Row, Seen, differences, leftovers, rows_of, settled

T = TypeVar("T")
_POLL_S = 0.1
_numbers = itertools.count(1)


class _Owned(Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class NotInTime(AssertionError):
    """Something did not come about; the text says how things stand."""


@dataclass
class Stage:
    """A managed namespace; every object applied through it is followed."""

    plane: InProcessPlane
    namespace: str

    def __post_init__(self) -> None:
        self.examples: list[Applied] = []

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> Any:
        """Run kubectl in the namespace; a CompletedProcess."""
        return self.plane.kubectl("-n", self.namespace, *words, stdin=stdin, check=check)

    def plugin(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl fluxqueue`` in the namespace."""
        program = Path(sys.executable).with_name("kubectl-fluxqueue")
        command = [str(program), *words, "-n", self.namespace, "--kubeconfig", str(self.plane.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def apply(self, *things: Mapping[str, Any] | Path) -> list[Applied]:
        """``kubectl apply`` objects or files, in this order."""
        applied = []
        for thing in things:
            text = thing.read_text() if isinstance(thing, Path) else json.dumps(_placed(thing, self.namespace))
            applied.append(_applied(json.loads(self.kubectl("apply", "-f", "-", "-o", "json", stdin=text).stdout)))
        self.examples += applied
        return applied

    def apply_all(self, *things: Mapping[str, Any]) -> list[Applied]:
        """The same for many objects at once, as one file holds them."""
        items = [_placed(thing, self.namespace) for thing in things]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        done = json.loads(self.kubectl("apply", "-f", "-", "-o", "json", stdin=text).stdout)
        applied = [_applied(item) for item in done.get("items", [done])]  # of one, kubectl shows just that
        self.examples += applied
        return applied

    def adopt(self, item: Mapping[str, Any]) -> None:
        """Follow an object that was created in another way, as the API server shows it."""
        self.examples.append(_applied(item))

    def rows(self) -> list[Row]:
        """How everything applied stands."""
        between = [*self.items("replicasets", _Owned), *self.items("jobs", _Owned)]
        owners = {
            one.metadata.uid: owner.uid
            for one in between
            if (owner := one.metadata.controller) and owner.kind in ("Deployment", "MiniCluster")
        }
        return rows_of(self.examples, Seen(tuple(self.fluxjobs()), tuple(self.items("pods", Pod)), owners))

    def row(self, name: str) -> Row:
        """The (first) workload of the object of this name."""
        return next(row for row in self.rows() if row.example.name == name)

    def fluxjobs(self) -> list[FluxJob]:
        """All of the namespace."""
        return self.items(names.FLUXJOBS, FluxJob)

    def job(self, name: str) -> Job:
        """A Job as it is now."""
        return next(job for job in self.items("jobs", Job) if job.metadata.name == name)

    def items(self, resource: str, kind: type[T]) -> list[T]:
        """Objects of the namespace."""
        group = {"pods": "api/v1", "events": "api/v1", "jobs": "apis/batch/v1", names.FLUXJOBS: f"apis/{names.API_VERSION}"}.get(
            resource, "apis/apps/v1"
        )
        found = self.plane.control_plane.client.get(f"/{group}/namespaces/{self.namespace}/{resource}")["items"]
        return [msgspec.convert(item, kind) for item in found]

    def until(self, what: str, holds: Callable[[], T], within_s: float = 30, said: Callable[[], object] | None = None) -> T:
        """Wait until something is true, and return it; ``said`` tells more when it does not come about."""
        deadline = time.monotonic() + within_s
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise NotInTime(f"not within {within_s:g} s: {what}; {said() if said else ''} {self._standing()}")
            time.sleep(_POLL_S)
        return found

    def _standing(self) -> object:
        try:
            return [(row.title, row.fluxjob.status if row.fluxjob else None) for row in self.rows()]
        except (OSError, ApiError) as error:
            return error

    def until_state(self, name: str, state: str, within_s: float = 30) -> Row:
        """Wait until the FluxJobs of an object are in a state; its first row."""
        self.until(f"{name} is {state}", lambda: {row.state for row in self.rows() if row.example.name == name} == {state}, within_s)
        return self.row(name)

    def until_reason(self, name: str, reason: str, within_s: float = 30) -> FluxJob:
        """Wait until an object's FluxJob gives a reason."""

        def given() -> FluxJob | None:
            fluxjob = self.row(name).fluxjob
            return fluxjob if fluxjob and fluxjob.status.reason == reason else None

        found = self.until(f"{name} waits as {reason}", given, within_s)
        assert found is not None
        return found

    def until_settled(self, within_s: float = 60) -> list[Row]:
        """Wait until nothing more is to be expected."""
        self.until("everything has settled", lambda: settled(self.rows()), within_s)
        return self.rows()

    def fluxion_jobs(self) -> Sequence[JobInfo]:
        """What Fluxion holds of workloads, of any namespace."""
        return fluxion_jobs(self.plane)

    def until_consistent(self, within_s: float = 30) -> None:
        """Wait until cluster, queue and matcher tell the same story."""
        self.until("cluster, queue and matcher agree", lambda: not violations(self.plane), within_s, lambda: violations(self.plane))

    def queue_misses(self) -> dict[str, str]:
        """What the queue says is not as it should be: name -> sentence. Empty if it is ready."""
        return dict(asked(self.plane, "queue")["missing"])

    def until_missed(self, name: str, within_s: float = 30) -> str:
        """Wait until the queue says that something it needs is away; what it says."""
        return str(self.until(f"the queue misses {name}", lambda: self.queue_misses().get(name), within_s))

    def kill(self, name: str) -> None:
        """``kill -9`` a program, and wait until the supervisor has started it again."""
        process = self.plane.programs[name].process
        killed = process.pid
        process.send(signal.SIGKILL)
        self.until(f"{name} runs again", lambda: process.pid != killed and process.running)

    def until_ready(self, *programs: str, within_s: float = 30) -> None:
        """Wait until programs say that they are ready."""
        for name in programs:
            self.until(f"{name} is ready", self.plane.programs[name].ready, within_s, self.plane.programs[name].process.log_excerpt)

    def clear(self, within_s: float = 60) -> None:
        """Delete everything applied, and wait until nothing of it is left anywhere."""
        for example in self.examples:
            self.kubectl("delete", example.kind, example.name, "--ignore-not-found", "--wait=true", "--timeout=60s")
        self.until_nothing_left(within_s)

    def until_nothing_left(self, within_s: float = 60) -> None:
        """Wait until there are no FluxJobs here, no allocations in Fluxion, and the queue is done with all that was applied."""
        self.until("nothing is left", lambda: not self._left(), within_s, self._left)

    def _left(self) -> list[str]:
        try:
            held = self.fluxion_jobs()
        except FluxionError as error:
            return [f"Fluxion does not answer: {error}"]
        return [*leftovers(held, self.fluxjobs()), *unfinished(self.plane, self.namespace)]


@contextmanager
def managed_namespace(plane: InProcessPlane) -> Iterator[Stage]:
    """A new managed namespace; whatever is left in it at the end is deleted, and then nothing may be left anywhere."""
    name = f"e2e-{next(_numbers)}"
    client = plane.control_plane.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {names.MANAGED_LABEL: "true"}}})
    stage = Stage(plane, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    stage.until("the default service account is there", lambda: client.find(account) is not None)
    yield stage
    stage.clear()
    client.request("DELETE", f"/api/v1/namespaces/{name}")


def wrong(rows: Sequence[Row]) -> list[str]:
    """What is not as it should be, in sentences."""
    return [sentence for row in rows for sentence in differences(row)]


def _placed(thing: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**{key: value for key, value in thing.items() if key != "status"}, "metadata": {**thing["metadata"], "namespace": namespace}}


def _applied(item: Mapping[str, Any]) -> Applied:
    replicas = item.get("spec", {}).get("replicas", 1) if item["kind"] in OWNING_KINDS else 1
    return Applied(item["kind"], item["metadata"]["name"], item["metadata"]["uid"], replicas)
