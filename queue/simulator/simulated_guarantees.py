"""Guaranteed nodes on a trace: which waiting jobs come first because of them,
by the queue's own rules (`scheduling.guarantees`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fluxqueue.queue.model.accounts import Account, AccountTree, Guarantee
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.guarantees import NO_GUARANTEES, Guarantees
from fluxqueue.queue.scheduling.policies.backlog import Backlog

__all__ = ["SimulatedGuarantees", "parse_guarantees"]

_LARGEST = {"core": 1}


class SimulatedGuarantees:
    """What accounts are guaranteed in a simulation.

    Parameters
    ----------
    nodes
        Guaranteed nodes by account; none: nothing is guaranteed.

    Attributes
    ----------
    now
        The guarantees with their use, as of the last `update`.
    first
        The waiting work that comes first since then.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.now: Guarantees = NO_GUARANTEES
        self.first: frozenset[WorkloadId] = frozenset()
        self._tree = AccountTree(
            {name: Account(name, (name,), guaranteed=Guarantee(number)) for name, number in nodes.items()}
        )

    def update(
        self, backlogs: Iterable[Backlog], running: Iterable[tuple[Workload, Sequence[str]]]
    ) -> frozenset[WorkloadId]:
        """Find out what comes first while this work runs; return the workloads of which that changed."""
        if not self._tree.accounts:
            return frozenset()
        self.now = Guarantees(self._tree, running)
        before, self.first = self.first, self.now.first(backlogs, _LARGEST)
        return before ^ self.first


def parse_guarantees(texts: Sequence[str], accounts: Iterable[str]) -> dict[str, int]:
    """Read ``NAME=NODES`` for accounts of the simulation.

    Raises
    ------
    ValueError
        With the text and the accepted form.
    """
    known, guaranteed = set(accounts), dict[str, int]()
    for text in texts:
        name, _, nodes = text.partition("=")
        if name not in known or not nodes.isdecimal():
            raise ValueError(
                f"--guarantee {text}: write NAME=NODES, with the name of an --account, such as physics=16"
            )
        guaranteed[name] = int(nodes)
    return guaranteed
