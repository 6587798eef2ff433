"""A stage for end-to-end tests: one managed namespace on a running plane, used as a person would, and read back.

What is judged is judged by `fluxqueue.local.verdicts`, the rules of the demo.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.objects import Job, ObjectMeta, Part, Pod
from fluxqueue.fluxion.client import FluxionClient
from fluxqueue.fluxion.messages import Call, JobInfo, Mode
from fluxqueue.local.inprocess import InProcessPlane
from fluxqueue.local.verdicts import OWNING_KINDS, Applied, Row, Seen, differences, leftovers, rows_of, settled

T = TypeVar("T")
_POLL_S = 0.1


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

    def apply(self, *things: Mapping[str, Any] | Path) -> list[Applied]:
        """``kubectl apply`` objects or files, in this order."""
        applied = []
        for thing in things:
            text = thing.read_text() if isinstance(thing, Path) else json.dumps(_placed(thing, self.namespace))
            applied.append(_applied(json.loads(self.kubectl("apply", "-f", "-", "-o", "json", stdin=text).stdout)))
        self.examples += applied
        return applied

    def rows(self) -> list[Row]:
        """How everything applied stands."""
        owners = {one.metadata.uid: one.metadata.controller.uid for one in self.items("replicasets", _Owned) if one.metadata.controller}
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

    def until(self, what: str, holds: Callable[[], T], within_s: float = 30) -> T:
        """Wait until something is true, and return it."""
        deadline = time.monotonic() + within_s
        while not (found := holds()):
            if time.monotonic() > deadline:
                standing = [(row.title, row.fluxjob.status if row.fluxjob else None) for row in self.rows()]
                raise NotInTime(f"not within {within_s:g} s: {what}; {standing}")
            time.sleep(_POLL_S)
        return found

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
        with FluxionClient(f"127.0.0.1:{self.plane.programs['fluxion'].port}") as client:
            return [job for job in client.list_jobs(call=Call(), with_shares=True) if job.mode is not Mode.SYSTEM]

    def clear(self, within_s: float = 60) -> None:
        """Delete everything applied, and wait until nothing of it is left anywhere."""
        for example in self.examples:
            self.kubectl("delete", example.kind, example.name, "--ignore-not-found", "--wait=true", "--timeout=60s")
        self.until_nothing_left(within_s)

    def until_nothing_left(self, within_s: float = 60) -> None:
        """Wait until there are no FluxJobs here and no allocations in Fluxion."""
        self.until("nothing is left", lambda: not leftovers(self.fluxion_jobs(), self.fluxjobs()), within_s)


def wrong(rows: Sequence[Row]) -> list[str]:
    """What is not as it should be, in sentences."""
    return [sentence for row in rows for sentence in differences(row)]


def _placed(thing: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**{key: value for key, value in thing.items() if key != "status"}, "metadata": {**thing["metadata"], "namespace": namespace}}


def _applied(item: Mapping[str, Any]) -> Applied:
    replicas = item.get("spec", {}).get("replicas", 1) if item["kind"] in OWNING_KINDS else 1
    return Applied(item["kind"], item["metadata"]["name"], item["metadata"]["uid"], replicas)
