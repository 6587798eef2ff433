"""What pods request beyond the template they were created from, learned from the pods themselves.

An admission plugin that runs after our webhook (a service mesh, a policy) may add a sidecar to each pod of a
Job. The Job is matched before it has any pod, by its template. So its pods would get nodes on which they do
not fit, at each start. The first pod that is created after a release shows the difference, before it is
bound. The difference is kept for its workload, which requests it in its next match. The jobspec keeps it too,
under ``attributes.user``, so that the next leader knows it. If the last two workloads of a namespace showed a
difference, the other Jobs of the namespace request from the start what both had in common. One workload that
shows none ends that.

Amounts are in the graph's units. Pods whose owner is not a Job, and pods for which their Job has no slot, are
matched by their own requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar

from fluxqueue.api.formatting import format_graph_amount

__all__ = ["ExtraRequests", "extra_requests", "extra_requests_in_words"]

Amounts = Mapping[str, int]
T = TypeVar("T")

_MAX_ENTRIES = 10_000
_WITNESSES = 2
"""Workloads of a namespace that must have shown a difference."""


def extra_requests(requested: Amounts, template: Amounts) -> dict[str, int]:
    """Return what a pod requests beyond its template, by resource type of the graph."""
    return {
        kind: amount - template.get(kind, 0)
        for kind, amount in requested.items()
        if amount > template.get(kind, 0)
    }


def extra_requests_in_words(extra: Amounts) -> str:
    """Return extra requests as part of a reason."""
    amounts = " and ".join(format_graph_amount(kind, amount) for kind, amount in sorted(extra.items()))
    return (
        f"each of its pods asks for {amounts} more than its template, which something adds when it is created"
    )


class ExtraRequests:
    """What was learned about workloads and namespaces; the least recent entries are dropped first."""

    def __init__(self) -> None:
        self._of_workloads: OrderedDict[str, Amounts] = OrderedDict()
        self._of_namespaces: OrderedDict[str, OrderedDict[str, Amounts]] = OrderedDict()

    def record(self, uid: str, namespace: str, extra: Amounts) -> bool:
        """Record what a pod of a workload requests beyond its template.

        Parameters
        ----------
        uid, namespace
            Of the workload.
        extra
            As `extra_requests` returns it; empty if the pod requests what its template says.

        Returns
        -------
        bool
            True if other work of the namespace is to request something else from now on.
        """
        before = self.common(namespace)
        _put(self._of_workloads, uid, extra, _MAX_ENTRIES)
        shown = self._of_namespaces.get(namespace, OrderedDict())
        _put(self._of_namespaces, namespace, shown, _MAX_ENTRIES)
        _put(shown, uid, extra, _WITNESSES)
        return self.common(namespace) != before

    def of(self, uid: str) -> Amounts | None:
        """Return what the pods of a workload requested beyond their template; None if no pod was seen."""
        return self._of_workloads.get(uid)

    def common(self, namespace: str) -> dict[str, int]:
        """Return what the last workloads of a namespace had in common."""
        shown = [*self._of_namespaces.get(namespace, {}).values()]
        if len(shown) < _WITNESSES:
            return {}
        return {kind: least for kind in shown[0] if (least := min(each.get(kind, 0) for each in shown))}


def _put(entries: OrderedDict[str, T], key: str, value: T, most: int) -> None:
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > most:
        entries.popitem(last=False)
