"""Planned starts that are over a limit by what runs, is reserved or is planned before."""

from __future__ import annotations

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxqueues import NamespaceLimits, QueueLimits
from fluxqueue.queue.model.records import Workload, WorkloadId
from fluxqueue.queue.scheduling.limits.limits_ahead import starts_within_limits
from fluxqueue.queue.scheduling.limits.quotas import Quotas

NOW = 1_000


def row(number: int, **parts: object) -> Workload:
    return a_workload(f"w{number}", id=WorkloadId(number), duration_s=100, **parts)


@pytest.mark.parametrize(
    ("limits", "starts"),
    [
        (QueueLimits(), [NOW, NOW, NOW, NOW + 100]),
        (QueueLimits(running=3), [NOW, NOW, None, NOW + 100]),
        (QueueLimits(running=2), [NOW, None, None, NOW + 100]),
        (QueueLimits(per_namespace=NamespaceLimits(running=1)), [NOW, None, None, NOW + 100]),
    ],
)
def test_a_start_is_not_known_that_would_be_over_a_limit(
    limits: QueueLimits, starts: list[int | None]
) -> None:
    first = [row(number) for number in range(1, 5)]
    planned = dict(zip((each.id for each in first), (NOW, NOW, NOW, NOW + 100), strict=True))
    runs = row(9, namespace="other")
    quotas = Quotas({"default": limits}, ())
    quotas.add_usage(runs, ["n0"])
    found = starts_within_limits(first, planned, quotas, [(NOW + 100, runs.id)])
    assert [found[each.id] for each in first] == starts


def test_work_without_an_end_holds_its_part_of_a_limit() -> None:
    endless, later = a_workload("a", id=WorkloadId(1), duration_s=None), row(2)
    quotas = Quotas({"default": QueueLimits(running=1)}, ())
    found = starts_within_limits([endless, later], {endless.id: NOW, later.id: NOW + 10_000}, quotas, [])
    assert found == {endless.id: NOW, later.id: None}
