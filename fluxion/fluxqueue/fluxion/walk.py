"""The exact walk: which vertices a request takes, by visiting everything that could matter.

The graph is walked depth first from the root with the levels of the request that may match next. Leading levels of the request may be
missing: until the first level has matched, vertices of other types are passed through and what is found below them is merged upwards.
After that every level must match. On the way back each vertex chooses among the candidates its children brought: all that qualify are
sorted by score, as std::sort would, and the first so many are taken, all the way up to the root, which chooses for the request's top.

A slot matches at a vertex that has children of every type the slot asks for. It packs these into disjoint bundles, and the bundles are
candidates themselves. What lies below a slot is exclusive.

This walk is right for every policy and shape and looks at everything; `shortcuts` knows when less looking gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.bundles import bundles, take
from fluxqueue.fluxion.candidates import (
    Candidate,
    Found,
    leaf_candidate,
    leaves_candidate,
    nothing,
    pool_slot_candidate,
    slot_candidate,
    vertex_candidate,
    within,
)
from fluxqueue.fluxion.graph import NODE, UNTOUCHED, Graph, Vertex
from fluxqueue.fluxion.introsort import introsort
from fluxqueue.fluxion.jobs import Placement
from fluxqueue.fluxion.jobspecs import SLOT, Count, Resource
from fluxqueue.fluxion.policies import Order, Policy
from fluxqueue.fluxion.runs import LeafRun, bits
from fluxqueue.fluxion.windows import Window

__all__ = ["Walk"]


@dataclass(slots=True)
class Walk:
    """One attempt to place one request in one window.

    Attributes
    ----------
    astray
        Count slots that lie one level too deep, as the original does.
    """

    graph: Graph
    policy: Policy
    window: Window
    astray: bool = False

    def place(self, request: Sequence[Resource]) -> Placement | None:
        """Find a place for a request; None if there is none."""
        found: Found = {}
        if not self._visit(self.graph.root, request, pristine=True, exclusive=False, into=found):
            return None
        chosen = self._choose_all(self.graph.root, request, found)
        if chosen is None:
            return None
        placement = Placement()
        placement.pass_through(self.graph.root)
        for candidate in chosen:
            candidate.take(placement)
        return placement

    # ---- going down ------------------------------------------------------------------------------------------------------------

    def _visit(self, vertex: Vertex, request: Sequence[Resource], *, pristine: bool, exclusive: bool, into: Found) -> bool:
        """Look for the request at a vertex and below; add candidates to ``into``. False if nothing came of it."""
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
            return self._astray(vertex, request, exclusive=exclusive, into=into)
        whole = self.policy.node_exclusive and vertex.type == NODE
        exclusive = exclusive or whole
        if not self.window.admits(vertex, exclusive):
            return False
        below: Found = {}
        if inner:
            self._explore(vertex, inner, pristine=matched is None, exclusive=exclusive, into=below)
        if matched is None:
            if not below:
                return False
            self._merge(vertex, below, into, whole=whole)
            return True
        chosen = self._choose_all(vertex, inner, below)
        if chosen is None:
            return False
        entire = whole or bool(matched.exclusive)
        into.setdefault(vertex.type, []).append(vertex_candidate(vertex, self.score(vertex), exclusive, entire, matched.label, chosen))
        return True

    def _astray(self, vertex: Vertex, request: Sequence[Resource], *, exclusive: bool, into: Found) -> bool:
        """A slot that fits a child of the vertex it was asked of: it counts, but nothing of it is taken.

        The original finds such slots and then cannot book them. That passes where nothing is booked, and where the vertex above is
        taken whole anyway; otherwise the request comes out empty-handed.
        """
        slots = [level for level in request if level.type == SLOT]
        if not self.astray or len(slots) != 1 or not _slot_fits(vertex, slots[0]) or not self.window.admits(vertex, exclusive):
            return False
        found: Found = {}
        self._pack(vertex, slots[0], found, limit=slots[0].count.most)
        lost = [Candidate(candidate.score, candidate.size, nothing) for candidate in found.get(SLOT, ())]
        if lost:
            into.setdefault(SLOT, []).extend(lost)
        return bool(lost)

    def _merge(self, vertex: Vertex, below: Found, into: Found, *, whole: bool) -> None:
        """Hand candidates found below a passed vertex upwards; one that is taken whole goes with any of them."""
        for kind, candidates in below.items():
            if whole:
                candidates = [within(vertex, candidate) for candidate in candidates]
            into.setdefault(kind, []).extend(candidates)

    def _explore(self, vertex: Vertex, inner: Sequence[Resource], *, pristine: bool, exclusive: bool, into: Found) -> None:
        slots = [level for level in inner if level.type == SLOT]
        here = [slot for slot in slots if _slot_fits(vertex, slot)]
        if len(slots) == 1 and here and _distinct(here[0].children):
            limit = None if pristine and not self.policy.stop_on_first else here[0].count.most
            self._pack(vertex, here[0], into, limit=limit)
        rest = [level for level in inner if level.type != SLOT]
        if not pristine and _distinct(inner):
            rest = [level for level in rest if not self._gather(vertex, level, exclusive=exclusive, into=into)]
        if slots and not here and (pristine or self.astray):
            rest = list(inner)
        if rest and _distinct(inner):
            self._collect(vertex, rest, pristine=pristine, exclusive=exclusive, into=into, times=1)

    def _collect(self, vertex: Vertex, levels: Sequence[Resource], *, pristine: bool, exclusive: bool, into: Found, times: int) -> None:
        """Gather candidates for these levels from the children, in order of discovery."""
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
                if level is None or level.children or not _distinct(levels) or (exclusive and level.exclusive is False):
                    continue
                alone = exclusive or bool(level.exclusive)
                free = self.window.free(run, exclusive=alone)
                for index in positions:
                    if free >> index & 1:
                        into.setdefault(run.type, []).append(leaf_candidate(run, index, self.leaf_score(run, index), alone, level.label))
                        if stop is not None and stop.reached():
                            return
            if stop is not None and stop.reached():
                return

    def _entries(self, vertex: Vertex, levels: Sequence[Resource]) -> Iterator[Vertex | tuple[LeafRun, Iterable[int]]]:
        """Children in the order in which they are explored."""
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

    # ---- slots -----------------------------------------------------------------------------------------------------------------

    def _gather(self, vertex: Vertex, level: Resource, *, exclusive: bool, into: Found) -> bool:
        """Choose leaves of a vertex that has matched, all at once; False if they must be looked at one by one."""
        run = self._pool(vertex, level)
        if run is None or self.policy.order is Order.VARIATION or (exclusive and level.exclusive is False):
            return False
        alone = exclusive or bool(level.exclusive)
        free = self.window.free(run, exclusive=alone)
        wanted = level.count.qualify(run.amount(free))
        if wanted:
            mask = take(run, free, wanted, 1, descending=self.policy.descending)
            into[level.type] = [leaves_candidate(run, mask, wanted, alone)]
        return True

    def _pool(self, vertex: Vertex, level: Resource) -> LeafRun | None:
        """The run a level is matched by, if its leaves are taken strictly from one end."""
        run = vertex.runs.get(level.type)
        if run is None or level.children or level.label or level.count.low == 0 or run.size == 0:
            return None
        policy = self.policy
        if policy.order is Order.VARIATION:
            if run.properties or run.order is not None:
                return None
        elif not run.regular or (policy.stop_on_first and not (policy.descending and run.monotone)):
            return None
        return None if any(child.type == level.type for child in vertex.children) else run

    def _pack_pools(self, vertex: Vertex, slot: Resource, into: Found, limit: int | None) -> bool:
        """Make slots of leaves by sets of bits; False if leaves must be looked at one by one."""
        pools: list[tuple[LeafRun, int, int]] = []
        for level in slot.children:
            run = self._pool(vertex, level)
            if run is None:
                return False
            free = self.window.free(run, exclusive=True)
            pools.append((run, free, level.count.qualify(run.amount(free))))
        if all(each for _, _, each in pools):
            factor = vertex.factor if self.policy.node_centric else 0
            by_id = self.policy.order is not Order.VARIATION
            streams = [bundles(run, free, each, descending=self.policy.descending) for run, free, each in pools]
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

    def _pack(self, vertex: Vertex, slot: Resource, into: Found, *, limit: int | None) -> None:
        """Make slots of the children of a vertex, best members first: as many as there can be, or no more than the limit."""
        members: Found = {}
        for level in slot.children:
            if level.exclusive is False:
                return
        if self._pack_pools(vertex, slot, into, limit):
            return
        self._collect(vertex, slot.children, pristine=False, exclusive=True, into=members, times=slot.count.most)
        queues: list[tuple[Resource, list[Candidate], int]] = []
        for level in slot.children:
            candidates = members.get(level.type)
            if not candidates:
                return
            queues.append((level, self._members(candidates), level.count.qualify(sum(c.size for c in candidates))))
        if not queues or any(each == 0 for _, _, each in queues):
            return
        positions = [0] * len(queues)
        while True:
            bundle: list[Candidate] = []
            for number, (_level, candidates, each) in enumerate(queues):
                size = 0
                position = positions[number]
                while size < each and position < len(candidates):
                    size += candidates[position].size
                    bundle.append(candidates[position])
                    position += 1
                if size < each:
                    return
                positions[number] = position
            into.setdefault(SLOT, []).append(slot_candidate(vertex, slot, bundle))

    # ---- choosing --------------------------------------------------------------------------------------------------------------

    def _choose_all(self, vertex: Vertex, levels: Sequence[Resource], found: Found) -> list[Candidate] | None:
        """Take what each level asks for; None if one cannot be had."""
        chosen: list[Candidate] = []
        for level in levels:
            candidates = found.get(level.type)
            if not candidates:
                return None
            taken = self._choose(vertex, candidates, level.count)
            if taken is None:
                return None
            chosen.extend(taken)
        return chosen

    def _choose(self, vertex: Vertex, candidates: list[Candidate], count: Count) -> list[Candidate] | None:
        wanted = count.qualify(sum(candidate.size for candidate in candidates))
        if wanted == 0:
            return None
        taken: list[Candidate] = []
        for candidate in self._sorted(candidates, joined=vertex is self.graph.root):
            taken.append(candidate)
            wanted -= candidate.size
            if wanted <= 0:
                break
        return taken

    def _members(self, candidates: list[Candidate]) -> list[Candidate]:
        """Members of slots, best first; policy variation turns its own order round for them."""
        if self.policy.order is Order.VARIATION:
            return sorted(candidates, key=lambda candidate: -candidate.score)
        return self._sorted(candidates)

    def _sorted(self, candidates: list[Candidate], *, joined: bool = False) -> list[Candidate]:
        """Best first; ``joined`` (at the root) lets policy locality look at runs of scores."""
        if joined and self.policy.order is Order.LOCALITY:
            place = _contiguous_runs(candidates)
            return introsort(candidates, lambda candidate: -place[candidate.score])
        if self.policy.descending:
            return introsort(candidates, lambda candidate: -candidate.score)
        return introsort(candidates, lambda candidate: candidate.score)

    # ---- scores ----------------------------------------------------------------------------------------------------------------

    def score(self, vertex: Vertex) -> int:
        """What a vertex is sorted by."""
        if self.policy.order is Order.VARIATION:
            return 1 + _performance_class(vertex.properties)
        return 2 + vertex.id + (vertex.parent.factor if self.policy.node_centric and vertex.parent is not None else 0)

    def leaf_score(self, run: LeafRun, index: int) -> int:
        """What a leaf is sorted by."""
        if self.policy.order is Order.VARIATION:
            return 1 + _performance_class(run.properties.get(index, {}))
        return 2 + run.ids[index] + (run.parent.factor if self.policy.node_centric else 0)


class _Enough:
    """Tells when exploration has found all that could be taken, of one type and of all.

    For a slot, ``times`` shares of each type are needed, each of whole vertices of its own.
    """

    def __init__(self, levels: Sequence[Resource], found: Found, times: int) -> None:
        self._wanted = {level.type: level.count.most for level in levels}
        self._found = found
        self._times = times

    def has(self, kind: str) -> bool:
        each = self._wanted.get(kind)
        if each is None:
            return False
        shares = size = 0
        for candidate in self._found.get(kind, ()):
            size += candidate.size
            if size >= each:
                shares, size = shares + 1, 0
        return shares >= self._times

    def reached(self) -> bool:
        return all(self.has(kind) for kind in self._wanted)


def _contiguous_runs(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Score -> number of the run of consecutive scores it lies in, from the lowest up."""
    place: dict[int, int] = {}
    run, before = 0, None
    for score in sorted({candidate.score for candidate in candidates}):
        if before is not None and score != before + 1:
            run += 1
        place[score] = run
        before = score
    return place


def _level_of(levels: Sequence[Resource], kind: str) -> Resource | None:
    for level in levels:
        if level.type == kind:
            return level
    return None


def _distinct(levels: Sequence[Resource]) -> bool:
    return len(levels) < 2 or len({level.type for level in levels}) == len(levels)


def _slot_fits(vertex: Vertex, slot: Resource) -> bool:
    """A slot matches where there is a child of every type it asks for."""
    if not slot.children:
        return False
    kinds = {child.type for child in vertex.children}
    return all(level.type in vertex.runs or level.type in kinds for level in slot.children)


def _performance_class(properties: object) -> int:
    text = properties.get("perf_class", "") if hasattr(properties, "get") else ""
    return int(text) if text.isdecimal() and int(text) <= 9999 else 9999
