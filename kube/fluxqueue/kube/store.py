"""A cache of one kind's objects with indexes, and the changes between its states.

The reflector writes it, everybody else reads. Objects are immutable structs, so what a reader holds never changes under it; a reader
asks again to see news. Handlers are told of each change once, synchronously and in order, and are meant to do no more than put a key
into a work queue.

A name that comes back with another uid is another object: handlers then see DELETED of the old and ADDED of the new, never MODIFIED,
because everything the queue knows hangs on the uid. The same holds for what a relist finds changed.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic

import structlog

from fluxqueue.kube.kinds import Key, T

__all__ = ["Change", "ChangeKind", "Store"]

log: Final = structlog.get_logger(__name__)


class ChangeKind(enum.StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One step from one state of the store to the next.

    ``old`` is None for ADDED, ``new`` for DELETED. For DELETED, ``old`` is the last state known: the one the watch delivered with the
    deletion, or what was stored when a relist found the object gone.
    """

    kind: ChangeKind
    old: T | None
    new: T | None

    @property
    def obj(self) -> T:
        """The newest state known."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


class Store(Generic[T]):
    """Objects of one kind by (namespace, name)."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._by_uid: dict[str, T] = {}
        self._indexers: dict[str, Callable[[T], Iterable[Hashable]]] = {}
        self._indexes: dict[str, dict[Hashable, dict[Key, T]]] = {}
        self._handlers: list[Callable[[Change[T]], None]] = []
        self.handler_failures = 0

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, namespace: str, name: str) -> T | None:
        """The object of this name, or None; ``namespace`` is empty for cluster-scoped kinds."""
        return self._objects.get((namespace, name))

    def get_by_uid(self, uid: str) -> T | None:
        """The object with this uid, or None."""
        return self._by_uid.get(uid)

    def list(self, namespace: str | None = None) -> list[T]:
        """All objects, or those of one namespace, in no particular order."""
        if namespace is None:
            return [*self._objects.values()]
        return [obj for (where, _), obj in self._objects.items() if where == namespace]

    def add_index(self, name: str, values: Callable[[T], Iterable[Hashable]]) -> None:
        """Keep an index; objects already there are indexed at once.

        Parameters
        ----------
        name
            For :meth:`by_index`.
        values
            The keys under which an object is found: none, one or several. Must be a pure function of the object.

        Raises
        ------
        ValueError
            If there is an index of that name.
        """
        if name in self._indexers:
            raise ValueError(f"there is an index {name!r} already")
        self._indexers[name] = values
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(name, key, obj)

    def by_index(self, name: str, value: Hashable) -> builtins.list[T]:
        """Objects that the index files under ``value``.

        Raises
        ------
        KeyError
            If there is no index of that name.
        """
        return [*self._indexes[name].get(value, {}).values()]

    def add_handler(self, handler: Callable[[Change[T]], None]) -> None:
        """Tell ``handler`` of every change from now on, and at once of each object that is there already, as ADDED."""
        self._handlers.append(handler)
        for obj in [*self._objects.values()]:
            self._tell(handler, Change(ChangeKind.ADDED, None, obj))

    def apply(self, obj: T) -> None:
        """Put an object that was created or changed; the state that is already stored is no change."""
        key = _key(obj)
        old = self._objects.get(key)
        if old is None:
            self._put(key, obj)
            self._notify(Change(ChangeKind.ADDED, None, obj))
        elif old.metadata.uid != obj.metadata.uid:
            self.remove(old)
            self.apply(obj)
        elif old.metadata.resource_version != obj.metadata.resource_version:
            self._drop(key, old)
            self._put(key, obj)
            self._notify(Change(ChangeKind.MODIFIED, old, obj))

    def remove(self, obj: T) -> None:
        """Take an object out, ``obj`` being its last state; one that is not there, or has been replaced by another, is no change."""
        key = _key(obj)
        old = self._objects.get(key)
        if old is not None and old.metadata.uid == obj.metadata.uid:
            self._drop(key, old)
            self._notify(Change(ChangeKind.DELETED, obj, None))

    def replace(self, objects: Iterable[T]) -> None:
        """Make the content equal to a fresh list and tell handlers the difference, deletions first."""
        fresh = {_key(obj): obj for obj in objects}
        for key, old in [*self._objects.items()]:
            new = fresh.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                self.remove(old)
        for obj in fresh.values():
            self.apply(obj)

    def _put(self, key: Key, obj: T) -> None:
        self._objects[key] = obj
        self._by_uid[obj.metadata.uid] = obj
        for name in self._indexers:
            self._index(name, key, obj)

    def _drop(self, key: Key, obj: T) -> None:
        del self._objects[key]
        del self._by_uid[obj.metadata.uid]
        for name, values in self._indexers.items():
            index = self._indexes[name]
            for value in {*values(obj)}:
                index[value].pop(key)
                if not index[value]:
                    del index[value]

    def _index(self, name: str, key: Key, obj: T) -> None:
        index = self._indexes[name]
        for value in self._indexers[name](obj):
            index.setdefault(value, {})[key] = obj

    def _notify(self, change: Change[T]) -> None:
        for handler in self._handlers:
            self._tell(handler, change)

    def _tell(self, handler: Callable[[Change[T]], None], change: Change[T]) -> None:
        """A handler's bug must not stop the cache for everybody else; the sweep finds what it missed."""
        try:
            handler(change)
        except Exception:
            self.handler_failures += 1
            meta = change.obj.metadata
            log.exception("store.handler_failed", change=change.kind.value, namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _key(obj: T) -> Key:
    return obj.metadata.namespace, obj.metadata.name
