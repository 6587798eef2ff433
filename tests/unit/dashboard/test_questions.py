import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dashboard_site import Clock, PeopleApi
from support.queue_standin import QueueStandin, claims_token, run_queue_standin

from fluxqueue.dashboard.questions import NoAnswer, Questions
from fluxqueue.dashboard.settings import QueueAddress
from fluxqueue.kube.errors import Conflict

SYSTEM = "fluxqueue-system"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueStandin]:
    with run_queue_standin(tmp_path) as running:
        yield running


def account(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"


def people(*accounts: str) -> PeopleApi:
    api = PeopleApi()
    api.person("alice")
    for path in accounts:
        api.objects[path] = {"status": {"token": claims_token(path.split("/")[-2])}}
    api.objects[f"/api/v1/namespaces/{SYSTEM}/pods"] = {"items": []}
    return api


def questions(queue: QueueStandin) -> tuple[Questions, Clock]:
    clock = Clock()
    return Questions(QueueAddress(queue.url, queue.ca), clock), clock


async def test_history_is_asked_with_a_token_that_the_person_requested(queue: QueueStandin) -> None:
    api = people(account("blue", "fluxqueue-history"))
    asking, clock = questions(queue)
    for _ in range(2):
        answer = await asking.history(
            api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue", "since": "7d"}
        )
        assert len(answer["jobs"]) == 60
    assert [who for who, _, path, _ in api.asked if path.endswith("/token")] == ["alice"]
    assert queue.asked[0] == ("/history", {"namespace": "blue", "since": "7d"}, "fluxqueue-history")
    clock.now += 400
    await asking.history(api.with_token("token-of-alice"), "session", "/report", {"namespace": "blue"})
    assert len([path for _, _, path, _ in api.asked if path.endswith("/token")]) == 2


async def test_a_token_of_one_session_is_not_used_in_another(queue: QueueStandin) -> None:
    api = people(account("blue", "fluxqueue-history"))
    asking, _ = questions(queue)
    await asking.history(api.with_token("token-of-alice"), "one", "/history", {"namespace": "blue"})
    api.refused.add(("nobody", account("blue", "fluxqueue-history")))
    with pytest.raises(
        NoAnswer, match="you may not request tokens of the account fluxqueue-history in the namespace blue"
    ):
        await asking.history(api.with_token("of somebody else"), "two", "/history", {"namespace": "blue"})


@pytest.mark.parametrize(
    "name", ["a/pods/p/proxy/shutdown?", "../../apis/x", "a%2fb", "blue#", "Blue", "blue\n", "-", "b" * 64]
)
async def test_what_is_no_namespace_never_becomes_a_path_of_a_request_in_somebody_s_name(
    queue: QueueStandin, name: str
) -> None:
    api = people()
    asking, _ = questions(queue)
    with pytest.raises(NoAnswer, match="not the name of a namespace"):
        await asking.history(api.with_token("token-of-alice"), "session", "/history", {"namespace": name})
    assert api.asked == []


async def test_all_namespaces_are_asked_with_the_account_of_the_release(queue: QueueStandin) -> None:
    api = people(account(SYSTEM, "fluxqueue-history"))
    asking, _ = questions(queue)
    assert "rows" in await asking.history(api.with_token("token-of-alice"), "session", "/report", {})


async def test_what_is_missing_is_named_with_its_remedy(queue: QueueStandin) -> None:
    api = people()
    asking, _ = questions(queue)
    with pytest.raises(NoAnswer, match=r"has no account fluxqueue-history.*rbac\.historyIn"):
        await asking.history(api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"})
    with pytest.raises(NoAnswer, match="start the dashboard with --queue-url"):
        await Questions(QueueAddress(), Clock()).history(
            api.with_token("token-of-alice"), "session", "/history", {}
        )


async def test_a_queue_that_does_not_answer_is_said_without_a_token(queue: QueueStandin) -> None:
    api = people(account("blue", "fluxqueue-history"))
    gone = Questions(QueueAddress("https://127.0.0.1:1", queue.ca), Clock())
    with pytest.raises(NoAnswer, match="the queue does not answer") as caught:
        await gone.history(api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"})
    assert "signature" not in str(caught.value)


async def test_who_waits_behind_slow_questions_of_others_is_told(
    queue: QueueStandin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.dashboard.questions._TIMEOUT_S", 0.05)
    api = people(account("blue", "fluxqueue-history"))
    asking, _ = questions(queue)
    async with contextlib.AsyncExitStack() as others, asyncio.timeout(60):
        for number in range(4):
            await others.enter_async_context(asking._turns.turn(f"another-{number}"))
        with pytest.raises(NoAnswer, match="the queue is busy with other questions: ask again"):
            await asking.history(
                api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"}
            )


async def test_only_the_queue_s_certificate_is_trusted(queue: QueueStandin, tmp_path: Path) -> None:
    api = people(account("blue", "fluxqueue-history"))
    with run_queue_standin(tmp_path / "other") as other:
        asking = Questions(QueueAddress(queue.url, other.ca), Clock())
        with pytest.raises(NoAnswer, match="does not answer"):
            await asking.history(
                api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"}
            )
    assert queue.asked == []
    missing = Questions(QueueAddress(queue.url, tmp_path / "missing.crt"), Clock())
    with pytest.raises(NoAnswer, match="see --queue-ca"):
        await missing.history(api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"})


async def test_the_doctor_is_asked_through_the_api_server_as_the_person(queue: QueueStandin) -> None:
    api = people(account(SYSTEM, "fluxqueue-doctor"))
    api.objects[f"/api/v1/namespaces/{SYSTEM}/pods"] = {"items": [{"metadata": {"name": "queue-0"}}]}
    port = queue.url.rpartition(":")[2]
    api.objects[f"/api/v1/namespaces/{SYSTEM}/pods/https:queue-0:{port}/proxy/doctor"] = {"findings": []}
    asking, _ = questions(queue)
    assert await asking.doctor(api.with_token("token-of-alice"), "session") == {"findings": []}
    assert queue.asked == []


async def test_the_second_replica_is_asked_if_the_first_does_not_lead(queue: QueueStandin) -> None:
    api = people(account(SYSTEM, "fluxqueue-doctor"))
    pods = [{"metadata": {"name": "queue-0"}}, {"metadata": {"name": "queue-1"}}]
    api.objects[f"/api/v1/namespaces/{SYSTEM}/pods"] = {"items": pods}
    port = queue.url.rpartition(":")[2]
    path = f"/api/v1/namespaces/{SYSTEM}/pods/https:queue-{{}}:{port}/proxy/doctor"
    api.objects[path.format(0)] = Conflict(409, "Conflict", "it does not lead")
    asking, _ = questions(queue)
    with pytest.raises(NoAnswer, match="no replica of the queue answers"):
        await asking.doctor(api.with_token("token-of-alice"), "session")
    api.objects[path.format(1)] = {"findings": [{"sentence": "x"}]}
    assert (await asking.doctor(api.with_token("token-of-alice"), "session"))["findings"]


async def test_who_may_not_ask_the_doctor_learns_who_can_change_that(queue: QueueStandin) -> None:
    api = people()
    api.refused.add(("alice", f"/api/v1/namespaces/{SYSTEM}/pods"))
    asking, _ = questions(queue)
    with pytest.raises(NoAnswer, match="create rolebinding NAME --role=fluxqueue-doctor --user=YOU"):
        await asking.doctor(api.with_token("token-of-alice"), "session")


async def test_errors_of_the_queue_are_its_sentences(queue: QueueStandin) -> None:
    api = people()
    api.objects[account("blue", "fluxqueue-history")] = {"status": {"token": "for.something.else"}}
    asking, _ = questions(queue)
    with pytest.raises(NoAnswer, match="the token is not for fluxqueue"):
        await asking.history(api.with_token("token-of-alice"), "session", "/history", {"namespace": "blue"})
