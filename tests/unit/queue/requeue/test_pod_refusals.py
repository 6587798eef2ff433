"""When pods that the API server refused are retried."""

from __future__ import annotations

import msgspec
import pytest

from fluxqueue.api.clusterobjects import ResourceQuota
from fluxqueue.queue.requeue.pod_refusals import leaves_more_room


def quota(hard: dict[str, str], used: dict[str, str]) -> ResourceQuota:
    return msgspec.convert({"metadata": {"name": "q", "namespace": "default"}, "status": {"hard": hard, "used": used}}, ResourceQuota)


BEFORE = quota({"pods": "2", "cpu": "4"}, {"pods": "2", "cpu": "500m"})


@pytest.mark.parametrize(
    ("after", "roomier"),
    [
        pytest.param(quota({"pods": "3", "cpu": "4"}, {"pods": "2", "cpu": "500m"}), True, id="a bound was raised"),
        pytest.param(quota({"cpu": "4"}, {"cpu": "500m"}), True, id="a bound was removed"),
        pytest.param(quota({"pods": "2", "cpu": "4"}, {"pods": "1", "cpu": "0.5"}), True, id="less is used"),
        pytest.param(quota({"pods": "2", "cpu": "4"}, {"pods": "2", "cpu": "1"}), False, id="more is used"),
        pytest.param(quota({"pods": "1", "cpu": "4"}, {"pods": "2", "cpu": "500m"}), False, id="a bound was lowered"),
    ],
)
def test_a_quota_is_tried_again_when_it_allows_more(after: ResourceQuota, roomier: bool) -> None:
    assert leaves_more_room(BEFORE, after) is roomier
