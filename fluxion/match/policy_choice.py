"""How a policy scores vertices and leaves, and which candidates it chooses: the best ones, in the order of
std::sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import Vertex
from fluxqueue.fluxion.match.candidates import CandidatesByType, MatchCandidate
from fluxqueue.fluxion.match.introsort import introsort
from fluxqueue.fluxion.match.jobspec import Count, Resource
from fluxqueue.fluxion.match.policies import CandidateOrder, MatchPolicy

__all__ = ["PolicyChoice"]


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """What one policy chooses."""

    policy: MatchPolicy

    def choose_all(
        self, levels: Sequence[Resource], by_type: CandidatesByType, *, at_root: bool
    ) -> list[MatchCandidate] | None:
        """Choose candidates for each level; None if a level cannot be satisfied."""
        chosen: list[MatchCandidate] = []
        for level in levels:
            candidates = by_type.get(level.type)
            if not candidates:
                return None
            taken = self._choose(candidates, level.count, at_root=at_root)
            if taken is None:
                return None
            chosen.extend(taken)
        return chosen

    def _choose(
        self, candidates: list[MatchCandidate], count: Count, *, at_root: bool
    ) -> list[MatchCandidate] | None:
        wanted = count.qualify(sum(candidate.size for candidate in candidates))
        if wanted == 0:
            return None
        taken: list[MatchCandidate] = []
        for candidate in self._sorted(candidates, joined=at_root):
            taken.append(candidate)
            wanted -= candidate.size
            if wanted <= 0:
                break
        return taken

    def members(self, candidates: list[MatchCandidate]) -> list[MatchCandidate]:
        """Return the members of slots, best first; policy variation reverses its order for them."""
        if self.policy.order is CandidateOrder.VARIATION:
            return sorted(candidates, key=lambda candidate: -candidate.score)
        return self._sorted(candidates)

    def _sorted(self, candidates: list[MatchCandidate], *, joined: bool = False) -> list[MatchCandidate]:
        """Return the candidates, best first; with ``joined`` (at the root) policy locality sorts by runs of
        scores.
        """
        if joined and self.policy.order is CandidateOrder.LOCALITY:
            run_of = _contiguous_runs(candidates)
            return introsort(candidates, lambda candidate: -run_of[candidate.score])
        if self.policy.descending:
            return introsort(candidates, lambda candidate: -candidate.score)
        return introsort(candidates, lambda candidate: candidate.score)

    def score(self, vertex: Vertex) -> int:
        """Return the score of a vertex."""
        if self.policy.order is CandidateOrder.VARIATION:
            return 1 + _performance_class(vertex.properties)
        return (
            2
            + vertex.id
            + (vertex.parent.factor if self.policy.node_centric and vertex.parent is not None else 0)
        )

    def leaf_score(self, run: LeafRun, index: int) -> int:
        """Return the score of a leaf."""
        if self.policy.order is CandidateOrder.VARIATION:
            return 1 + _performance_class(run.properties.get(index, {}))
        return 2 + run.ids[index] + (run.parent.factor if self.policy.node_centric else 0)


def _contiguous_runs(candidates: Sequence[MatchCandidate]) -> dict[int, int]:
    """Return score -> number of its run of consecutive scores, from the lowest up."""
    run_of: dict[int, int] = {}
    run, before = 0, None
    for score in sorted({candidate.score for candidate in candidates}):
        if before is not None and score != before + 1:
            run += 1
        run_of[score] = run
        before = score
    return run_of


def _performance_class(properties: object) -> int:
    text = properties.get("perf_class", "") if hasattr(properties, "get") else ""
    return int(text) if text.isdecimal() and int(text) <= 9999 else 9999
