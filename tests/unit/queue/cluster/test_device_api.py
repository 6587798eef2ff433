"""Whether claims of devices can be read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import DEVICE_TAINT_RULES
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster import device_api
from fluxqueue.queue.cluster.device_api import devices_are_served, served_taint_rules


class _Api:
    """Answers with these errors, then with an empty list."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = [*errors]

    async def page(self, _kind: Any, limit: int) -> None:
        assert limit == 1
        if self.errors:
            raise self.errors.pop(0)


@pytest.mark.parametrize(
    ("errors", "served"),
    [
        ((), True),
        ((NotFound(404, "NotFound", "no such group"),), False),
        ((Forbidden(403, "Forbidden", "no right"), Forbidden(403, "Forbidden", "no right")), False),
        ((Forbidden(403, "Forbidden", "it has just started"),), True),
        ((ApiError(500, "InternalError", "later"), ApiError(0, "Unreachable", "later")), True),
    ],
)
async def test_devices_are_counted_where_they_can_be_read(
    errors: tuple[ApiError, ...], served: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(device_api, "_RETRY_S", 0.0)
    api = _Api(*errors)
    assert await devices_are_served(cast(Api, api)) is served
    assert api.errors == []


@pytest.mark.parametrize(
    ("missing", "expected"), [(0, DEVICE_TAINT_RULES[0]), (1, DEVICE_TAINT_RULES[1]), (2, None)]
)
async def test_taint_rules_are_read_in_the_version_that_is_served(missing: int, expected: object) -> None:
    api = _Api(*(NotFound(404, "NotFound", "no such version"),) * missing)
    assert await served_taint_rules(cast(Api, api)) is expected
