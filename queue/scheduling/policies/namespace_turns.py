"""How much of a round the refused work of one namespace may take, so that no namespace holds up the others.

A refusal answers a part of a queue, and a round asks some hundred questions. Requests that cannot be
compared, such as ten thousand different lists of nodes, are asked about one by one, and each answer may take
a tenth of a second. So the CPU that the matcher spends on work that it does not grant is counted for each
namespace. A namespace that has used up its turn is not asked about any more in this round. The next rounds go
on behind what was asked, whatever was freed meanwhile, until all of its work had its turn. Then its first
work is asked again. One namespace with less than a turn of such work is never cut short, so nothing changes
for it.

For example, with a turn of 0.25 s and three requests that take 0.2 s each: the first round asks the first and
the second, the next one the third. If nodes were freed between the two, a further round asks all again from
the first one on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fluxqueue.fluxion.messages import MatchBatch, MatchVerdict
from fluxqueue.queue.model.records import Workload, WorkloadId

__all__ = ["NamespaceTurns"]

_NOBODY: frozenset[WorkloadId] = frozenset()
_MOST_OF_BYTE_S = 20e-6
"""Rules about 2,000 nodes take 15 µs for each byte.
Where it is not known which request took longer than that, it counts as a pause of the matcher."""


class NamespaceTurns:
    """What each namespace took of the present round, and which of its work had a turn in rounds before it.

    Parameters
    ----------
    longest_s
        CPU seconds of the matcher after which the turn of a namespace is over; the default is no limit.

    Attributes
    ----------
    over
        Namespaces whose turn in this round is over. It only grows within a round.
    """

    def __init__(self, longest_s: float = float("inf")) -> None:
        self.over: set[str] = set()
        self._longest_s = longest_s
        self._spent_s: dict[str, float] = {}
        self._asked: dict[str, set[WorkloadId]] = {}
        self._asked_before: dict[str, set[WorkloadId]] = {}
        self._outdated: set[str] = set()

    @property
    def asked_before(self) -> Mapping[str, Collection[WorkloadId]]:
        """Work that had its turn in former rounds, of the namespaces that have work left without one."""
        return self._asked_before

    def had_turn(self, workload: Workload) -> bool:
        """True if a workload is not asked about in this round any more, for the sake of other namespaces."""
        return workload.namespace in self.over or workload.id in self._asked_before.get(
            workload.namespace, _NOBODY
        )

    def begin_round(self, *, capacity_changed: bool) -> None:
        """Begin a round. If capacity was freed since the last one,
        the answers to the work that had its turn are outdated.
        """
        self.over.clear()
        self._spent_s.clear()
        self._asked.clear()
        if capacity_changed:
            self._outdated.update(self._asked_before)

    def spend(self, workloads: Sequence[Workload], batch: MatchBatch) -> None:
        """Count the CPU of one call for those that it did not grant,
        by the length of their requests where the matcher does not tell what each took.

        Parameters
        ----------
        workloads
            What was asked.
        batch
            An answer for each; fewer if the call stopped early.
        """
        asked = list(zip(workloads, batch.results, strict=False))
        length = sum(len(workload.jobspec) for workload, _ in asked)
        of_byte_s = min(batch.overhead_s / max(length, 1), _MOST_OF_BYTE_S)
        seconds = batch.overhead_of_each_s or [len(workload.jobspec) * of_byte_s for workload, _ in asked]
        for (workload, answer), took_s in zip(asked, seconds, strict=False):
            if answer.verdict is MatchVerdict.GRANTED:
                continue
            namespace = workload.namespace
            self._asked.setdefault(namespace, set()).add(workload.id)
            spent_s = self._spent_s[namespace] = self._spent_s.get(namespace, 0.0) + took_s
            if spent_s >= self._longest_s:
                self.over.add(namespace)

    def end_round(self) -> bool:
        """End a round; return True if another one is to follow, because work is left without a turn or with
        an outdated answer.
        """
        ended = self._asked_before.keys() - self.over
        outdated = bool(ended & self._outdated)
        for namespace in ended:
            del self._asked_before[namespace]
        for namespace in self.over:
            self._asked_before.setdefault(namespace, set()).update(self._asked.get(namespace, _NOBODY))
        self._outdated -= ended
        return outdated or bool(self.over)
