"""The short form, for every run of the tests: the chart comes up on real nodes,
and a gang runs where Fluxion said.
"""

from __future__ import annotations

from support.end_to_end import wrong
from support.real_nodes import NodeStage


def test_a_gang_runs_as_real_processes_on_exactly_its_nodes(stage: NodeStage) -> None:
    stage.apply(stage.make_job("gang", 'echo "$HOSTNAME" is rank "$JOB_COMPLETION_INDEX"', pods=2))
    assert wrong(stage.until_settled(120)) == []
    assert [stage.logs(pod.metadata.name) for pod in stage.row("gang").pods] == [
        f"gang-{rank} is rank {rank}\n" for rank in range(2)
    ]
    stage.until_consistent()
