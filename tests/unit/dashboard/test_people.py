import pytest
from support.dashboard_site import Clock, PeopleApi

from fluxqueue.dashboard.people import NotKnown, ProxyHeaders, TokenReviews

SECRET = "a secret of the proxy"
PROXY = ProxyHeaders(SECRET)


def reviews() -> tuple[TokenReviews, PeopleApi, Clock]:
    api, clock = PeopleApi(), Clock()
    api.person("alice")
    return TokenReviews(api.own, clock), api, clock


async def test_a_token_is_reviewed_once_a_minute() -> None:
    people, api, clock = reviews()
    person = await people.person("token-of-alice")
    assert (person.username, person.groups) == ("alice", ("system:authenticated",))
    await people.person("token-of-alice")
    assert api.reviews("tokenreviews") == 1
    api.tokens.clear()
    clock.now += 61
    with pytest.raises(NotKnown, match="does not accept this token"):
        await people.person("token-of-alice")


@pytest.mark.parametrize("token", ["", "two words", "a\nb", '"quoted token"', "x" * 20_000, "tökén"])
async def test_what_is_no_token_is_not_sent_anywhere(token: str) -> None:
    people, api, _ = reviews()
    with pytest.raises(NotKnown, match="not a token"):
        await people.person(token)
    assert not api.asked


async def test_wrong_tokens_are_reviewed_at_a_bounded_rate_and_known_ones_always() -> None:
    people, api, clock = reviews()
    for number in range(20):
        with pytest.raises(NotKnown, match="does not accept"):
            await people.person(f"guess-{number}")
    with pytest.raises(NotKnown, match="too many people"):
        await people.person("guess-20")
    assert api.reviews("tokenreviews") == 20
    assert (await people.person("token-of-alice", known=True)).username == "alice"
    with pytest.raises(NotKnown, match="does not accept"):
        await people.person("guess-20", address="10.0.0.2")
    clock.now += 1
    with pytest.raises(NotKnown, match="does not accept"):
        await people.person("guess-21")


async def test_signing_in_with_the_same_token_again_and_again_has_the_same_rate() -> None:
    people, api, clock = reviews()
    for _ in range(20):
        await people.person("token-of-alice")
    with pytest.raises(NotKnown, match="too many people"):
        await people.person("token-of-alice")
    assert (await people.person("token-of-alice", known=True)).username == "alice"
    assert api.reviews("tokenreviews") == 1
    clock.now += 1
    await people.person("token-of-alice")


async def test_no_answer_has_a_cause_and_is_not_kept() -> None:
    people, api, _ = reviews()
    api.failing = True
    with pytest.raises(NotKnown, match="cannot be asked who you are") as caught:
        await people.person("token-of-alice")
    assert caught.value.__cause__ is not None
    api.failing = False
    assert (await people.person("token-of-alice")).username == "alice"


def headers(**others: str) -> dict[str, str]:
    sent = {
        "fluxqueue-proxy-secret": SECRET,
        "x-forwarded-user": "alice",
        **{name.replace("_", "-"): text for name, text in others.items()},
    }
    return {name: text for name, text in sent.items() if text}


def test_the_proxy_names_people_and_their_groups() -> None:
    person = PROXY.person(headers(x_forwarded_groups="team-a, team-b"))
    assert person is not None
    assert (person.username, person.groups) == ("alice", ("team-a", "team-b", "system:authenticated"))


def test_names_are_those_that_the_proxy_wrote_in_utf_8() -> None:
    sent = headers(x_forwarded_user="jürgen", x_forwarded_groups="forschung-süd,Ω")
    person = PROXY.person({name: text.encode().decode("latin-1") for name, text in sent.items()})
    assert person is not None
    assert (person.username, person.groups) == ("jürgen", ("forschung-süd", "Ω", "system:authenticated"))
    assert PROXY.person(headers(x_forwarded_user="j\xfcrgen")) is None


@pytest.mark.parametrize(
    "sent",
    [
        {"fluxqueue_proxy_secret": ""},
        {"fluxqueue_proxy_secret": "another secret"},
        {"fluxqueue_proxy_secret": "sécret"},
        {"x_forwarded_user": ""},
        {"x_forwarded_user": "system:admin"},
        {"x_forwarded_user": "x" * 300},
        {"x_forwarded_user": "a\x00b"},
    ],
)
def test_headers_of_others_name_nobody(sent: dict[str, str]) -> None:
    assert PROXY.person(headers(**sent)) is None


def test_nobody_gets_the_groups_of_the_cluster_by_a_header() -> None:
    person = PROXY.person(headers(x_forwarded_groups="system:masters,team-a,system:nodes"))
    assert person is not None
    assert person.groups == ("team-a", "system:authenticated")


def test_an_empty_secret_lets_nobody_in() -> None:
    assert ProxyHeaders("").person({"x-forwarded-user": "alice"}) is None


def test_the_number_of_groups_is_bounded() -> None:
    person = PROXY.person(headers(x_forwarded_groups=",".join(f"g{number}" for number in range(200))))
    assert person is not None
    assert len(person.groups) == 65
