"""An API server in memory, for unit tests of controllers.

It speaks below `fluxqueue.kube.transport.Api`, so the paths, bodies and errors of the real client are used.
It keeps objects as JSON and does what controllers rely on: uids, resource versions, generations,
preconditions, the three kinds of patches, bindings, and the removal of owned objects. It knows no admission,
no schema, no RBAC and no controllers.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote

import orjson
from support.json_patches import PatchFailed, apply_patch

from fluxqueue.kube import kinds
from fluxqueue.kube.decoding import decode_object
from fluxqueue.kube.errors import ApiError, decode_error
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.wire import Request, Wire
from fluxqueue.queue.cluster.caches import Caches

__all__ = ["MemoryApi", "Write"]

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace, name."""

_MERGE_KEYS: Final = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "schedulingGates": "name",
    "ownerReferences": "uid",
    "volumes": "name",
    "env": "name",
}
"""Lists that a strategic merge patch merges by a key of their items; other lists are replaced."""
_KINDS: Final[Mapping[str, Kind[Any]]] = {
    kind.plural: kind for kind in vars(kinds).values() if isinstance(kind, Kind)
}


@dataclass(frozen=True, slots=True)
class Write:
    """A request that was not a read, as it arrived."""

    verb: str
    resource: str
    """Plural, with the subresource after a slash."""
    namespace: str
    name: str
    body: Any


class MemoryApi:
    """Objects, the requests, and the watchers.

    Attributes
    ----------
    api
        The client that controllers get.
    writes
        Every write that was accepted, in order.
    calls_refused
        How many requests were refused because a test wanted it.
    dropped
        Plural, and a field of its spec that a schema does not know: patches of it are accepted and change
        nothing.
    status_subresources
        By plural: true if only the subresource changes the status, false if there is no such subresource.
        Other kinds take both.
    warnings
        Of admission, to whoever creates an object.
    """

    def __init__(self) -> None:
        self.api = Api(cast("Wire", self))
        self.writes: list[Write] = []
        self._objects: dict[Key, Json] = {}
        self._versions = itertools.count(1)
        self._stores: dict[str, ObjectCache[Any]] = {}
        self._failures: list[tuple[str, str, Callable[[], ApiError]]] = []
        self.calls_refused = 0
        self.warnings: list[str] = []
        self.dropped: tuple[str, str] | None = None
        self._paused = False
        self._undelivered: list[tuple[str, Json, bool]] = []
        self.status_subresources: dict[str, bool] = {}
        self.calls: dict[tuple[str, str], int] = {}
        self.on_call: Any = None
        self.may_write: Any = None

    # ---- for tests -----------------------------------------------------------------------------------------

    def show_in(self, caches: Caches) -> None:
        """Deliver each change to the stores of the queue's caches at once."""
        stores = {
            "jobs": caches.jobs,
            "pods": caches.pods,
            "nodes": caches.nodes,
            "namespaces": caches.namespaces,
            "priorityclasses": caches.priority_classes,
            "fluxjobs": caches.fluxjobs,
            "fluxqueues": caches.fluxqueues,
            "fluxaccounts": caches.fluxaccounts,
            "fluxreservations": caches.fluxreservations,
            "daemonsets": caches.daemonsets,
            "limitranges": caches.limit_ranges,
            "runtimeclasses": caches.runtime_classes,
            "resourcequotas": caches.resource_quotas,
            "serviceaccounts": caches.service_accounts,
            "poddisruptionbudgets": caches.disruption_budgets,
            "miniclusters": caches.miniclusters,
            "persistentvolumeclaims": caches.storage.claims,
            "persistentvolumes": caches.storage.volumes,
            "storageclasses": caches.storage.classes,
            "csinodes": caches.storage.csi_nodes,
            "deviceclasses": caches.devices.classes,
            "resourceslices": caches.devices.slices,
            "resourceclaims": caches.devices.claims,
            "resourceclaimtemplates": caches.devices.templates,
        }
        for plural, store in stores.items():
            self.watch_into(plural, cast("ObjectCache[Any]", store))

    def watch_into(self, plural: str, store: ObjectCache[Any]) -> None:
        """Deliver the changes of one kind to a store, beginning with the objects that exist."""
        self._stores[plural] = store
        for key, body in self._objects.items():
            if key[0] == plural:
                self._deliver(plural, body, gone=False)

    def pause(self) -> None:
        """Delay changes to the stores, as a slow watch does."""
        self._paused = True

    def resume(self) -> None:
        """Deliver the delayed changes in order, and each later change at once."""
        self._paused = False
        waiting, self._undelivered = self._undelivered, []
        for plural, body, gone in waiting:
            self._deliver(plural, body, gone=gone)

    def put(self, plural: str, body: Json) -> Any:
        """Create or replace an object as an administrator or another controller would,
        and return it as its struct.
        """
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        if _KINDS[plural].namespaced:
            meta.setdefault("namespace", "default")
        key = (plural, meta.get("namespace", ""), meta["name"])
        former = self._objects.get(key)
        if former is not None:
            meta.setdefault("uid", former["metadata"]["uid"])
        return decode_object(orjson.dumps(self._store(key, body, former)), _KINDS[plural].type)

    def remove(self, plural: str, name: str, namespace: str = "default") -> None:
        """Remove an object, with what it owns."""
        self._remove((plural, namespace if _KINDS[plural].namespaced else "", name))

    def get(self, plural: str, name: str, namespace: str = "default") -> Any:
        """Return the current state of an object as JSON; None if there is none."""
        return self._objects.get((plural, namespace if _KINDS[plural].namespaced else "", name))

    def all(self, plural: str) -> list[Json]:
        """Return the objects of a kind as JSON."""
        return [body for (kind, _, _), body in self._objects.items() if kind == plural]

    def fail_next(
        self,
        verb: str,
        resource: str,
        status: int,
        reason: str,
        message: str = "as the test wants it",
        field: str = "",
    ) -> None:
        """Refuse the next request of this verb, such as ``patch``, for a resource, such as ``pods/status``,
        because of a field if one is named.
        """
        self._failures.append((verb, resource, lambda: _error(status, reason, message, verb, field)))

    def written(self, verb: str, resource: str) -> list[Write]:
        """Return the accepted writes of this verb and resource, in order."""
        return [write for write in self.writes if (write.verb, write.resource) == (verb, resource)]

    # ---- the wire ------------------------------------------------------------------------------------------

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        """Answer one request."""
        del timeout_s, tries
        plural, namespace, name, subresource = _parse(request.path)
        resource = f"{plural}/{subresource}" if subresource else plural
        for failure in self._failures:
            if failure[:2] == (request.verb, resource):
                self._failures.remove(failure)
                self.calls_refused += 1
                raise failure[2]()
        body = orjson.loads(request.body) if request.body else {}
        match request.method:
            case "POST" if plural == "selfsubjectaccessreviews":
                return orjson.dumps({"status": {"allowed": True}})
            case "GET" if name:
                answer = self._existing((plural, namespace, name), request)
            case "GET":
                return self._list(plural, namespace, request.query or {})
            case "POST" if subresource == "binding":
                answer = self._bind((plural, namespace, name), body, request)
            case "POST" if subresource == "eviction":
                key = (plural, namespace, name)
                self._check(key, body.get("deleteOptions", {}).get("preconditions", {}), request)
                answer = {"kind": "Status", "status": "Success"}
                self._remove(key)
            case "POST":
                answer = self._create(plural, namespace, body, request)
                if (warned := request.warned) is not None:
                    for text in self.warnings:
                        warned(text)
                name = answer["metadata"]["name"]
            case "PATCH":
                answer = self._patch((plural, namespace, name), subresource, body, request)
            case "DELETE":
                key = (plural, namespace, name)
                self._check(key, body.get("preconditions", {}), request)
                answer = self._existing(key, request)
                self._remove(key)
            case method:
                raise AssertionError(f"the API server in memory has no {method} {request.path}")
        if not request.reads and not (request.query or {}).get("dryRun"):
            self.writes.append(Write(request.verb, resource, namespace, name, body))
        return orjson.dumps(answer)

    def with_limits(self, *, timeout_s: float, max_in_flight: int) -> MemoryApi:
        """Return the same server, because connections have no deadline here."""
        del timeout_s, max_in_flight
        return self

    def _existing(self, key: Key, request: Request) -> Json:
        if (body := self._objects.get(key)) is None:
            raise _error(404, "NotFound", f'{key[0]} "{key[2]}" not found', request.action)
        return body

    def _list(self, plural: str, namespace: str, query: Mapping[str, str]) -> bytes:
        terms = [term for term in query.get("labelSelector", "").split(",") if term]
        labels = [tuple(term.split("=", 1)) for term in terms if "=" in term]
        present = [term for term in terms if "=" not in term and " " not in term and not term.startswith("!")]
        fields = [
            tuple(term.split("=", 1)) for term in query.get("fieldSelector", "").split(",") if "=" in term
        ]
        items = [
            body
            for (kind, space, _), body in self._objects.items()
            if kind == plural
            and namespace in ("", space)
            and all(body["metadata"].get("labels", {}).get(label) == value for label, value in labels)
            and all(label in body["metadata"].get("labels", {}) for label in present)
            and all(
                (str(_field(body, path.removesuffix("!")) or "") == value) is not path.endswith("!")
                for path, value in fields
            )
        ]
        return orjson.dumps({"metadata": {"resourceVersion": str(next(self._versions))}, "items": items})

    def _create(self, plural: str, namespace: str, body: Json, request: Request) -> Json:
        meta = body.setdefault("metadata", {})
        if _KINDS[plural].namespaced:
            meta["namespace"] = namespace
        if "name" not in meta:
            meta["name"] = f"{meta['generateName']}{next(self._versions)}"
        key = (plural, namespace, meta["name"])
        if key in self._objects:
            raise _error(409, "AlreadyExists", f'{plural} "{meta["name"]}" already exists', request.action)
        if self.status_subresources.get(plural):
            body.pop("status", None)
        return body if (request.query or {}).get("dryRun") else self._store(key, body, None)

    def _patch(self, key: Key, subresource: str, patch: Any, request: Request) -> Json:
        former = self._existing(key, request)
        if subresource == "status" and self.status_subresources.get(key[0]) is False:
            raise _error(404, "NotFound", "the server could not find the requested resource", request.action)
        if isinstance(patch, list):
            try:
                changed = apply_patch(former, patch)
            except PatchFailed as error:
                raise _error(422, "Invalid", str(error), request.action) from error
        else:
            self._check(key, patch.get("metadata", {}), request)
            changed = merged(former, patch, by_key=request.content_type == PatchType.STRATEGIC.value)
        if self.dropped is not None and self.dropped[0] == key[0]:
            changed = {
                **changed,
                "spec": {name: value for name, value in changed["spec"].items() if name != self.dropped[1]},
            }
        if subresource == "status":
            changed = {**former, "metadata": changed["metadata"], "status": changed.get("status", {})}
        elif self.status_subresources.get(key[0]):
            changed = {**changed, "status": former.get("status", {})}
        return self._store(key, changed, former)

    def _bind(self, key: Key, binding: Json, request: Request) -> Json:
        pod = self._existing(key, request)
        self._check(key, binding["metadata"], request)
        if pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"):
            raise _error(409, "Conflict", f"pod {key[2]} is bound or gated", request.action)
        self._store(key, {**pod, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}}, pod)
        return {"kind": "Status", "status": "Success"}

    def _check(self, key: Key, wanted: Mapping[str, str], request: Request) -> None:
        meta = self._existing(key, request)["metadata"]
        for field in ("uid", "resourceVersion"):
            if wanted.get(field) not in (None, "", meta[field]):
                raise _error(
                    409,
                    "Conflict",
                    f"{field} of {key[2]} is {meta[field]}, not {wanted[field]}",
                    request.action,
                )

    def _store(self, key: Key, body: Json, former: Json | None) -> Json:
        body = copy.deepcopy(body)
        meta = body["metadata"]
        version = next(self._versions)
        meta.setdefault("uid", f"{key[0]}-{key[2]}-{version}")
        meta.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
        meta["resourceVersion"] = str(version)
        if former is None:
            meta.setdefault("generation", 1)
        elif former.get("spec") != body.get("spec"):
            meta["generation"] = former["metadata"]["generation"] + 1
        else:
            meta.setdefault("generation", former["metadata"]["generation"])
        self._objects[key] = body
        self._deliver(key[0], body, gone=False)
        return body

    def _remove(self, key: Key) -> None:
        body = self._objects.pop(key, None)
        if body is None:
            return
        self._deliver(key[0], body, gone=True)
        uid = body["metadata"]["uid"]
        for other, owned in list(self._objects.items()):
            if any(owner["uid"] == uid for owner in owned["metadata"].get("ownerReferences", ())):
                self._remove(other)

    def _deliver(self, plural: str, body: Json, *, gone: bool) -> None:
        if self._paused:
            self._undelivered.append((plural, copy.deepcopy(body), gone))
        elif (store := self._stores.get(plural)) is not None:
            obj = decode_object(orjson.dumps(body), _KINDS[plural].type)
            (store.remove if gone else store.apply)(obj)


def merged(document: Any, patch: Any, *, by_key: bool) -> Any:
    """Return a document after a merge patch (RFC 7396);
    with ``by_key`` after a strategic one, which merges some lists by a key.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif by_key and name in _MERGE_KEYS and isinstance(value, list):
            result[name] = _merged_lists(result.get(name, []), value, _MERGE_KEYS[name])
        else:
            result[name] = merged(result.get(name), value, by_key=by_key)
    return result


def _merged_lists(items: Iterable[Json], patches: Iterable[Json], key: str) -> list[Json]:
    result = {item[key]: item for item in items}
    for patch in patches:
        if patch.get("$patch") == "delete":
            result.pop(patch[key], None)
        elif key in patch:
            result[patch[key]] = merged(result.get(patch[key], {}), patch, by_key=True)
    return list(result.values())


def _parse(path: str) -> tuple[str, str, str, str]:
    """Return plural, namespace, name and subresource of a path of the API. Missing parts are empty."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return plural, namespace, name, subresource


def _field(body: Json, path: str) -> Any:
    value: Any = body
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value


def _error(status: int, reason: str, message: str, doing: str, field: str = "") -> ApiError:
    answer: Json = {"kind": "Status", "code": status, "reason": reason, "message": message}
    if field:
        answer["details"] = {"causes": [{"field": field, "message": message}]}
    return decode_error(status, orjson.dumps(answer), action=doing)
