"""Who waits for what: the dependencies of pending workloads, found by the workload that waits and by what it
waits for.

An event concerns one target. It costs as much as that target has dependencies on it, however many others
there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from fluxqueue.api.dependencies import DependencyKind, WorkloadDependency
from fluxqueue.queue.model.start_conditions import TrackedDependency

__all__ = ["DependencyGraph", "TargetName"]

_MOST_NAMED = 50_000
"""Members of cycles that one search names of each namespace: cycles that have much in common may be as many
as the dependencies, and as long."""
_K = TypeVar("_K")
_Entry = tuple[str, WorkloadDependency]


class TargetName(NamedTuple):
    """An object as a dependency names it."""

    namespace: str
    kind: DependencyKind
    name: str


class _Waiter:
    """The dependencies of one workload, in the order in which they were written,
    and how many of them are open.
    """

    def __init__(self, namespace: str, dependencies: Iterable[TrackedDependency]) -> None:
        self.namespace = namespace
        self.dependencies = {each.asked: each for each in dependencies}
        self.open = sum(each.open for each in self.dependencies.values())


class DependencyGraph:
    """Dependencies of workloads by the uids of both, and by the names that no workload has yet."""

    def __init__(self) -> None:
        self._waiters: dict[str, _Waiter] = {}
        self._in_namespace: Counter[str] = Counter()
        self._by_target: dict[str, dict[_Entry, None]] = {}
        self._by_name: dict[TargetName, dict[_Entry, None]] = {}

    def __contains__(self, waiter: str) -> bool:
        return waiter in self._waiters

    def __len__(self) -> int:
        return len(self._waiters)

    def in_namespace(self, namespace: str, *, but: str = "") -> int:
        """Return how many dependencies the workloads of a namespace have, but for those of one of them."""
        own = self._waiters.get(but)
        return self._in_namespace[namespace] - (len(own.dependencies) if own is not None else 0)

    def waiters(self) -> list[str]:
        """Return the uids of all workloads that have dependencies."""
        return [*self._waiters]

    def targets(self) -> list[str]:
        """Return the uids of all workloads that an open dependency waits for."""
        return [*self._by_target]

    def names(self) -> list[TargetName]:
        """Return the names that open dependencies wait for and that no workload has yet."""
        return [*self._by_name]

    def is_awaited(self, name: TargetName) -> bool:
        """True if an open dependency waits for a workload of this name."""
        return name in self._by_name

    def put(self, waiter: str, namespace: str, dependencies: Sequence[TrackedDependency]) -> None:
        """Set the dependencies of a workload. What is known of one that it had before is kept."""
        former = known.dependencies if (known := self._waiters.get(waiter)) is not None else {}
        self.remove(waiter)
        added = self._waiters[waiter] = _Waiter(
            namespace, (former.get(each.asked, each) for each in dependencies)
        )
        self._in_namespace[namespace] += len(added.dependencies)
        for each in added.dependencies.values():
            self._add(waiter, each)

    def remove(self, waiter: str) -> None:
        """Forget the dependencies of a workload."""
        if (known := self._waiters.get(waiter)) is None:
            return
        for each in known.dependencies.values():
            self._discard(waiter, each)
        self._in_namespace[known.namespace] -= len(known.dependencies)
        if not self._in_namespace[known.namespace]:
            del self._in_namespace[known.namespace]
        del self._waiters[waiter]

    def dependencies(self, waiter: str) -> tuple[TrackedDependency, ...]:
        """Return the dependencies of a workload, as far as they are known."""
        known = self._waiters.get(waiter)
        return tuple(known.dependencies.values()) if known is not None else ()

    def is_decided(self, waiter: str) -> bool:
        """True if none of the dependencies of a workload is open."""
        known = self._waiters.get(waiter)
        return known is None or not known.open

    def waiting_for(self, target: str) -> list[tuple[str, TrackedDependency]]:
        """Return the open dependencies on a workload, each with the uid of the one that waits."""
        return [
            (waiter, self._waiters[waiter].dependencies[asked])
            for waiter, asked in self._by_target.get(target, ())
        ]

    def waiting_for_name(self, name: TargetName) -> list[tuple[str, TrackedDependency]]:
        """Return the open dependencies on a name that no workload has yet,
        each with the uid of the one that waits.
        """
        return [
            (waiter, self._waiters[waiter].dependencies[asked])
            for waiter, asked in self._by_name.get(name, ())
        ]

    def replace(self, waiter: str, dependency: TrackedDependency) -> None:
        """Replace what is known of one dependency."""
        known = self._waiters[waiter]
        former = known.dependencies[dependency.asked]
        self._discard(waiter, former)
        known.dependencies[dependency.asked] = dependency
        known.open += dependency.open - former.open
        self._add(waiter, dependency)

    def cycles(self, candidates: Iterable[str]) -> Iterator[list[list[str]]]:
        """Yield, for each of some workloads, the cycles of open dependencies that are found from it, each as
        uids in the order of waiting. The graph may change meanwhile.

        A workload that nobody waits for, or that waits for none, is in no cycle and costs nothing. All others
        cost as much as the dependencies that can be reached from them, once for all candidates together. Of
        very many cycles of a namespace only the first are found.
        """
        finished: set[str] = set()
        named: Counter[str] = Counter()
        for start in candidates:
            if (
                start not in self._by_target
                or start in finished
                or (known := self._waiters.get(start)) is None
            ):
                continue
            if (left := _MOST_NAMED - named[known.namespace]) > 0:
                found = self._search(start, finished, left)
                named[known.namespace] += sum(map(len, found))
                yield found

    def _search(self, start: str, finished: set[str], most_named: int) -> list[list[str]]:
        """Follow dependencies depth first; what is met again on the way closes a cycle."""
        found: list[list[str]] = []
        path: dict[str, int] = {start: 0}
        stack = [(start, self._next(start))]
        while stack and most_named > 0:
            waiter, following = stack[-1]
            if not following:
                stack.pop()
                del path[waiter]
                finished.add(waiter)
                continue
            target = following.pop()
            if target in path:
                found.append([each for each, _ in stack[path[target] :]])
                most_named -= len(found[-1])
            elif target not in finished and target in self._waiters:
                path[target] = len(stack)
                stack.append((target, self._next(target)))
        return found

    def _next(self, waiter: str) -> list[str]:
        return [
            each.target for each in self._waiters[waiter].dependencies.values() if each.open and each.target
        ]

    def _add(self, waiter: str, dependency: TrackedDependency) -> None:
        if not dependency.open:
            return
        if dependency.target:
            self._by_target.setdefault(dependency.target, {})[waiter, dependency.asked] = None
        else:
            self._by_name.setdefault(self._name(waiter, dependency), {})[waiter, dependency.asked] = None

    def _discard(self, waiter: str, dependency: TrackedDependency) -> None:
        if not dependency.open:
            return
        if dependency.target:
            _remove(self._by_target, dependency.target, (waiter, dependency.asked))
        else:
            _remove(self._by_name, self._name(waiter, dependency), (waiter, dependency.asked))

    def _name(self, waiter: str, dependency: TrackedDependency) -> TargetName:
        return TargetName(self._waiters[waiter].namespace, dependency.kind, dependency.name)


def _remove(index: dict[_K, dict[_Entry, None]], key: _K, entry: _Entry) -> None:
    entries = index[key]
    del entries[entry]
    if not entries:
        del index[key]
