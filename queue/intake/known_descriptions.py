"""Which Jobs need no description: nothing that theirs depends on has changed since the ledger stored it.

A resync reads every Job, and to describe one costs 0.3 ms of CPU. With this, an unchanged one costs a
comparison. What is compared is the identity of the cached objects, because the caches replace an object that
changes and never change one. Flux clusters are always described.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fluxqueue.api.hostports import open_ports
from fluxqueue.api.jobs import Job
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.namespace_budgets import NamespaceBudgets
from fluxqueue.queue.model.records import NewWorkload, Workload
from fluxqueue.queue.store.ledger import Ledger

__all__ = ["DescribedFrom", "KnownDescriptions"]


@dataclass(frozen=True, slots=True, eq=False)
class DescribedFrom:
    """What the description of a Job depends on.

    Attributes
    ----------
    job, cluster, row
        The same as long as they are the same object.
    others
        The same if they are equal.
    """

    job: Job
    cluster: ClusterContext
    row: Workload
    others: tuple[object, ...]

    def same_as(self, other: DescribedFrom) -> bool:
        """True if both lead to the same description."""
        return (
            self.job is other.job
            and self.cluster is other.cluster
            and self.row is other.row
            and self.others == other.others
        )


class KnownDescriptions:
    """The last description of each pending Job, as a digest, with what it was made from.

    Parameters
    ----------
    ledger
        Knows which description is stored.
    budgets
        Knows whose description was stored without its request, and stays so.
    """

    def __init__(self, ledger: Ledger, budgets: NamespaceBudgets) -> None:
        self._ledger = ledger
        self._budgets = budgets
        self._known: dict[str, tuple[DescribedFrom, int]] = {}
        self._usual: tuple[object, ...] = ()
        """What is equal for nearly every Job is kept once."""

    def covers(self, made_from: DescribedFrom) -> bool:
        """True if this Job was described from the same, and the ledger has stored what came of it."""
        known = self._known.get(made_from.job.metadata.uid)
        if known is None or not known[0].same_as(made_from):
            return False
        return self._ledger.has_description(made_from.row, known[1]) or self._budgets.stays_out(made_from.row)

    def note(self, made_from: DescribedFrom, new: NewWorkload) -> None:
        """Remember a description that is about to be stored.

        That of a Job with volumes, device claims or host ports is not: what others hold decides whether it
        can be matched.
        """
        template = made_from.job.spec.template
        if template.spec.volumes or template.spec.resource_claims or any(open_ports(template.spec)):
            self._known.pop(new.uid, None)
            return
        if made_from.others == self._usual:
            made_from = replace(made_from, others=self._usual)
        else:
            self._usual = made_from.others
        self._known[made_from.job.metadata.uid] = made_from, hash(new)

    def forget_ended(self) -> None:
        """Forget Jobs that do not wait any more."""
        self._known = {
            uid: known for uid, known in self._known.items() if self._ledger.by_uid(uid) is known[0].row
        }
