import pytest
from starlette.requests import Request
from support.dashboard_site import Stage

from fluxqueue.dashboard.people import NotKnown, ProxyHeaders
from fluxqueue.dashboard.viewers import COOKIE, NoApi, not_in_his_name
from fluxqueue.kube.errors import Forbidden

SECRET = "a secret of the proxy"
NAMED = {"fluxqueue-proxy-secret": SECRET, "x-forwarded-user": "carol", "x-forwarded-groups": "team-a"}


def request(cookie: str = "", **headers: str) -> Request:
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    if cookie:
        sent["cookie"] = f"{COOKIE}={cookie}"
    return Request(
        {"type": "http", "headers": [(name.encode(), text.encode()) for name, text in sent.items()]}
    )


async def test_who_has_signed_in_is_known_by_the_cookie() -> None:
    stage = Stage()
    viewer = await stage.viewer("alice")
    found = await stage.door.viewer(request(viewer.cookie))
    assert found is not None
    assert (found.person.username, found.cookie, found.proxied) == ("alice", "", False)
    assert await stage.door.viewer(request()) is None
    assert await stage.door.viewer(request("made.up")) is None


async def test_a_wrong_token_begins_no_session() -> None:
    stage = Stage()
    with pytest.raises(NotKnown):
        await stage.door.sign_in("wrong")
    assert len(stage.sessions) == 0


async def test_a_revoked_token_ends_the_session() -> None:
    stage = Stage()
    viewer = await stage.viewer("alice")
    stage.api.tokens.clear()
    stage.clock.now += 61
    assert await stage.door.viewer(request(viewer.cookie)) is None
    assert len(stage.sessions) == 0


async def test_a_token_that_became_somebody_else_s_is_not_followed() -> None:
    stage = Stage()
    viewer = await stage.viewer("alice")
    stage.api.tokens["token-of-alice"] = "mallory"
    stage.clock.now += 61
    assert await stage.door.viewer(request(viewer.cookie)) is None


async def test_who_lost_a_group_does_not_keep_the_rights_of_it() -> None:
    stage = Stage()
    stage.api.groups["alice"] = ["admins", "system:authenticated"]
    viewer = await stage.viewer("alice")
    stage.api.groups["alice"] = ["system:authenticated", "admins"]
    stage.clock.now += 61
    assert await stage.door.viewer(request(viewer.cookie)) is not None
    stage.api.groups["alice"] = ["system:authenticated"]
    stage.clock.now += 61
    assert await stage.door.viewer(request(viewer.cookie)) is None
    assert len(stage.sessions) == 0


async def test_without_the_api_server_nobody_is_thrown_out() -> None:
    stage = Stage()
    viewer = await stage.viewer("alice")
    stage.api.failing = True
    stage.clock.now += 61
    assert await stage.door.viewer(request(viewer.cookie)) is not None
    assert not (await stage.site.visible(viewer)).shows("blue")


def test_a_refusal_to_impersonate_is_not_taken_for_one_of_the_person() -> None:
    text = (
        'groups "team-b" is forbidden: User "system:serviceaccount:x:y" cannot impersonate resource '
        '"groups" in API group ""'
    )
    assert "dashboard.proxy.impersonate" in not_in_his_name(Forbidden(403, "Forbidden", text))
    assert not_in_his_name(Forbidden(403, "Forbidden", 'User "alice" cannot list resource "pods"')) == ""


async def test_headers_name_nobody_where_no_proxy_is_configured() -> None:
    assert await Stage().door.viewer(request(**NAMED)) is None


async def test_the_proxy_s_person_gets_a_session_of_his_own() -> None:
    stage = Stage(proxy=ProxyHeaders(SECRET))
    first = await stage.door.viewer(request(**NAMED))
    assert first is not None
    assert (first.person.username, first.proxied) == ("carol", True)
    again = await stage.door.viewer(request(first.cookie, **NAMED))
    assert again is not None
    assert (again.session, again.cookie) == (first.session, "")
    other = await stage.door.viewer(request(first.cookie, **{**NAMED, "x-forwarded-user": "dave"}))
    assert other is not None
    assert (other.person.username, other.session is first.session) == ("dave", False)


async def test_the_cookie_of_a_proxied_session_opens_nothing_without_the_proxy() -> None:
    stage = Stage(proxy=ProxyHeaders(SECRET))
    first = await stage.door.viewer(request(**NAMED))
    assert first is not None
    assert await stage.door.viewer(request(first.cookie)) is None
    assert (
        await stage.door.viewer(request(first.cookie, **{**NAMED, "fluxqueue-proxy-secret": "wrong"})) is None
    )


async def test_in_whose_name_requests_are_sent() -> None:
    stage = Stage(proxy=ProxyHeaders(SECRET))
    named = await stage.door.viewer(request(**NAMED))
    assert named is not None
    with pytest.raises(NoApi, match="use kubectl fluxqueue"):
        stage.door.api(named)
    stage = Stage(proxy=ProxyHeaders(SECRET), impersonate=True)
    named = await stage.door.viewer(request(**NAMED))
    assert named is not None
    stage.api.objects["/version"] = {}
    await stage.door.api(named).request("GET", "/version")
    await stage.door.api(await stage.viewer("alice")).request("GET", "/version")
    assert [who for who, _, path, _ in stage.api.asked if path == "/version"] == ["as:carol", "alice"]
