"""The three calls, and what is certain after each."""

from __future__ import annotations

import pytest
from support.fluxion_builders import engine, jobspec, node, slot
from support.three_calls import ThreeCalls

from fluxqueue.fluxion.errors import FluxionError, InitError, UnknownJob
from fluxqueue.fluxion.foreign.answers import InvalidAnswer
from fluxqueue.fluxion.foreign.free_graphs import FreeGraph, free_graph
from fluxqueue.fluxion.foreign.service import ForeignService
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.messages import MatchedAllocation
from fluxqueue.fluxion.rpc.failures import FluxionUnavailable, InvalidCall, MatchFailed

ONE_CORE = jobspec(slot(1, core=1))


def graph() -> FreeGraph:
    return free_graph(engine(node("a", cpu=2_000)).state, ForeignUnits())


@pytest.fixture
async def service() -> ForeignService:
    made = ForeignService(ThreeCalls(), "lonode")
    await made.init(graph())
    return made


def calls(service: ForeignService) -> list[str]:
    assert isinstance(service.client, ThreeCalls)
    return service.client.calls


async def test_nothing_is_certain_before_the_first_init() -> None:
    assert not ForeignService(ThreeCalls(), "lonode").certain


async def test_after_an_init_the_offered_nodes_are_known(service: ForeignService) -> None:
    assert service.certain
    assert service.offered == {"a"}


async def test_a_match_answers_what_it_takes(service: ForeignService) -> None:
    assert await service.match(7, ONE_CORE) == {"a": {"core": 1}}


async def test_a_match_that_fails_answers_nothing_and_stays_certain(service: ForeignService) -> None:
    assert await service.match(7, jobspec(slot(3, core=1))) is None
    assert service.certain


async def test_what_is_over_is_given_back(service: ForeignService) -> None:
    for jobid in (7, 8):
        await service.match(jobid, ONE_CORE)
    await service.cancel_others({8})
    assert await service.match(9, ONE_CORE) is not None
    assert await service.match(10, ONE_CORE) is None


async def test_a_job_of_several_parts_is_given_back_as_a_whole(service: ForeignService) -> None:
    for _ in range(2):
        await service.match(7, ONE_CORE)
    await service.cancel([7])
    assert calls(service)[-2:] == ["Cancel", "Cancel"]


async def test_a_new_init_forgets_all_jobs(service: ForeignService) -> None:
    await service.match(7, ONE_CORE)
    await service.init(graph())
    await service.cancel([7])
    assert "Cancel" not in calls(service)


@pytest.mark.parametrize("error", [FluxionUnavailable("gone"), InvalidCall("too large")])
async def test_after_a_match_without_an_answer_nothing_is_certain(
    service: ForeignService, error: FluxionError
) -> None:
    assert isinstance(service.client, ThreeCalls)
    service.client.fail("Match", error)
    with pytest.raises(type(error)):
        await service.match(7, ONE_CORE)
    assert not service.certain


async def test_a_cancel_without_an_answer_leaves_nothing_certain(service: ForeignService) -> None:
    assert isinstance(service.client, ThreeCalls)
    await service.match(7, ONE_CORE)
    service.client.fail("Cancel", FluxionUnavailable("gone"))
    await service.cancel([7])
    assert not service.certain


async def test_a_cancelled_job_may_be_unknown(service: ForeignService) -> None:
    assert isinstance(service.client, ThreeCalls)
    await service.match(7, ONE_CORE)
    service.client.fail("Cancel", UnknownJob("an old one"))
    await service.cancel([7])
    assert service.certain


async def test_an_id_that_does_not_rise_is_of_another_graph(service: ForeignService) -> None:
    assert isinstance(service.client, ThreeCalls)
    await service.match(7, ONE_CORE)
    await service.client.init("lonode", jgf=graph().text)  # somebody else
    with pytest.raises(InvalidAnswer, match="another user too"):
        await service.match(8, ONE_CORE)
    assert not service.certain


async def test_an_answer_that_cannot_be_used_is_given_back(service: ForeignService) -> None:
    assert isinstance(service.client, ThreeCalls)
    service.client.answer = lambda answer: MatchedAllocation(answer.jobid, "{}")
    with pytest.raises(InvalidAnswer):
        await service.match(7, ONE_CORE)
    assert calls(service)[-1] == "Cancel"


async def test_the_format_is_named_where_the_service_needs_it() -> None:
    client = ThreeCalls(names_format=True)
    service = ForeignService(client, "lonode")
    for _ in range(2):
        await service.init(graph())
    assert client.calls == ["Init", "Init", "Init"], "it is remembered"
    assert await service.match(7, ONE_CORE) is not None


@pytest.mark.parametrize("error", [InitError("no"), InvalidCall("larger than it takes")])
async def test_a_graph_that_is_refused_is_an_init_error(error: FluxionError) -> None:
    client = ThreeCalls()
    client.fail("Init", error, error)
    service = ForeignService(client, "lonode")
    with pytest.raises(InitError):
        await service.init(graph())
    assert not service.certain


async def test_an_empty_answer_is_none(service: ForeignService) -> None:
    assert isinstance(service.client, ThreeCalls)
    service.client.fail("Match", MatchFailed("Allocation was not possible"))
    assert await service.match(7, ONE_CORE) is None
