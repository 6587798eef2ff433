"""Workloads of which one runs at a time: those of a namespace that name the same singleton, in the order of
their submission.

As with Slurm's ``--dependency=singleton``, the order counts and nothing else: one that is held, or waits for
another workload, keeps the later ones waiting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from datetime import datetime

from fluxqueue.queue.model.records import NewWorkload, WorkloadId
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["Singletons"]

_Name = tuple[str, str]
"""Namespace, and the singleton."""
_Place = tuple[datetime, WorkloadId]
"""In the order of submission."""


class Singletons:
    """The order of the workloads of each singleton, kept equal to the ledger.

    Parameters
    ----------
    ledger
        The workloads.
    enqueue
        Called with the uid of the workload whose turn it is.
    """

    def __init__(self, ledger: Ledger, enqueue: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._enqueue = enqueue
        self._places: dict[_Name, list[_Place]] = {}
        self._known: dict[WorkloadId, tuple[_Name, _Place]] = {}

    def before(self, new: NewWorkload, batch: dict[_Name, str]) -> str:
        """Return the workload that must end before another one may start, in words; empty if there is none.

        Parameters
        ----------
        new
            As the intake describes it.
        batch
            The last new workload of each singleton that was described together with it. This one is added.
        """
        name = (new.namespace, new.start_conditions.singleton)
        if not name[1]:
            return ""
        row, places = self._ledger.by_uid(new.uid), self._places.get(name, [])
        if row is not None:
            number = bisect_left(places, (row.submitted_at, row.id))
            return self._in_words(places[number - 1]) if number else ""
        before = batch.get(name) or (self._in_words(places[-1]) if places else "")
        batch[name] = new.ref
        return before

    def _in_words(self, place: _Place) -> str:
        row = self._ledger.get(place[1])
        return row.ref if row is not None else "one that is ending"

    def workload_changed(self, workload_id: WorkloadId) -> None:
        """Keep the place of a workload, and have the next one described when one is gone."""
        row, known = self._ledger.get(workload_id), self._known.get(workload_id)
        if known is None and (row is None or not row.start_conditions.singleton):
            return
        wanted = (
            ((row.namespace, row.start_conditions.singleton), (row.submitted_at, row.id))
            if row is not None
            else None
        )
        if wanted is not None and not wanted[0][1]:
            wanted = None
        if wanted == known:
            return
        if known is not None:
            self._remove(workload_id, *known)
        if wanted is not None:
            self._known[workload_id] = wanted
            places = self._places.setdefault(wanted[0], [])
            insort(places, wanted[1])
            if places[0] == wanted[1] and row is not None:
                self._enqueue(row.uid)  # it may have been described behind one that never got a row

    def _remove(self, workload_id: WorkloadId, name: _Name, place: _Place) -> None:
        """Remove a workload, and have the next one described again."""
        del self._known[workload_id]
        places = self._places[name]
        number = bisect_left(places, place)
        del places[number]
        if number < len(places) and (following := self._ledger.get(places[number][1])) is not None:
            self._enqueue(following.uid)
        if not places:
            del self._places[name]
