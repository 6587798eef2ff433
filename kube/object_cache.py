"""A cache of the objects of one kind, with indexes and change handlers.

A reflector writes it, all others read it. Objects are immutable structs, so the object that a reader holds
does not change; to see a newer state, the reader gets it again. Handlers are called once for each change,
synchronously and in order. They should only add a key to a work queue.

If a name appears with another uid, it is another object: handlers get DELETED for the old one and ADDED for
the new one, and never MODIFIED, because the queue identifies objects by their uid. The same holds for the
differences that a relist finds.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Generic

import structlog

from fluxqueue.kube.kinds import Key, T

__all__ = ["Change", "ChangeKind", "ObjectCache", "PassingCache"]

log: Final = structlog.get_logger(__name__)


_PART: Final = 200


class ChangeKind(enum.StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change of one object.

    ``old`` is None for ADDED, ``new`` is None for DELETED. For DELETED, ``old`` is the last known state: the
    one in the watch event, or the one in the cache if a relist noticed the deletion.
    """

    kind: ChangeKind
    old: T | None
    new: T | None

    @property
    def obj(self) -> T:
        """The newest known state."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


class ObjectCache(Generic[T]):
    """Objects of one kind by (namespace, name)."""

    keeps: ClassVar[bool] = True
    """False if objects are only passed on."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._by_uid: dict[str, T] = {}
        self._indexers: dict[str, Callable[[T], Iterable[Hashable]]] = {}
        self._indexes: dict[str, dict[Hashable, T | dict[Key, T]]] = {}
        """A value that only one object has leads to that: a dict for each would take as much as the
        object."""
        self._handlers: list[Callable[[Change[T]], None]] = []

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object of a name, or None; ``namespace`` is empty for cluster-scoped kinds."""
        return self._objects.get((namespace, name))

    def get_by_uid(self, uid: str) -> T | None:
        """Return the object with a uid, or None."""
        return self._by_uid.get(uid)

    def list(self, namespace: str | None = None) -> list[T]:
        """Return all objects, or those of one namespace, in no particular order."""
        if namespace is None:
            return [*self._objects.values()]
        return [obj for (where, _), obj in self._objects.items() if where == namespace]

    def add_index(self, name: str, values: Callable[[T], Iterable[Hashable]]) -> None:
        """Add an index, and index the objects that are in the cache.

        Parameters
        ----------
        name
            Name for :meth:`by_index`.
        values
            Returns the values under which an object is indexed: none, one or several. It must be a pure
            function of the object.

        Raises
        ------
        ValueError
            An index of that name exists.
        """
        if name in self._indexers:
            raise ValueError(f"there is an index {name!r} already")
        self._indexers[name] = values
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(name, key, obj)

    def by_index(self, name: str, value: Hashable) -> builtins.list[T]:
        """Return the objects that are indexed under ``value``.

        Raises
        ------
        KeyError
            There is no index of that name.
        """
        found = self._indexes[name].get(value)
        if found is None:
            return []
        return [*found.values()] if isinstance(found, dict) else [found]

    def add_handler(self, handler: Callable[[Change[T]], None]) -> None:
        """Call ``handler`` for every future change, and now for each object in the cache, as ADDED."""
        for _ in self.adding_handler(handler):
            pass

    def adding_handler(self, handler: Callable[[Change[T]], None]) -> Iterator[None]:
        """Do what `add_handler` does in parts, each of some hundred objects;
        between two of them other work may go on, and objects may change.
        """
        untold = dict(self._objects)

        def told(change: Change[T]) -> None:
            if untold.pop(_key(change.obj), None) is None:
                handler(change)
            elif change.new is not None:
                handler(Change(ChangeKind.ADDED, None, change.new))

        self._handlers.append(told)
        for number, key in enumerate([*untold], start=1):
            if (obj := untold.pop(key, None)) is not None:
                self._call(handler, Change(ChangeKind.ADDED, None, obj))
            if number % _PART == 0:
                yield
        self._handlers[self._handlers.index(told)] = handler

    def apply(self, obj: T) -> None:
        """Store an object that was created or changed; the version that is already stored is ignored."""
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
        """Remove an object, with ``obj`` as its last state;
        it is ignored if it is missing or replaced by another object.
        """
        key = _key(obj)
        old = self._objects.get(key)
        if old is not None and old.metadata.uid == obj.metadata.uid:
            self._drop(key, old)
            self._notify(Change(ChangeKind.DELETED, obj, None))

    def replace(self, objects: Iterable[T]) -> None:
        """Make the content equal to a new list, and call the handlers for the differences,
        deletions first.
        """
        for _ in self.replacing(objects):
            pass

    def replacing(self, objects: Iterable[T]) -> Iterator[None]:
        """Do what `replace` does in parts, each of some hundred objects;
        between two of them other work may go on.
        """
        fresh = {_key(obj): obj for obj in objects}
        for number, (key, old) in enumerate([*self._objects.items()], start=1):
            new = fresh.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                self.remove(old)
            if number % _PART == 0:
                yield
        for number, obj in enumerate(fresh.values(), start=1):
            self.apply(obj)
            if number % _PART == 0:
                yield

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
            for value in self._values(values, obj):
                found = index[value]
                if isinstance(found, dict):
                    del found[key]
                if not isinstance(found, dict) or not found:
                    del index[value]

    def _index(self, name: str, key: Key, obj: T) -> None:
        index = self._indexes[name]
        for value in self._values(self._indexers[name], obj):
            found = index.get(value)
            if found is None:
                index[value] = obj
            elif isinstance(found, dict):
                found[key] = obj
            else:
                index[value] = {_key(found): found, key: obj}

    def _values(self, values: Callable[[T], Iterable[Hashable]], obj: T) -> set[Hashable]:
        """Return the values under which an object is indexed.
        If they cannot be found it is in no index, and in the cache all the same.
        """
        try:
            return {*values(obj)}
        except Exception:
            meta = obj.metadata
            log.exception("cache.index_failed", namespace=meta.namespace, name=meta.name, uid=meta.uid)
            return set()

    def _notify(self, change: Change[T]) -> None:
        for handler in self._handlers:
            self._call(handler, change)

    def _call(self, handler: Callable[[Change[T]], None], change: Change[T]) -> None:
        """Call a handler.
        Its failure must not stop the cache for others; the queue's sweep finds what it missed.
        """
        try:
            handler(change)
        except Exception:
            meta = change.obj.metadata
            log.exception(
                "cache.handler_failed",
                change=change.kind.value,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
            )


class PassingCache(ObjectCache[T]):
    """Calls the handlers with each object that a watch shows, as ADDED, and keeps none: of objects that
    anybody may create by the million.

    What a list has was there before, or came while nothing was watched. Handlers are not told of it, nor of
    what goes.
    """

    keeps = False

    def apply(self, obj: T) -> None:
        """Pass an object that was created or changed."""
        self._notify(Change(ChangeKind.ADDED, None, obj))

    def remove(self, obj: T) -> None:
        """Do nothing."""

    def replacing(self, objects: Iterable[T]) -> Iterator[None]:
        """Do nothing."""
        return iter(())


def _key(obj: T) -> Key:
    return obj.metadata.namespace, obj.metadata.name
