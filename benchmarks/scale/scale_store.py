"""The objects of the API server stand-in: collections with versions, a short history for watches, and owners.

Objects are plain JSON values that are never changed in place: a write replaces the object. So a list, a watch
and the history share them.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from scale_objects import Json
from support.json_patches import PatchFailed, apply_patch
from support.memory_api import merged

__all__ = ["ObjectStore", "Refused", "Selection", "Watcher"]

_HISTORY = 20_000
_STRATEGIC = "application/strategic-merge-patch+json"
Key = tuple[str, str, str]
"""Plural, namespace, name."""


class Refused(Exception):
    """A request is refused: HTTP status, reason, and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason

    def body(self) -> bytes:
        """Return the Status object."""
        return orjson.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "code": self.status,
                "reason": self.reason,
                "message": str(self),
            }
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind a list or a watch has."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, namespace: str, query: Mapping[str, str]) -> Selection:
        """Read the selectors of a query; only equality is known."""
        pairs = [
            tuple(
                (term.split("=", 1)[0].rstrip("!"), term.split("=", 1)[1].lstrip("="))
                for term in query.get(name, "").split(",")
                if "=" in term
            )
            for name in ("labelSelector", "fieldSelector")
        ]
        if any(
            "!=" in query.get(name, "") or " in " in query.get(name, "")
            for name in ("labelSelector", "fieldSelector")
        ):
            raise Refused(400, "BadRequest", "the stand-in knows selectors of equality only")
        return cls(namespace, *pairs)

    def has(self, obj: Json | None) -> bool:
        """Return True if an object is selected."""
        if obj is None:
            return False
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        labels = meta.get("labels") or {}
        return all(labels.get(name) == value for name, value in self.labels) and all(
            _field(obj, path) == value for path, value in self.fields
        )


@dataclass(frozen=True, slots=True)
class _Event:
    version: int
    former: Json | None
    present: Json | None
    at: Json

    def line(self, selection: Selection) -> bytes | None:
        """Return the event as a watch with this selection sends it; None if it concerns no object of it."""
        before, after = selection.has(self.former), selection.has(self.present)
        if not before and not after:
            return None
        kind = "ADDED" if not before else "MODIFIED" if after else "DELETED"
        return orjson.dumps({"type": kind, "object": self.at}) + b"\n"


class Watcher:
    """One open watch: the lines that wait to be sent."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.lines: list[bytes] = []
        self.woken = asyncio.Event()

    def offer(self, event: _Event) -> None:
        """Add an event."""
        if (line := event.line(self.selection)) is not None:
            self.lines.append(line)
            self.woken.set()


@dataclass(slots=True)
class _Collection:
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    history: deque[_Event] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    watchers: set[Watcher] = field(default_factory=set)
    dropped_to: int = 0


class ObjectStore:
    """All objects.

    Attributes
    ----------
    changed
        Is called with plural, former and present object after each change.
    writes
        Number of accepted writes by verb and resource.
    """

    def __init__(self) -> None:
        self.changed: Callable[[str, Json | None, Json | None], None] = lambda _plural, _former, _present: (
            None
        )
        self.writes: dict[str, int] = {}
        self._collections: dict[str, _Collection] = {}
        self._owned: dict[str, set[Key]] = {}
        self._versions = itertools.count(1)
        self.version = 0

    def collection(self, plural: str) -> dict[tuple[str, str], Json]:
        """Return the objects of a kind by namespace and name."""
        return self._of(plural).objects

    def _of(self, plural: str) -> _Collection:
        return self._collections.setdefault(plural, _Collection())

    # ---- reads ---------------------------------------------------------------------------------------------

    def get(self, plural: str, namespace: str, name: str) -> Json:
        """Return an object."""
        obj = self._of(plural).objects.get((namespace, name))
        if obj is None:
            raise Refused(404, "NotFound", f'{plural} "{name}" not found')
        return obj

    def select(self, plural: str, selection: Selection) -> list[Json]:
        """Return the selected objects."""
        return [obj for obj in self._of(plural).objects.values() if selection.has(obj)]

    def watch(self, plural: str, selection: Selection, since: int) -> Watcher:
        """Open a watch that begins with what happened since a version."""
        collection = self._of(plural)
        if since < collection.dropped_to:
            raise Refused(
                410,
                "Expired",
                f"the version {since} is too old: the history begins at {collection.dropped_to}",
            )
        watcher = Watcher(selection)
        for event in collection.history:
            if event.version > since:
                watcher.offer(event)
        collection.watchers.add(watcher)
        return watcher

    def unwatch(self, plural: str, watcher: Watcher) -> None:
        """Close a watch."""
        self._of(plural).watchers.discard(watcher)

    # ---- writes --------------------------------------------------------------------------------------------

    def create(self, plural: str, namespace: str, body: Json) -> Json:
        """Create an object."""
        meta = dict(body.get("metadata") or {})
        if namespace:
            meta["namespace"] = namespace
        name = meta.setdefault("name", f"{meta.get('generateName', '')}{self.version}")
        if (namespace, name) in self._of(plural).objects:
            raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
        meta.setdefault("uid", str(uuid.UUID(int=(1 << 126) + self.version, version=4)))
        meta.update(creationTimestamp="2026-11-22T08:00:00Z", generation=1)
        return self._put(plural, (namespace, name), {**body, "metadata": meta}, None)

    def patch(
        self, plural: str, namespace: str, name: str, body: Any, content_type: str, *, status: bool
    ) -> Json:
        """Patch an object or its status."""
        former = self.get(plural, namespace, name)
        if isinstance(body, list):
            try:
                changed = apply_patch(former, body)
            except PatchFailed as error:
                raise Refused(422, "Invalid", str(error)) from error
        else:
            self._check(former, body.get("metadata") or {})
            changed = merged(former, body, by_key=content_type == _STRATEGIC)
        if status:
            changed = {**former, "metadata": changed["metadata"], "status": changed.get("status") or {}}
        return self.replace(plural, former, changed)

    def replace(self, plural: str, former: Json, changed: Json) -> Json:
        """Replace an object; nothing happens if nothing differs."""
        if changed == former:
            return former
        meta = dict(changed["metadata"])
        if changed.get("spec") != former.get("spec"):
            meta["generation"] = former["metadata"]["generation"] + 1
        return self._put(
            plural, (meta.get("namespace", ""), meta["name"]), {**changed, "metadata": meta}, former
        )

    def delete(self, plural: str, namespace: str, name: str, preconditions: Mapping[str, str]) -> Json:
        """Delete an object and all that it owns."""
        former = self.get(plural, namespace, name)
        self._check(former, preconditions)
        del self._of(plural).objects[namespace, name]
        self._tell(plural, former, None)
        for owner in former["metadata"].get("ownerReferences") or ():
            self._owned.get(owner["uid"], set()).discard((plural, namespace, name))
        for key in self._owned.pop(former["metadata"]["uid"], set()):
            if key[1:] in self._of(key[0]).objects:
                self.delete(*key, {})
        return former

    def count(self, what: str) -> None:
        """Count a write."""
        self.writes[what] = self.writes.get(what, 0) + 1

    def _check(self, obj: Json, wanted: Mapping[str, str]) -> None:
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) not in (None, "", obj["metadata"][name]):
                raise Refused(409, "Conflict", f"{name} is {obj['metadata'][name]}, not {wanted[name]}")

    def _put(self, plural: str, key: tuple[str, str], obj: Json, former: Json | None) -> Json:
        for owner in (obj["metadata"].get("ownerReferences") or ()) if former is None else ():
            self._owned.setdefault(owner["uid"], set()).add((plural, *key))
        self._of(plural).objects[key] = obj
        self._tell(plural, former, obj)
        return obj

    def _tell(self, plural: str, former: Json | None, present: Json | None) -> None:
        self.version = next(self._versions)
        obj = present if present is not None else dict(former or {})
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.version)}
        collection = self._of(plural)
        if len(collection.history) == _HISTORY:
            collection.dropped_to = collection.history[0].version
        event = _Event(self.version, former, present, obj)
        collection.history.append(event)
        for watcher in collection.watchers:
            watcher.offer(event)
        self.changed(plural, former, present)


def _field(obj: Json, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def status_of(obj: Json) -> Json:
    """Return the status of an object; empty if there is none."""
    return dict(obj.get("status") or {})


def finished(jobs: Iterable[Json]) -> int:
    """Return how many Jobs have completed."""
    return sum(1 for job in jobs if status_of(job).get("completionTime"))
