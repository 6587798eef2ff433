"""What is freed and not yet given to the graph is collected until it is."""

from __future__ import annotations

from fluxqueue.queue.model.records import FluxionJobId, Slot, SlotState
from fluxqueue.queue.store.freed import Freed


def slot(rank: int) -> Slot:
    return Slot(jobid=FluxionJobId(7), rank=rank, node="n1", state=SlotState.ENDED)


def test_it_is_false_only_while_it_is_empty() -> None:
    assert not Freed()
    for some in (
        Freed(jobs={FluxionJobId(1)}),
        Freed(slots={FluxionJobId(7): [slot(0)]}),
        Freed(nodes={"n1"}),
    ):
        assert some


def test_what_could_not_be_freed_joins_what_was_freed_since() -> None:
    since = Freed(jobs={FluxionJobId(1)}, slots={FluxionJobId(7): [slot(0)]}, nodes={"n1"})
    since.add(
        Freed(
            jobs={FluxionJobId(2)},
            slots={FluxionJobId(7): [slot(1)], FluxionJobId(8): [slot(2)]},
            nodes={"n2"},
        )
    )
    assert since.jobs == {1, 2}
    assert [each.rank for each in since.slots[FluxionJobId(7)]] == [0, 1]
    assert [each.rank for each in since.slots[FluxionJobId(8)]] == [2]
    assert since.nodes == {"n1", "n2"}
