"""Index of the pods that are on nodes, for rules about other pods.

A pod is placed once it is bound, or once a slot on a node is granted for it. The index answers two questions,
in time that grows with the answer and not with the cluster: which placed pods a selector selects, and which
required anti-affinity terms of placed pods select a given pod. Pods are indexed by the values of only those
labels that some selector names, and terms by one label that they require.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fluxqueue.queue.noderules.pod_rules import Selector, Term

__all__ = ["PlacedPod", "PlacedPods", "SelectorIndex"]

_T = TypeVar("_T")
NamespaceLabels = Callable[[str], Mapping[str, str]]
"""Returns the labels of a namespace, by its name."""

_MOST_LABELS: Final = 1_024
"""Labels whose values are indexed; more are named by selectors that people made to be different."""
_FEW_OF: Final = 8
"""To look at the pods of some namespaces is cheaper than to index a label of all pods if they are less than
this part of them."""
_MOST_COUNTS: Final = 128
"""Counts that are kept: those of eight Jobs with as many rules as one may have."""
_MOST_CHANGES: Final = 1_024
"""Changes that are kept for the counts, or as many as there are pods: after more, all pods are counted."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node.

    Attributes
    ----------
    uid
        Of the pod, or an id of the slot that waits for it.
    deleting
        True if it is being deleted: spread constraints do not count it, affinity does.
    repels
        Its required anti-affinity.
    """

    uid: str
    namespace: str
    labels: Mapping[str, str]
    node: str
    deleting: bool = False
    repels: tuple[Term, ...] = ()


class SelectorIndex(Generic[_T]):
    """Items with a selector, found by the labels of a pod that the selector may select."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[_T, None]] = {}
        self._loose: dict[_T, None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_label or self._loose)

    def add(self, selector: Selector, item: _T) -> None:
        """Add an item; a selector that selects nothing is not stored."""
        for bucket in self._buckets(selector):
            bucket[item] = None

    def drop(self, selector: Selector, item: _T) -> None:
        """Remove an item, if it is there."""
        for bucket in self._buckets(selector):
            bucket.pop(item, None)
        if (key := selector.key) is not None:
            for value in key.values:
                if not self._by_label.get((key.key, value), True):
                    del self._by_label[key.key, value]

    def about(self, labels: Iterable[tuple[str, str]]) -> Iterator[_T]:
        """Yield the items whose selector may select a pod with these labels, each with a value of it.
        The selectors of all others do not.
        """
        yield from list(self._loose)
        for pair in labels:
            if (bucket := self._by_label.get(pair)) is not None:
                yield from list(bucket)

    def _buckets(self, selector: Selector) -> Iterator[dict[_T, None]]:
        key = selector.key
        if selector.nothing:
            return
        if key is None:
            yield self._loose
        else:
            for value in key.values:
                yield self._by_label.setdefault((key.key, value), {})


class _Count:
    """Number of pods by node that all of some terms select, as of a number of changes."""

    def __init__(self, terms: Sequence[Term], labels_of: NamespaceLabels, deleting: bool) -> None:
        self.terms = sorted(terms, key=lambda term: (term.within is None, term.selector.key is None))
        self.by_node: Counter[str] = Counter()
        self.changes = 0
        self._labels_of = labels_of
        self._deleting = deleting

    def add(self, pod: PlacedPod, number: int) -> None:
        if pod.deleting and not self._deleting:
            return
        labels = self._labels_of(pod.namespace)
        if all(term.selects(pod.namespace, labels, pod.labels) for term in self.terms):
            self.by_node[pod.node] += number
            if not self.by_node[pod.node]:
                del self.by_node[pod.node]


class PlacedPods:
    """The placed pods of a cluster.

    Parameters
    ----------
    most_alike
        How many terms of the pods of one namespace are kept under one value of a label, or under none; None:
        all.
    """

    def __init__(self, most_alike: int | None = None) -> None:
        self._most_alike = most_alike
        self._pods: dict[str, PlacedPod] = {}
        self._by_namespace: dict[str, dict[str, PlacedPod]] = {}
        self._by_label: dict[str, dict[str, dict[str, PlacedPod]]] = {}
        self._repelling: dict[Term, Counter[str]] = {}
        self._terms: SelectorIndex[Term] = SelectorIndex()
        self._alike: Counter[tuple[str, ...]] = Counter()
        """Number of kept terms by the namespace that brought them,
        and by the value of a label that they are kept under."""
        self._kept_for: dict[Term, str] = {}
        self._counts: dict[tuple[tuple[Term, ...], bool], _Count] = {}
        self._changes: list[tuple[PlacedPod, int]] = []
        self._former_changes = 0
        """Number of changes before the first that is kept."""

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> PlacedPod | None:
        """Return the pod of this uid, or None."""
        return self._pods.get(uid)

    def put(self, pod: PlacedPod) -> None:
        """Add a pod, or replace the one with the same uid."""
        self.drop(pod.uid)
        self._pods[pod.uid] = pod
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        for label, value in pod.labels.items():
            if (pods := self._by_label.get(label)) is not None:
                pods.setdefault(value, {})[pod.uid] = pod
        for term in pod.repels:
            if term not in self._repelling:
                self._repelling[term] = Counter()
                self._keep(term, pod.namespace)
            self._repelling[term][pod.node] += 1
        self._note_change(pod, 1)

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is there."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        _remove(self._by_namespace, pod.namespace, uid)
        for label, value in pod.labels.items():
            if (pods := self._by_label.get(label)) is not None:
                _remove(pods, value, uid)
        for term in pod.repels:
            nodes = self._repelling[term]
            nodes[pod.node] -= 1
            if not nodes[pod.node]:
                del nodes[pod.node]
            if not nodes:
                del self._repelling[term]
                self._forget(term)
        self._note_change(pod, -1)

    def counted(
        self, terms: tuple[Term, ...], labels_of: NamespaceLabels, *, deleting: bool = True
    ) -> Mapping[str, int]:
        """Return how many pods all of some terms select, by node.

        The pods are counted when this is asked for the first time, later only those that came or went since.

        Parameters
        ----------
        terms
            At least one.
        labels_of
            Always the same, until `forget_counts`.
        deleting
            False: pods that are being deleted do not count.
        """
        count = self._counts.pop((terms, deleting), None)
        if count is None or count.changes < self._former_changes:
            count = _Count(terms, labels_of, deleting)
            for pod in self.selected(count.terms[0].selector, count.terms[0].within):
                count.add(pod, 1)
        else:
            for pod, number in self._changes[count.changes - self._former_changes :]:
                count.add(pod, number)
        count.changes = self._former_changes + len(self._changes)
        self._counts[terms, deleting] = count
        if len(self._counts) > _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]
        return count.by_node

    def forget_counts(self, namespace: str) -> None:
        """Count anew, as the labels of a namespace changed: also if its pods have left it meanwhile."""
        if namespace in self._by_namespace or any(pod.namespace == namespace for pod, _ in self._changes):
            self._counts.clear()
            self._changes.clear()

    def _note_change(self, pod: PlacedPod, number: int) -> None:
        if self._counts:
            self._changes.append((pod, number))
        if len(self._changes) > max(len(self._pods), _MOST_CHANGES):
            self._former_changes += len(self._changes)
            self._changes.clear()

    def selected(self, selector: Selector, namespaces: Collection[str] | None = None) -> Iterator[PlacedPod]:
        """Yield the pods that a selector selects, in any namespace or in these."""
        if selector.nothing:
            return
        for pod in self._candidates(selector, namespaces):
            if selector.matches(pod.labels) and (namespaces is None or pod.namespace in namespaces):
                yield pod

    def _candidates(self, selector: Selector, namespaces: Collection[str] | None) -> Iterable[PlacedPod]:
        there = (
            [self._by_namespace.get(namespace, {}) for namespace in {*namespaces}]
            if namespaces is not None
            else [self._pods]
        )
        number, key = sum(map(len, there)), selector.key
        if key is None or (key.key not in self._by_label and _FEW_OF * number < len(self._pods)):
            return [pod for pods in there for pod in pods.values()]
        pods = self._by_label.get(key.key)
        if pods is None:
            if len(self._by_label) >= _MOST_LABELS:
                self._by_label.clear()
            pods = self._by_label[key.key] = {}
            for pod in self._pods.values():
                if (value := pod.labels.get(key.key)) is not None:
                    pods.setdefault(value, {})[pod.uid] = pod
        by_value = [pods.get(value, {}) for value in dict.fromkeys(key.values)]
        return [
            pod
            for each in (by_value if sum(map(len, by_value)) <= number else there)
            for pod in each.values()
        ]

    def _keep(self, term: Term, namespace: str) -> None:
        places = _places(term, namespace)
        if self._most_alike is None or all(self._alike[place] < self._most_alike for place in places):
            self._alike.update(places)
            self._kept_for[term] = namespace
            self._terms.add(term.selector, term)

    def _forget(self, term: Term) -> None:
        if (namespace := self._kept_for.pop(term, None)) is not None:
            self._terms.drop(term.selector, term)
            for place in _places(term, namespace):
                self._alike[place] -= 1
                if not self._alike[place]:
                    del self._alike[place]

    @property
    def any_repel(self) -> bool:
        """True if any pod has required anti-affinity."""
        return bool(self._repelling)

    def repelling(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> Iterator[tuple[Term, Mapping[str, int]]]:
        """Yield the anti-affinity terms of placed pods that select a pod,
        with the number of those placed pods on each node.
        """
        for term, nodes in self.terms_about(labels.items()):
            if term.selects(namespace, namespace_labels, labels):
                yield term, nodes

    def terms_about(self, labels: Iterable[tuple[str, str]]) -> Iterator[tuple[Term, Mapping[str, int]]]:
        """Yield the anti-affinity terms of placed pods that may select pods with any of these labels,
        with the number of those placed pods on each node. All others select none.
        """
        for term in dict.fromkeys(self._terms.about(labels)):
            yield term, self._repelling[term]


def _places(term: Term, namespace: str) -> list[tuple[str, ...]]:
    key = term.selector.key
    return (
        [(namespace,)]
        if key is None
        else [(namespace, key.key, value) for value in dict.fromkeys(key.values)]
    )


def _remove(index: dict[str, dict[str, PlacedPod]], key: str, uid: str) -> None:
    found = index.get(key, {})
    found.pop(uid, None)
    if not found:
        index.pop(key, None)
