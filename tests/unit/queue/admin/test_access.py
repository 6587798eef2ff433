"""Whether a caller is let in: what is asked of the API server, what is kept,
and what happens when it does not answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fluxqueue.api.reviews import AccessStatus, SubjectAccessReview, TokenReview, TokenStatus, TokenUser
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import TOKEN_REVIEWS, Kind
from fluxqueue.queue.admin.access import AccessReviews, ListsFluxJobs, Permission

METRICS = Permission("get", "/metrics")
DOCTOR = Permission("get", "/doctor", "fluxqueue")


class _Server:
    """Answers reviews: tokens are user names, and ``allowed`` are the users who may do anything."""

    def __init__(
        self, allowed: tuple[str, ...] = ("alice",), audiences: tuple[str, ...] = ("fluxqueue",)
    ) -> None:
        self.allowed = allowed
        self.audiences = audiences
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.away = False

    async def create(self, kind: Kind[Any], body: dict[str, Any]) -> Any:
        self.asked.append((kind.plural, body["spec"]))
        if self.away:
            raise ApiError(0, "", "no answer")
        if kind is TOKEN_REVIEWS:
            known = body["spec"]["token"] in ("alice", "bob")
            user = TokenUser(username=body["spec"]["token"], uid="1", groups=["ops"], extra={"scope": ["a"]})
            return TokenReview(
                status=TokenStatus(authenticated=known, user=user, audiences=list(self.audiences))
            )
        return SubjectAccessReview(status=AccessStatus(allowed=body["spec"]["user"] in self.allowed))


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reviews(server: _Server, clock: _Clock | None = None) -> AccessReviews:
    api: Any = server
    return AccessReviews(api, clock or _Clock())


async def test_user_and_right_are_asked_of_the_api_server() -> None:
    server = _Server()
    verdict = await reviews(server).check("alice", DOCTOR)
    assert (verdict.status, verdict.user) == (200, "alice")
    assert server.asked == [
        ("tokenreviews", {"token": "alice", "audiences": ["fluxqueue"]}),
        (
            "subjectaccessreviews",
            {
                "nonResourceAttributes": {"verb": "get", "path": "/doctor"},
                "user": "alice",
                "uid": "1",
                "groups": ["ops"],
                "extra": {"scope": ["a"]},
            },
        ),
    ]


@pytest.mark.parametrize(
    ("token", "permission", "status"),
    [
        pytest.param("", METRICS, 401, id="no token"),
        pytest.param("mallory", METRICS, 401, id="an invalid one"),
        pytest.param("a" * 10_000, METRICS, 401, id="a huge one"),
        pytest.param("bob", METRICS, 403, id="of a user without the right"),
        pytest.param("alice", METRICS, 200, id="of a user with it"),
    ],
)
async def test_who_is_let_in(token: str, permission: Permission, status: int) -> None:
    verdict = await reviews(_Server()).check(token, permission)
    assert verdict.status == status
    assert token not in verdict.sentence or token in ("", "bob")


async def test_a_token_for_another_audience_is_refused_although_it_is_valid() -> None:
    """An API server that does not know audiences answers without any: that is no proof."""
    assert (await reviews(_Server(audiences=())).check("alice", DOCTOR)).status == 401


async def test_answers_are_kept_for_seconds_only() -> None:
    server, clock = _Server(), _Clock()
    checked = reviews(server, clock)
    await checked.check("alice", METRICS)
    clock.now = 29
    await checked.check("alice", METRICS)
    assert len(server.asked) == 2
    server.allowed = ()
    clock.now = 31
    assert (await checked.check("alice", METRICS)).status == 403
    server.allowed = ("alice",)
    clock.now = 37
    assert (await checked.check("alice", METRICS)).status == 200


async def test_a_kept_answer_is_for_one_path_alone() -> None:
    server = _Server()
    checked = reviews(server)
    await checked.check("alice", METRICS)
    server.allowed = ()
    assert (await checked.check("alice", DOCTOR)).status == 403


async def test_an_api_server_that_does_not_answer_lets_nobody_in_and_is_asked_again() -> None:
    server = _Server()
    checked = reviews(server)
    server.away = True
    assert (await checked.check("alice", METRICS)).status == 503
    server.away = False
    assert (await checked.check("alice", METRICS)).status == 200


async def test_wrong_tokens_cost_few_reviews() -> None:
    server, clock = _Server(), _Clock()
    checked = reviews(server, clock)
    refused = [
        (await checked.check(f"guess-{number}", METRICS, "10.0.0.9")).status for number in range(1_000)
    ]
    assert (refused.count(401), refused.count(429)) == (20, 980)
    clock.now = 1
    assert [
        (await checked.check(f"later-{number}", METRICS, "10.0.0.9")).status for number in range(20)
    ].count(401) == 5


async def test_a_flood_of_wrong_tokens_refuses_no_scrape_of_a_known_caller() -> None:
    """Twenty a second for an hour, from the address of the caller itself;
    it asks every 30 s, when its answer has expired.
    """
    server, clock = _Server(), _Clock()
    checked = reviews(server, clock)
    scrapes = [(await checked.check("alice", METRICS)).status]
    for number in range(20 * 3_600):
        clock.now = (number + 1) / 20
        await checked.check(f"guess-{number}", METRICS)
        if number % 600 == 599:
            scrapes.append((await checked.check("alice", METRICS)).status)
    assert scrapes == [200] * 121


async def test_a_flood_of_wrong_tokens_keeps_no_newcomer_of_another_address_out() -> None:
    checked = reviews(_Server())
    for number in range(1_000):
        await checked.check(f"guess-{number}", METRICS, "10.0.0.9")
    assert (await checked.check("alice", METRICS, "10.0.0.1")).status == 200


async def test_many_addresses_together_cost_a_bounded_number_of_reviews() -> None:
    server = _Server()
    checked = reviews(server)
    for number in range(1_000):
        await checked.check(f"guess-{number}", METRICS, f"10.0.1.{number % 250}")
    assert len(server.asked) == 80


async def test_a_known_caller_has_a_budget_too() -> None:
    server, clock = _Server(), _Clock()
    checked = reviews(server, clock)
    statuses = [
        (await checked.check("alice", ListsFluxJobs("/history", f"n{number}"))).status
        for number in range(1_000)
    ]
    assert statuses.count(200) == 21


async def test_strangers_whom_the_api_server_lets_wait_keep_no_known_caller_out() -> None:
    class Slow(_Server):
        async def create(self, kind: Kind[Any], body: dict[str, Any]) -> Any:
            if body["spec"].get("token", "").startswith("guess"):
                await asyncio.Event().wait()
            return await super().create(kind, body)

    clock = _Clock()
    checked = reviews(Slow(), clock)
    await checked.check("alice", METRICS)
    clock.now = 31
    waiting = [
        asyncio.create_task(checked.check(f"guess-{number}", METRICS, f"10.0.0.{number}"))
        for number in range(10)
    ]
    assert (await checked.check("alice", METRICS)).status == 200
    refused = [await each for each in waiting[4:]]
    assert [verdict.status for verdict in refused] == [429] * 6, "four are asked about"
    for each in waiting[:4]:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_table_of_answers_is_bounded() -> None:
    server, clock = _Server(), _Clock()
    checked = reviews(server, clock)
    for number in range(2_000):
        clock.now = number / 5
        await checked.check(f"guess-{number}", METRICS)
    assert len(checked._refused) <= 256


@pytest.mark.parametrize(
    ("namespace", "sentence"),
    [
        (
            "science",
            "bob may not list FluxJobs in the namespace science: bind it to the ClusterRole view there",
        ),
        (
            "",
            (
                "bob may not list FluxJobs in all namespaces: name one that it may see, "
                "or bind it to the ClusterRole view in all"
            ),
        ),
    ],
)
async def test_the_right_to_list_fluxjobs_is_asked_of_the_api_server(namespace: str, sentence: str) -> None:
    server = _Server()
    right = ListsFluxJobs("/history", namespace)
    assert (await reviews(server).check("alice", right)).status == 200
    assert server.asked[-1][1]["resourceAttributes"] == {
        "verb": "list",
        "group": "jobs.converged-computing.org",
        "resource": "fluxjobs",
        "namespace": namespace,
    }
    assert (await reviews(server).check("bob", right)).sentence == sentence


async def test_the_answer_for_one_namespace_is_not_that_for_another() -> None:
    server = _Server()
    asking = reviews(server)
    for namespace in ("science", "art", "science", ""):
        await asking.check("alice", ListsFluxJobs("/history", namespace))
    assert [
        spec["resourceAttributes"]["namespace"]
        for kind, spec in server.asked
        if kind == "subjectaccessreviews"
    ] == [
        "science",
        "art",
        "",
    ]
