"""The traverser: it finds which vertices a request takes by visiting everything that could matter.

It walks the graph depth first from the root, with the levels of the request that may match next. The request
may omit leading levels: until its first level has matched, vertices of other types are passed through, and
candidates from below them are merged upwards. After that every level must match. On the way back each vertex
chooses among the candidates of its children (`fluxqueue.fluxion.match.policy_choice`), up to the root, which
chooses for the top of the request.

A slot matches at a vertex that has children of every type in the slot. They are packed into disjoint sets of
members, and each set is a candidate. Everything below a slot is exclusive.

The traverser is right for every policy and every shape of request. `fluxqueue.fluxion.match.shortcuts`
handles the cases in which less work gives the same result.

Its tests are `test_matching.py` and `test_properties.py` of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fluxqueue.fluxion.graph.jobs import GraphPlacement
from fluxqueue.fluxion.graph.pools import LeafRun, bits
from fluxqueue.fluxion.graph.vertices import NODE, UNTOUCHED, Graph, Vertex
from fluxqueue.fluxion.match.candidates import (
    CandidatesByType,
    MatchCandidate,
    leaf_candidate,
    leaves_candidate,
    nothing,
    pool_slot_candidate,
    slot_candidate,
    vertex_candidate,
    within,
)
from fluxqueue.fluxion.match.jobspec import SLOT, Resource
from fluxqueue.fluxion.match.leaf_sets import leaf_sets, take_leaf_sets
from fluxqueue.fluxion.match.policies import CandidateOrder, MatchPolicy
from fluxqueue.fluxion.match.policy_choice import PolicyChoice
from fluxqueue.fluxion.match.windows import Window

__all__ = ["Traverser"]


@dataclass(slots=True)
class Traverser:
    """One attempt to place one request in one window.

    Attributes
    ----------
    deep_slots
        Count slots that are one level too deep, as flux-sched does.
    """

    graph: Graph
    policy: MatchPolicy
    window: Window
    deep_slots: bool = False
    _choice: PolicyChoice = field(init=False)

    def __post_init__(self) -> None:
        self._choice = PolicyChoice(self.policy)

    def place(self, request: Sequence[Resource]) -> GraphPlacement | None:
        """Return a placement of a request; None if there is none."""
        by_type: CandidatesByType = {}
        if not self._visit(self.graph.root, request, pristine=True, exclusive=False, into=by_type):
            return None
        chosen = self._choice.choose_all(request, by_type, at_root=True)
        if chosen is None:
            return None
        placement = GraphPlacement()
        placement.pass_through(self.graph.root)
        for candidate in chosen:
            candidate.take(placement)
        return placement

    # ---- going down ----------------------------------------------------------------------------------------

    def _visit(
        self,
        vertex: Vertex,
        request: Sequence[Resource],
        *,
        pristine: bool,
        exclusive: bool,
        into: CandidatesByType,
    ) -> bool:
        """Match the request at a vertex and below, and add candidates to ``into``;
        return False if there are none.
        """
        matched = _level_of(request, vertex.type)
        inner: Sequence[Resource]
        if matched is not None:
            if (exclusive and matched.exclusive is False) or not _distinct(request):
                return False
            inner = matched.children
            exclusive = exclusive or bool(matched.exclusive)
        elif pristine:
            inner = request
        else:
            return self._deep_slot(vertex, request, exclusive=exclusive, into=into)
        whole = self.policy.node_exclusive and vertex.type == NODE
        exclusive = exclusive or whole
        if not self.window.admits(vertex, exclusive):
            return False
        below: CandidatesByType = {}
        if inner:
            self._explore(vertex, inner, pristine=matched is None, exclusive=exclusive, into=below)
        if matched is None:
            if not below:
                return False
            self._merge(vertex, below, into, whole=whole)
            return True
        chosen = self._choice.choose_all(inner, below, at_root=vertex is self.graph.root)
        if chosen is None:
            return False
        entire = whole or bool(matched.exclusive)
        into.setdefault(vertex.type, []).append(
            vertex_candidate(vertex, self._choice.score(vertex), exclusive, entire, matched.label, chosen)
        )
        return True

    def _deep_slot(
        self, vertex: Vertex, request: Sequence[Resource], *, exclusive: bool, into: CandidatesByType
    ) -> bool:
        """Count a slot that fits a child of the vertex that should have it, and take nothing of it.

        flux-sched finds such slots and then cannot book them. This has no effect where nothing is booked, or
        where the vertex above is taken whole. Otherwise the request gets nothing.
        """
        slots = [level for level in request if level.type == SLOT]
        if (
            not self.deep_slots
            or len(slots) != 1
            or not _slot_fits(vertex, slots[0])
            or not self.window.admits(vertex, exclusive)
        ):
            return False
        by_type: CandidatesByType = {}
        self._pack(vertex, slots[0], by_type, limit=slots[0].count.most)
        lost = [
            MatchCandidate(candidate.score, candidate.size, nothing) for candidate in by_type.get(SLOT, ())
        ]
        if lost:
            into.setdefault(SLOT, []).extend(lost)
        return bool(lost)

    def _merge(self, vertex: Vertex, below: CandidatesByType, into: CandidatesByType, *, whole: bool) -> None:
        """Pass candidates from below a vertex upwards; with ``whole``,
        the vertex is taken with any of them.
        """
        for kind, candidates in below.items():
            if whole:
                candidates = [within(vertex, candidate) for candidate in candidates]
            into.setdefault(kind, []).extend(candidates)

    def _explore(
        self,
        vertex: Vertex,
        inner: Sequence[Resource],
        *,
        pristine: bool,
        exclusive: bool,
        into: CandidatesByType,
    ) -> None:
        slots = [level for level in inner if level.type == SLOT]
        here = [slot for slot in slots if _slot_fits(vertex, slot)]
        if len(slots) == 1 and here and _distinct(here[0].children):
            limit = None if pristine and not self.policy.stop_on_first else here[0].count.most
            self._pack(vertex, here[0], into, limit=limit)
        rest = [level for level in inner if level.type != SLOT]
        if not pristine and _distinct(inner):
            rest = [
                level for level in rest if not self._gather(vertex, level, exclusive=exclusive, into=into)
            ]
        if slots and not here and (pristine or self.deep_slots):
            rest = list(inner)
        if rest and _distinct(inner):
            self._collect(vertex, rest, pristine=pristine, exclusive=exclusive, into=into, times=1)

    def _collect(
        self,
        vertex: Vertex,
        levels: Sequence[Resource],
        *,
        pristine: bool,
        exclusive: bool,
        into: CandidatesByType,
        times: int,
    ) -> None:
        """Collect candidates for these levels from the children, in order of discovery."""
        stop = _Enough(levels, into, times) if self.policy.stop_on_first else None
        for entry in self._entries(vertex, levels):
            if isinstance(entry, Vertex):
                if stop is not None and stop.has(entry.type):
                    continue
                self._visit(entry, levels, pristine=pristine, exclusive=exclusive, into=into)
            else:
                run, positions = entry
                if stop is not None and stop.has(run.type):
                    continue
                level = _level_of(levels, run.type)
                if (
                    level is None
                    or level.children
                    or not _distinct(levels)
                    or (exclusive and level.exclusive is False)
                ):
                    continue
                alone = exclusive or bool(level.exclusive)
                free = self.window.free(run, exclusive=alone)
                for index in positions:
                    if free >> index & 1:
                        into.setdefault(run.type, []).append(
                            leaf_candidate(
                                run, index, self._choice.leaf_score(run, index), alone, level.label
                            )
                        )
                        if stop is not None and stop.reached():
                            return
            if stop is not None and stop.reached():
                return

    def _entries(
        self, vertex: Vertex, levels: Sequence[Resource]
    ) -> Iterator[Vertex | tuple[LeafRun, Iterable[int]]]:
        """Yield the children in the order in which they are explored."""
        if not self.policy.stop_on_first:
            for edge in vertex.entries:
                if isinstance(edge, Vertex):
                    yield edge
                elif isinstance(edge, LeafRun):
                    yield edge, edge.in_order(edge.full)
                else:
                    yield edge[0], (edge[1],)
            return
        wanted = [run for run in vertex.runs.values() if _level_of(levels, run.type) is not None]
        if not wanted:
            yield from vertex.explored()
            return
        keyed: list[tuple[int, int, Vertex | tuple[LeafRun, Iterable[int]]]] = [
            (vertex.weights.get(child, UNTOUCHED), child.uniq_id, child) for child in vertex.children
        ]
        for run in wanted:
            keyed.extend((UNTOUCHED, run.uniq_ids[index], (run, (index,))) for index in bits(run.full))
        keyed.sort(key=lambda item: item[:2], reverse=True)
        for _, _, entry in keyed:
            yield entry

    # ---- slots ---------------------------------------------------------------------------------------------

    def _gather(self, vertex: Vertex, level: Resource, *, exclusive: bool, into: CandidatesByType) -> bool:
        """Choose leaves of a vertex that has matched, all at once;
        return False if they must be visited one by one.
        """
        run = self._pool(vertex, level)
        if (
            run is None
            or self.policy.order is CandidateOrder.VARIATION
            or (exclusive and level.exclusive is False)
        ):
            return False
        alone = exclusive or bool(level.exclusive)
        free = self.window.free(run, exclusive=alone)
        wanted = level.count.qualify(run.amount(free))
        if wanted:
            mask = take_leaf_sets(run, free, wanted, 1, descending=self.policy.descending)
            into[level.type] = [leaves_candidate(run, mask, wanted, alone)]
        return True

    def _pool(self, vertex: Vertex, level: Resource) -> LeafRun | None:
        """Return the run that matches a level, if its leaves are taken strictly from one end."""
        run = vertex.runs.get(level.type)
        if run is None or level.children or level.label or level.count.low == 0 or run.size == 0:
            return None
        policy = self.policy
        if policy.order is CandidateOrder.VARIATION:
            if run.properties or run.order is not None:
                return None
        elif not run.regular or (policy.stop_on_first and not (policy.descending and run.monotone)):
            return None
        return None if any(child.type == level.type for child in vertex.children) else run

    def _pack_pools(self, vertex: Vertex, slot: Resource, into: CandidatesByType, limit: int | None) -> bool:
        """Make slots of leaves by sets of bits; return False if leaves must be visited one by one."""
        pools: list[tuple[LeafRun, int, int]] = []
        for level in slot.children:
            run = self._pool(vertex, level)
            if run is None:
                return False
            free = self.window.free(run, exclusive=True)
            pools.append((run, free, level.count.qualify(run.amount(free))))
        if all(each for _, _, each in pools):
            factor = vertex.factor if self.policy.node_centric else 0
            by_id = self.policy.order is not CandidateOrder.VARIATION
            streams = [
                leaf_sets(run, free, each, descending=self.policy.descending) for run, free, each in pools
            ]
            runs = [run for run, _, _ in pools]
            for number, masks in enumerate(zip(*streams, strict=False)):
                if number == limit:
                    break
                score = 1
                for run, mask in zip(runs, masks, strict=True):
                    score += mask.bit_count() * (2 + factor if by_id else 10_000)
                    if by_id:
                        score += sum(run.ids[index] for index in bits(mask))
                leaves = tuple(zip(runs, masks, strict=True))
                into.setdefault(SLOT, []).append(pool_slot_candidate(vertex, slot, score, leaves))
        return True

    def _pack(self, vertex: Vertex, slot: Resource, into: CandidatesByType, *, limit: int | None) -> None:
        """Make slots of the children of a vertex, best members first:
        as many as possible, or at most ``limit``.
        """
        members: CandidatesByType = {}
        for level in slot.children:
            if level.exclusive is False:
                return
        if self._pack_pools(vertex, slot, into, limit):
            return
        self._collect(
            vertex, slot.children, pristine=False, exclusive=True, into=members, times=slot.count.most
        )
        queues: list[tuple[Resource, list[MatchCandidate], int]] = []
        for level in slot.children:
            candidates = members.get(level.type)
            if not candidates:
                return
            queues.append(
                (
                    level,
                    self._choice.members(candidates),
                    level.count.qualify(sum(c.size for c in candidates)),
                )
            )
        if not queues or any(each == 0 for _, _, each in queues):
            return
        positions = [0] * len(queues)
        while True:
            chosen: list[MatchCandidate] = []
            for number, (_level, candidates, each) in enumerate(queues):
                size = 0
                position = positions[number]
                while size < each and position < len(candidates):
                    size += candidates[position].size
                    chosen.append(candidates[position])
                    position += 1
                if size < each:
                    return
                positions[number] = position
            into.setdefault(SLOT, []).append(slot_candidate(vertex, slot, chosen))


class _Enough:
    """Decides when exploration has found all that could be taken, of one type and of all types.

    A slot needs ``times`` shares of each type, each of whole vertices of its own.
    """

    def __init__(self, levels: Sequence[Resource], by_type: CandidatesByType, times: int) -> None:
        self._wanted = {level.type: level.count.most for level in levels}
        self._candidates = by_type
        self._times = times

    def has(self, kind: str) -> bool:
        each = self._wanted.get(kind)
        if each is None:
            return False
        shares = size = 0
        for candidate in self._candidates.get(kind, ()):
            size += candidate.size
            if size >= each:
                shares, size = shares + 1, 0
        return shares >= self._times

    def reached(self) -> bool:
        return all(self.has(kind) for kind in self._wanted)


def _level_of(levels: Sequence[Resource], kind: str) -> Resource | None:
    for level in levels:
        if level.type == kind:
            return level
    return None


def _distinct(levels: Sequence[Resource]) -> bool:
    return len(levels) < 2 or len({level.type for level in levels}) == len(levels)


def _slot_fits(vertex: Vertex, slot: Resource) -> bool:
    """Return True if the vertex has a child of every type in the slot."""
    if not slot.children:
        return False
    kinds = {child.type for child in vertex.children}
    return all(level.type in vertex.runs or level.type in kinds for level in slot.children)
