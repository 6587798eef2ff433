from typing import Any, cast

import msgspec
import pytest
from support.builders import make_queue

from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, Unreachable
from fluxqueue.kube.kinds import FLUXQUEUES
from fluxqueue.kube.queue_names import known_queues
from fluxqueue.kube.transport import Api


class Server:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def list(self, kind: object) -> Any:
        assert kind is FLUXQUEUES
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def known(answer: Any) -> frozenset[str] | None:
    return await known_queues(cast(Api, Server(answer)))


async def test_the_names_of_all_queues() -> None:
    assert await known(
        [msgspec.convert(make_queue(name), FluxQueue) for name in ("night", "gpu")]
    ) == frozenset({"night", "gpu"})


@pytest.mark.parametrize("kind", [Forbidden, NotFound])
async def test_who_may_not_read_queues_knows_none(kind: type[ApiError]) -> None:
    assert await known(kind(403, "no", "no")) is None


async def test_an_outage_is_no_answer() -> None:
    with pytest.raises(Unreachable):
        await known(Unreachable("no", sent=False))
