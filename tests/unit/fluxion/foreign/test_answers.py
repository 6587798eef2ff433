"""What is read from an answer, and what is refused."""

from __future__ import annotations

import pytest
from support.fluxion_builders import engine, jobspec, node, slot

from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.foreign.answers import InvalidAnswer, taken_in
from fluxqueue.fluxion.foreign.free_graphs import free_graph
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.messages import MatchedAllocation


def test_vertices_are_counted_by_node_and_type() -> None:
    server = Engine()
    server.init(
        "lonode",
        jgf=free_graph(
            engine(node("a", cpu=2_000, memory=512), node("node-9", cpu=2_000, memory=512)).state, UNITS
        ).text,
    )
    match = server.match(jobspec(slot(3, core=1, memory=1)), MatchRequestKind.ALLOCATE)
    taken = taken_in(MatchedAllocation(match.jobid, match.allocation()))
    assert taken == {"a": {"core": 2, "memory": 2}, "node-9": {"core": 1, "memory": 1}}


UNITS = ForeignUnits(memory_mib=256)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (MatchedAllocation(1, "{}", reserved=True, at=60), "begins 60 s after"),
        (MatchedAllocation(1, ""), "no JGF"),
        (MatchedAllocation(1, "[1]"), "no JGF"),
        (MatchedAllocation(1, '{"graph": {"nodes": [{"metadata": {"type": "core"}}]}}'), "no JGF"),
        (MatchedAllocation(1, '{"graph": {"nodes": []}}'), "holds nothing"),
        (
            MatchedAllocation(
                1,
                '{"graph": {"nodes": [{"metadata": {"type": "core", "paths": '
                '{"containment": "/other/a/core0"}}}]}}',
            ),
            "has not",
        ),
        (
            MatchedAllocation(
                1,
                '{"graph": {"nodes": [{"metadata": {"type": "pu", "paths": '
                '{"containment": "/cluster0/a/b/c"}}}]}}',
            ),
            "has not",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(answer: MatchedAllocation, why: str) -> None:
    with pytest.raises(InvalidAnswer, match=why):
        taken_in(answer)
