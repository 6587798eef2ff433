"""Keeps Fluxion's graph equal to the nodes there are and the allocations that are stored.

Fluxion is a cache. Whenever its instance is not the one we filled (it restarted, another leader started it anew, or we are no longer sure
what it holds), it is started anew from the nodes and every live allocation is put back; until then nothing is matched. A change of nodes
is told as it is: added, removed, up or down, without touching what runs.

``version`` counts the states of the graph in which something may fit that did not before: verdicts of *impossible* hold for one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from fluxqueue.api.objects import Node
from fluxqueue.fluxion.client import Fluxion
from fluxqueue.fluxion.errors import FluxionError, UnknownJob
from fluxqueue.fluxion.messages import Applied, Call, NodeShare, NodeSpec, RestoredJob
from fluxqueue.kube.store import Store
from fluxqueue.queue.controllers.foreign import ForeignPods
from fluxqueue.queue.crashpoints import Point, reach
from fluxqueue.queue.ledger import Freed, Ledger
from fluxqueue.queue.records import Allocation, Slot, SlotState

__all__ = ["GraphKeeper", "GraphLost", "restored"]

log = structlog.get_logger()

_NO_JOB = 0
"""Ids begin at 1: asking for this one costs nothing and is answered by whoever has our graph."""

ToSpec = Callable[[Node], NodeSpec]


class GraphLost(Exception):
    """Fluxion did not take a change it should have taken: the graph is started anew before anything else is matched."""


class GraphKeeper:
    """Fills and corrects the graph.

    Parameters
    ----------
    fluxion
        The matcher.
    ledger
        Whose live allocations the graph must hold.
    nodes
        The cluster's nodes.
    to_spec
        A node as Fluxion counts it.
    policy
        Match policy.
    foreign
        What runs on the nodes without us.
    """

    def __init__(
        self, fluxion: Fluxion, ledger: Ledger, nodes: Store[Node], to_spec: ToSpec, policy: str, foreign: ForeignPods | None = None
    ) -> None:
        self.fluxion = fluxion
        self.exclusive = asyncio.Lock()
        """Held while grants are on their way from Fluxion into the table, and while the two are compared."""
        self.version = 0
        self.rebuilds = 0
        self._ledger = ledger
        self._nodes = nodes
        self._to_spec = to_spec
        self._policy = policy
        self._foreign = foreign
        self._specs: dict[str, tuple[Node, NodeSpec]] = {}
        self._instance = ""
        self._told: dict[str, NodeSpec] = {}
        self._told_foreign: dict[str, Mapping[str, int]] = {}
        self._roomier = True
        self._displaced: set[int] = set()

    def call(self) -> Call:
        """What every call to the graph carries now."""
        return Call(now=int(self._ledger.clock().timestamp()), epoch=self._ledger.epoch, instance=self._instance)

    def take_roomier(self) -> bool:
        """Whether something may have become free, or changed, since this was asked last."""
        roomier, self._roomier = self._roomier, False
        return roomier

    def usable(self, node: str) -> bool:
        """Whether a node is in the graph and up."""
        spec = self._told.get(node)
        return spec is not None and not spec.down

    @property
    def present(self) -> Mapping[str, NodeSpec]:
        """The nodes in the graph, by name."""
        return self._told

    def take_displaced(self) -> set[int]:
        """Job ids of reservations that a change of nodes, or what runs without us, has put out of the graph since this was asked last."""
        displaced, self._displaced = self._displaced, set()
        return displaced

    def specs_of(self, nodes: Iterable[Node]) -> dict[str, NodeSpec]:
        """What the graph is to have of these nodes."""
        return {node.metadata.name: self._to_spec(node) for node in nodes}

    def lose(self) -> None:
        """Trust the graph no longer: the next `ensure` starts it anew."""
        self._instance = ""

    async def ensure(self) -> None:
        """Bring the graph to the present nodes and allocations.

        Raises
        ------
        FluxionError
            Fluxion cannot be reached or refuses; the graph is started anew next time.
        """
        wanted = self._wanted()
        try:
            if not self._instance:
                await self._rebuild(wanted)
            elif wanted != self._told:
                await self._adjust(wanted)
            await self._give_back(self._ledger.take_freed())
            await self._tell_foreign(self._foreign.take_changed() if self._foreign else set())
        except (FluxionError, GraphLost):
            self.lose()
            raise

    async def alive(self) -> bool:
        """Whether Fluxion still has the graph we filled; a graph that is still to be filled counts as alive.

        A cycle that knows without asking that nothing fits would not notice that the matcher lost its graph.
        """
        async with self.exclusive:
            if not self._instance:
                return True
            try:
                await self.fluxion.info(_NO_JOB, call=self.call())
            except UnknownJob:
                return True
            except FluxionError as error:
                log.info("the graph is gone", error=str(error))
                self.lose()
                return False
            return True

    def _wanted(self) -> dict[str, NodeSpec]:
        """Every node as Fluxion counts it; a node that did not change is not read again."""
        nodes = [node for node in self._nodes.list() if not node.metadata.deletion_timestamp]
        known = self._specs
        self._specs = {
            node.metadata.name: found if (found := known.get(node.metadata.name)) and found[0] is node else (node, self._to_spec(node))
            for node in nodes
        }
        return {name: spec for name, (_, spec) in self._specs.items()}

    async def _tell_foreign(self, changed: set[str]) -> None:
        """Set the system allocations of these nodes."""
        if self._foreign is None:
            return
        shares = self._foreign.shares(sorted(changed & self._told.keys()))
        shares = [share for share in shares if share.amounts != self._told_foreign.get(share.node)]
        if not shares:
            return
        answer = await self.fluxion.resize(shares, call=self.call())
        if not answer.done:
            raise GraphLost(f"Fluxion did not take what runs without us: {answer.reason}")
        self._told_foreign.update((share.node, share.amounts) for share in shares)
        self._roomier = True
        self._displaced.update(answer.displaced)
        if answer.excess:
            log.warning("nodes hold more than they have: they take no new work", nodes=[share.node for share in answer.excess])

    async def _rebuild(self, wanted: dict[str, NodeSpec]) -> None:
        # What was noted as freed is not in the new graph in the first place.
        self._ledger.take_freed()
        live = [allocation for _, allocation in self._ledger.live()]
        instance = await self.fluxion.init(self._policy, nodes=list(wanted.values()), call=replace(self.call(), instance=""))
        self._instance = instance
        reach(Point.GRAPH_EMPTY)
        jobs = [restored(allocation) for allocation in live]
        if jobs:
            answer = await self.fluxion.restore(jobs, call=self.call())
            if not answer.done:
                log.error("fluxion did not take back all allocations", reason=answer.reason, allocations=len(jobs))
                raise GraphLost(f"Fluxion did not take back the live allocations: {answer.reason}")
        self._told = wanted
        self._told_foreign = {name: {} for name in wanted}
        self.version += 1
        self.rebuilds += 1
        self._roomier = True
        reach(Point.GRAPH_FILLED)
        await self._tell_foreign(set(wanted))
        log.info("graph filled", instance=instance, nodes=len(wanted), allocations=len(jobs), rebuilds=self.rebuilds)

    async def _adjust(self, wanted: dict[str, NodeSpec]) -> None:
        told = self._told
        gone = [name for name in told if name not in wanted]
        turned = {
            name: not spec.down for name, spec in wanted.items() if name in told and replace(spec, down=told[name].down) == told[name]
        }
        turned = {name: up for name, up in turned.items() if told[name].down == up}
        reshaped = [spec for name, spec in wanted.items() if name not in turned and spec != told.get(name)]
        if gone:
            await self._must(self.fluxion.remove_nodes(gone, call=self.call()), "remove nodes")
        if reshaped:
            await self._must(self.fluxion.add_nodes(reshaped, call=self.call()), "add nodes")
        if turned:
            await self._must(self.fluxion.set_status(turned, call=self.call()), "mark nodes")
        self._told = wanted
        if self._foreign is not None and reshaped:
            for spec in reshaped:
                self._told_foreign.pop(spec.name, None)
            self._foreign.recount(spec.name for spec in reshaped)  # pods may have been there before their node was, DaemonSets follow
        self.version += 1
        self._roomier = True
        log.info("graph adjusted", removed=len(gone), added=len(reshaped), turned=len(turned))

    async def _give_back(self, freed: Freed) -> None:
        if not freed:
            return
        self._roomier = True
        reach(Point.FREED)
        parts = {jobid: _slot_shares(slots, self._ledger.holding(jobid)) for jobid, slots in freed.slots.items()}
        try:
            if freed.jobs:
                await self.fluxion.cancel_many(sorted(freed.jobs), call=self.call())
            for jobid, shares in parts.items():
                await self._must(self.fluxion.partial_cancel(jobid, shares, call=self.call()), f"shrink job {jobid}")
        except (FluxionError, GraphLost):
            # Whether it was done is not known, and giving back twice could take from another: the graph is filled anew.
            self._ledger.put_freed(freed)
            raise
        reach(Point.GIVEN_BACK)
        if self._foreign is not None and freed.nodes:
            self._foreign.recount(freed.nodes)  # pods may still run that were counted through a slot until now

    async def _must(self, answer: Awaitable[Applied], doing: str) -> None:
        done = await answer
        if not done.done:
            raise GraphLost(f"Fluxion did not {doing}: {done.reason}")
        self._displaced.update(done.displaced)


def restored(allocation: Allocation) -> RestoredJob:
    """An allocation as it stands: ended slots are not put back."""
    ended = [slot for slot in allocation.slots if slot.state is SlotState.ENDED]
    lost: dict[str, dict[str, int]] = {}
    for slot in ended:
        labels = lost.setdefault(slot.node, {})
        labels[slot.label] = labels.get(slot.label, 0) + 1
    shares = [_shrunk(share, lost.get(share.node, {})) for share in allocation.shares]
    return RestoredJob(
        jobid=allocation.jobid,
        shares=tuple(share for share in shares if share is not None),
        at=int(allocation.start.timestamp()),
        end=int(allocation.end.timestamp()) if allocation.end is not None else 0,
    )


def _shrunk(share: NodeShare, lost: Mapping[str, int]) -> NodeShare | None:
    """What is left of a share. Where slots of several sizes lie on the node it keeps all its amounts until the last of them goes."""
    if not lost:
        return share
    slots = {label: left for label, count in share.slots.items() if (left := count - lost.get(label, 0)) > 0}
    if not slots:
        return None
    if len(share.slots) > 1:
        return replace(share, slots=slots)
    ((label, left),) = slots.items()
    amounts = {kind: -(-amount * left // share.slots[label]) for kind, amount in share.amounts.items()}
    return replace(share, slots=slots, amounts=amounts)


def _slot_shares(slots: Sequence[Slot], allocation: Allocation | None) -> list[NodeShare]:
    """What goes back with these slots: on a node where none is left, all that the job had there."""
    kept = {slot.node for slot in allocation.slots if slot.state is not SlotState.ENDED} if allocation is not None else set[str]()
    counts: dict[str, dict[str, int]] = {}
    for slot in slots:
        labels = counts.setdefault(slot.node, {})
        if slot.node in kept:
            labels[slot.label] = labels.get(slot.label, 0) + 1
    return [NodeShare(node=node, slots=labels) for node, labels in counts.items()]
