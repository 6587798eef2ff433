"""Hostile values in every field of every object that a user with the role ``edit`` may write, and in statuses
that controllers write.

An attack takes a valid object, replaces or adds some of its fields by values of a list, and sends it. The API
server refuses many; what it lets through must not reach anybody but its author. Draws depend on the seed and
on the draws before, so a run can be repeated.
"""

from __future__ import annotations

import copy
import http.client
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.builders import Json, make_job, make_minicluster, make_pod
from support.device_objects import a_claim, a_template
from support.hostile_gangs import GANG_EXAMPLES, GANG_KINDS, children_of, gang, group_and_plural

from fluxqueue.api import names
from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError

__all__ = ["Attack"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
_LONG = 262_144
_LIVE = 80
"""Objects that exist at once, at most: the older ones are deleted."""
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\x1b[2J\x1b]0;owned\x07",
    "\b\f\r\n\t\v",
    "\x7f\x80\x9f",
    "\u202egnp.exe",
    "\u2028\u2029\ufeff\ufffe",
    "\U0001f469\u200d\U0001f52c" * 40,
    "e\u0301" * 500,
    "\u2400",
    "x" * _LONG,
    "a," * 60_000,
    "../../etc/passwd",
    "'; DROP TABLE workload; --",
    "%s%n{}{0.__class__}$(id)`id`",
    "{" * 3_000,
    '{"a":' * 2_000 + "1" + "}" * 2_000,
    "node-[0-99999999]",
    "n[1-2][1-2][1-99999]",
    "0-4294967295",
    "0,2-1,,5",
    "9" * 400,
    "1e400",
    "-1",
    "-0",
    "NaN",
    "inf",
    "0x10",
    "\uff11\uff12",
    "1_000",
    "9223372036854775808",
    "1e-30",
    "999999999h",
    "PT999999999H",
    "100000000d",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "2026-02-30T25:61:61Z",
    "2026-11-24T00:00:00+99:99",
    "true",
    "null",
    "[]",
)
NUMBERS = (-1, 0, 1, 7, 1_000, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 0.5, 1e308)
REPLICAS = (-1, 0, 7, 100, None, "")
"""Of a ReplicaSet: its controller creates as many pods as it is told,
and thousands of them would measure the control plane."""
TIMES = (
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2026-11-24T00:00:00.123456789Z",
)
KEYS = tuple(
    value
    for name, value in vars(names).items()
    if name.endswith(("_ANNOTATION", "_LABEL")) and isinstance(value, str) and "/" in value
)
_REFUSED = (ApiServerError, OSError, http.client.HTTPException)


class Attack:
    """A series of hostile writes.

    Parameters
    ----------
    client
        Of an administrator, who impersonates the user, and plays the controllers that write statuses.
    namespace
        Where the user has the role ``edit``.
    user
        The user.
    seed
        Repeats the series.

    Attributes
    ----------
    accepted, refused
        Writes by verb and kind.
    """

    def __init__(self, client: ApiServerClient, namespace: str, user: str, seed: int) -> None:
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._client = client
        self._namespace = namespace
        self._user = user
        self._draw = random.Random(seed)
        self._number = 0
        self._live: deque[str] = deque()
        self._paths: dict[str, Json] = {}
        self._about: list[Json] = []

    def go(self, seconds: float, between: Callable[[], None], about: Callable[[], Json | None]) -> None:
        """Attack for so many seconds.

        Parameters
        ----------
        seconds
            How long.
        between
            Called after each step.
        about
            Returns an object of somebody else, about which Events are written.
        """
        # so that each kind is there, however few writes this machine makes in that time
        for kind in GANG_EXAMPLES:
            self._gang(kind, intact=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            steps = (self._create, self._gang, self._edit, self._status, self._event, self._command)
            for step in self._draw.choices(steps, (6, 2, 3, 5, 3, 2), k=8):
                step()
            if (other := about()) is not None:
                self._forge(other)
            between()

    # ---- steps ---------------------------------------------------------------------------------------------

    def _create(self) -> None:
        self._number += 1
        self._make(*self._draw.choice(_KINDS)(f"h{self._number}"))

    def _gang(self, kind: str = "", *, intact: bool = False) -> None:
        """Write a gang of another project: its object, and its pods or Jobs;
        without a kind, of a drawn one.
        """
        self._number += 1
        for collection, body in gang(kind or self._draw.choice(GANG_EXAMPLES), f"g{self._number}"):
            made = self._make(collection, body, intact=intact)
            if made is not None and collection in GANG_KINDS and not collection.startswith("podgroups"):
                for child in children_of(made, self._draw.choices(range(60), k=2)):
                    self._make(*child, intact=intact)

    def _make(self, collection: str, body: Json, *, intact: bool = False) -> Any:
        """Create an object, with hostile values unless it stays intact; return it, or None if it was refused.
        The oldest are deleted.
        """
        body["metadata"]["namespace"] = self._namespace
        written = (
            body
            if intact
            else self._damaged(body, keep=("apiVersion", "kind", "name", "namespace", "metadata"))
        )
        if (made := self._send("POST", self._path(collection), written)) is not None:
            path = self._path(collection) + "/" + made["metadata"]["name"]
            self._live.append(path)
            self._paths[path] = made
        while len(self._live) > _LIVE:
            old = self._live.popleft()
            self._paths.pop(old, None)
            self._send("DELETE", old, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
        return made

    def _edit(self) -> None:
        if not self._live:
            return
        path = self._draw.choice(self._live)
        patch = self._damaged({"metadata": {"annotations": {}, "labels": {}}}, keep=())
        spec = self._paths[path].get("spec")
        if isinstance(spec, dict) and spec and self._draw.random() < 0.5:
            name = self._draw.choice(sorted(spec))
            patch["spec"] = {name: self._value(spec[name])}
        self._send("PATCH", path, patch)

    def _status(self) -> None:
        """Write a status as its controller might, or an administrator."""
        collection = self._draw.choice(
            ("pods", "pods", "jobs", "jobs", "miniclusters", "persistentvolumeclaims")
        )
        try:
            items = self._client.get(self._path(collection), limit="50")["items"]
        except _REFUSED:
            return
        if not items:
            return
        name, known = self._draw.choice(items)["metadata"]["name"], _STATUSES[collection]
        # of all at once the API server refuses some
        fields = self._draw.sample(sorted(known), self._draw.choice((1, 1, 2, 3)))
        status = self._damaged({"status": {field: known[field] for field in fields}}, keep=("status",))
        self._send("PATCH", f"{self._path(collection)}/{name}/status", status, user=None)

    def _command(self) -> None:
        """Edit a FluxJob, as its owner may."""
        try:
            items = self._client.get(self._path(names.FLUXJOBS), limit="50")["items"]
        except _REFUSED:
            return
        if items:
            spec = self._damaged({"spec": dict(_COMMANDS)}, keep=("spec",))["spec"]
            chosen = {
                field: spec[field] for field in self._draw.sample(sorted(spec), self._draw.choice((1, 2)))
            }
            self._send(
                "PATCH",
                f"{self._path(names.FLUXJOBS)}/{self._draw.choice(items)['metadata']['name']}",
                {"spec": chosen},
            )

    def _event(self) -> None:
        jobs = [each for path, each in self._paths.items() if "/jobs/" in path]
        if not jobs:
            return
        meta = self._draw.choice(jobs)["metadata"]
        self._send(
            "POST",
            self._path("events"),
            self._damaged(self._refusal(meta), keep=("apiVersion", "kind", "name", "namespace")),
        )

    def _forge(self, other: Json) -> None:
        """Say of somebody else's Job that its pods are refused."""
        meta = other["metadata"]
        self._send("POST", self._path("events"), self._refusal({**meta, "namespace": self._namespace}))
        self._send("POST", self._path("events", meta["namespace"]), self._refusal(meta))

    def _refusal(self, meta: Mapping[str, Any]) -> Json:
        self._number += 1
        about = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{self._number}", "namespace": meta["namespace"]},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "Error creating: " + self._draw.choice(TEXTS)[:1000],
            "source": {"component": "job-controller"},
            "involvedObject": about,
        }

    # ---- damage --------------------------------------------------------------------------------------------

    def _damaged(self, body: Json, keep: tuple[str, ...]) -> Json:
        draw, body = self._draw, copy.deepcopy(body)
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            places = [(parent, key) for parent, key in _places(body) if key not in keep]
            if places:
                parent, key = draw.choice(places)
                parent[key] = draw.choice(REPLICAS) if key == "replicas" else self._value(parent[key])
        for meta in _metadata(body):
            for part in ("annotations", "labels"):
                for _ in range(draw.choice((0, 0, 1, 2))):
                    if isinstance(given := meta.get(part) or {}, dict):
                        given[draw.choice(KEYS)] = self._text(short=part == "labels")
                        meta[part] = given
        return body

    def _value(self, former: object) -> object:
        """Return a hostile value, often of the type of the former one: others the API server refuses."""
        draw = self._draw
        if draw.random() < 0.1:
            return draw.choice((None, [], {}, "", 0, [None], {"": ""}, self._text()))
        match former:
            case bool():
                return not former
            case int() | float():
                return draw.choice(NUMBERS)
            case str():
                return self._text()
            case list():
                return draw.choice(
                    ([], former * 2, former * 40, [copy.deepcopy(former[0])] * 3 if former else [""])
                )
            case dict():
                return draw.choice(({}, {**former, self._text(short=True): self._text()}))
        return self._text()

    def _text(self, *, short: bool = False) -> str:
        draw = self._draw
        if short and draw.random() < 0.6:
            return draw.choice(("", "a", "1", "-1", "0", "default", "x" * 63, "A_.b", "9" * 30))
        return draw.choice(TIMES if draw.random() < 0.1 else TEXTS)

    def _path(self, collection: str, namespace: str = "") -> str:
        group, collection = (
            group_and_plural(collection)
            if "." in collection
            else (_GROUPS.get(collection, "/api/v1"), collection)
        )
        return f"{group}/namespaces/{namespace or self._namespace}/{collection}"

    def _send(self, verb: str, path: str, body: Json, user: str | None = "") -> Any:
        label = f"{verb} {path.split('/namespaces/')[-1].split('/')[1]}" + (
            "/status" if path.endswith("/status") else ""
        )
        try:
            answer = self._client.request(verb, path, body, user=self._user if user == "" else user)
        except _REFUSED:
            self.refused[label] += 1
            return None
        self.accepted[label] += 1
        return answer


_GROUPS = {
    "jobs": "/apis/batch/v1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    names.FLUXJOBS: f"/apis/{names.API_VERSION}",
    "miniclusters": f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}",
}


def _job(name: str) -> tuple[str, Json]:
    builder = make_job(name).cpu("10m").pod_annotation(RUN_SECONDS, "1")
    return "jobs", builder.indexed(2).build() if len(name) % 2 else builder.pods(1, 2).build()


def _pod(name: str) -> tuple[str, Json]:
    return "pods", make_pod(name).cpu("10m").annotation(RUN_SECONDS, "1").with_(
        "spec.restartPolicy", "Never"
    ).build()


def _scaled(kind: str) -> Callable[[str], tuple[str, Json]]:
    def made(name: str) -> tuple[str, Json]:
        pod = make_pod(name).cpu("10m").build()
        template = {"metadata": {"labels": {"app": name}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
        spec: Json = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
        return kind.lower() + "s", {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }

    return made


def _group_pod(name: str) -> tuple[str, Json]:
    body = (
        make_pod(name)
        .cpu("10m")
        .label(names.POD_GROUP_LABEL, "group")
        .annotation(names.POD_GROUP_SIZE_ANNOTATION, "2")
        .build()
    )
    return "pods", body


def _claim(name: str) -> tuple[str, Json]:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none",
    }
    return "persistentvolumeclaims", {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def _config(name: str) -> tuple[str, Json]:
    return "configmaps", {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"a": "b"},
    }


def _minicluster(name: str) -> tuple[str, Json]:
    return "miniclusters", make_minicluster(name)


def _device_claim(name: str) -> tuple[str, Json]:
    return "resourceclaims", {**a_claim(name), "metadata": {"name": name}}


def _device_template(name: str) -> tuple[str, Json]:
    return "resourceclaimtemplates", {**a_template(name), "metadata": {"name": name}}


_KINDS: tuple[Callable[[str], tuple[str, Json]], ...] = (
    _job,
    _job,
    _job,
    _pod,
    _pod,
    _group_pod,
    _scaled("Deployment"),
    _scaled("StatefulSet"),
    _scaled("ReplicaSet"),
    _claim,
    _config,
    _minicluster,
    _minicluster,
    _device_claim,
    _device_template,
)
_CONDITION: Json = {
    "type": "Ready",
    "status": "False",
    "reason": "Odd",
    "message": "odd",
    "lastTransitionTime": "2026-11-24T00:00:00Z",
    "lastProbeTime": "2026-11-24T00:00:00Z",
}
_TERMINATED: Json = {
    "exitCode": 1,
    "reason": "Error",
    "message": "odd",
    "signal": 9,
    "finishedAt": "2026-11-24T00:00:00Z",
}
_COMMANDS: Json = {"cancel": False, "hold": True, "priority": 1, "durationSeconds": 60, "queue": "default"}
_STATUSES: Mapping[str, Json] = {
    "pods": {
        "phase": "Failed",
        "message": "odd",
        "reason": "Evicted",
        "startTime": "2026-11-24T00:00:00Z",
        "podIP": "10.0.0.1",
        "nominatedNodeName": "node-1",
        "conditions": [
            _CONDITION,
            {**_CONDITION, "type": "PodScheduled"},
            {**_CONDITION, "type": "DisruptionTarget", "status": "True"},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": "a",
                "imageID": "b",
                "ready": False,
                "restartCount": 1,
                "state": {"terminated": _TERMINATED},
                "lastState": {"terminated": _TERMINATED},
            }
        ],
    },
    "jobs": {
        "active": 1,
        "ready": 1,
        "failed": 1,
        "succeeded": 1,
        "terminating": 1,
        "completedIndexes": "0",
        "failedIndexes": "1",
        "startTime": "2026-11-24T00:00:00Z",
        "uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]},
        "conditions": [{**_CONDITION, "type": "Suspended"}],
    },
    "miniclusters": {
        "jobid": "1",
        "maximumSize": 2,
        "conditions": [{**_CONDITION, "type": "JobFinished"}],
        "state": "Running",
        "message": "odd",
        "brokers": "1/2",
        "brokersOnline": 1,
        "nodes": "node-[3-4]",
        "queue": "default",
        "exitCode": 1,
        "startedAt": "2026-11-24T00:00:00Z",
        "formedAt": "2026-11-24T00:00:00Z",
        "finishedAt": "2026-11-24T00:00:00Z",
        "selector": "a=b",
        "size": 2,
    },
    "persistentvolumeclaims": {
        "phase": "Bound",
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "conditions": [_CONDITION],
    },
}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a value, as its container and the key in it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield value, key
            yield from _places(each)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield value, place
            yield from _places(each)


def _metadata(body: Any) -> Iterator[Json]:
    """Yield the metadata of an object and of the template in it."""
    spec = body.get("spec")
    for part in (body, spec.get("template") if isinstance(spec, dict) else None):
        if isinstance(part, dict) and isinstance(meta := part.get("metadata"), dict):
            yield meta
