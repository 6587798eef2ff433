"""The application called in process: who must have signed in for what, and which forms are taken."""

import asyncio
from dataclasses import replace

import pytest
from support.controller_bench import until
from support.dashboard_site import LISTS_ALL, InProcess, Stage, job

from fluxqueue.dashboard.app import PAGES, make_app
from fluxqueue.dashboard.loop_shares import LoopShares
from fluxqueue.dashboard.people import ProxyHeaders
from fluxqueue.dashboard.rendering import asset
from fluxqueue.kube.errors import Forbidden
from fluxqueue.kube.kinds import FLUXJOBS

SECRET = "a secret of the proxy"
NAMED = {"fluxqueue-proxy-secret": SECRET, "x-forwarded-user": "carol"}
WRF = f"/jobs/blue/{job('wrf').metadata.name}"
BLUE = ("list", "fluxjobs", "blue")


def stage(**options: object) -> Stage:
    made = Stage(**options)  # type: ignore[arg-type]
    made.show(job("wrf", reason="WaitingForNodes"), job("secret", "red"))
    return made


@pytest.mark.parametrize("path", [*(page.path for page in PAGES.values()), WRF])
async def test_every_page_wants_somebody_who_has_signed_in(path: str) -> None:
    answer = await InProcess(stage()).get(f"{path}?a=b")
    assert answer.status == 303
    assert answer.headers["location"].startswith("/sign-in?next=")
    assert "wrf" not in answer.text


@pytest.mark.parametrize("path", ["/live/queue", "/live/job?namespace=blue&name=x", "/live/nodes"])
async def test_no_stream_is_opened_for_strangers(path: str) -> None:
    assert (await InProcess(stage()).get(path)).status == 401


@pytest.mark.parametrize("path", ["/", "/sign-in", "/healthz", "/live/queue", "/static/x/y", "/none", WRF])
async def test_every_answer_has_the_headers_that_protect_it(path: str) -> None:
    answer = await InProcess(stage()).get(path)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"


async def test_signing_in_leads_to_the_page_that_was_wanted_and_nowhere_else() -> None:
    client = InProcess(stage())
    token = client.stage.api.person("alice")
    for wanted, expected in (
        ("/plan?hours=6", "/plan?hours=6"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\nb", "/"),
        ("/" + "x" * 3_000, "/"),
    ):
        answer = await client.post("/sign-in", {"token": token, "next": wanted})
        assert (answer.status, answer.headers["location"]) == (303, expected)
    assert (await client.get("/sign-in?next=/plan")).headers["location"] == "/plan"


async def test_a_wrong_token_is_refused_and_not_repeated_on_the_page() -> None:
    client = InProcess(stage())
    answer = await client.post("/sign-in", {"token": "wrong-token", "next": "/"})
    assert answer.status == 401
    assert "does not accept this token" in answer.text
    assert "wrong-token" not in answer.text
    assert client.cookies == {}
    elsewhere = await client.post(
        "/sign-in", {"token": client.stage.api.person("alice")}, sec_fetch_site="cross-site"
    )
    assert elsewhere.status == 403


async def test_a_page_has_no_token_and_says_who_looks() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    answer = await client.get("/queue")
    assert answer.status == 200
    assert "alice</span>" in answer.text
    assert "token-of-alice" not in answer.text
    assert 'data-live="/live/queue?version=2"' in answer.text
    assert "job/wrf" in answer.text
    assert "job/secret" not in answer.text


@pytest.mark.parametrize(
    "path", [f"/jobs/red/{job('secret', 'red').metadata.name}", "/jobs/blue/none", "/jobs/none/none"]
)
async def test_what_is_not_seen_is_like_what_is_not_there(path: str) -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    assert (await client.get(path)).status == 404
    form = {"csrf": (await client.get("/queue")).csrf, "uid": "red-secret"}
    assert (await client.post(f"{path}/hold", form)).status == 404
    assert not client.stage.api.writes()


async def test_the_menu_has_the_pages_for_which_somebody_has_the_right() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    text = (await client.get("/queue")).text
    assert ">History</a>" in text
    assert not any(f">{name}</a>" in text for name in ("Nodes", "Doctor"))
    await client.sign_in(
        "bob", BLUE, ("list", "nodes", ""), ("create", "serviceaccounts/token", "fluxqueue-system")
    )
    text = (await client.get("/queue")).text
    assert all(f">{name}</a>" in text for name in ("Nodes", "Doctor"))
    client.stage.api.failing = True
    client.stage.clock.now += 61
    text = (await client.get("/queue")).text
    assert all(f">{name}</a>" in text for name in ("Nodes", "Doctor")), "it is not known that he may not"


async def test_an_address_without_a_page_says_so_in_the_design() -> None:
    client = InProcess(stage())
    answer = await client.get("/nosuch")
    assert (answer.status, "There is no such page." in answer.text, "<nav" in answer.text) == (
        404,
        True,
        False,
    )
    await client.sign_in("alice", BLUE)
    for answer in (await client.get("/nosuch/%3Cb%3E"), await client.post("/nosuch", {})):
        assert (answer.status, "There is no such page." in answer.text, "<nav" in answer.text) == (
            404,
            True,
            True,
        )
        assert answer.headers["content-type"].startswith("text/html")


async def test_a_verb_is_sent_by_the_person_and_said_once() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE, ("patch", "fluxjobs", "blue"))
    page = await client.get(WRF)
    answer = await client.post(f"{WRF}/hold", {"csrf": page.csrf, "uid": "blue-wrf"})
    assert (answer.status, answer.headers["location"]) == (303, WRF)
    assert [(who, body["spec"]) for who, _, body in client.stage.api.writes()] == [("alice", {"hold": True})]
    assert "Job/wrf is held." in (await client.get(WRF)).text
    assert "Job/wrf is held." not in (await client.get(WRF)).text


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        ({"csrf": "0" * 64, "uid": "blue-wrf"}, {}, 403),
        ({"uid": "blue-wrf"}, {}, 403),
        ({"csrf": "", "uid": "blue-wrf"}, {"sec_fetch_site": "cross-site"}, 403),
        ({"csrf": "", "uid": "another"}, {}, 409),
        ({"csrf": ""}, {}, 409),
        ({"csrf": "", "uid": "blue-wrf"}, {"content_type": "text/plain"}, 400),
        ({"csrf": "", "uid": "blue-wrf"}, {"content_length": "9999999"}, 400),
        ({"csrf": "", "uid": "blue-wrf", **{str(number): "x" for number in range(40)}}, {}, 400),
    ],
)
async def test_forms_that_are_not_ours_change_nothing(
    form: dict[str, str], headers: dict[str, str], status: int
) -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    right = (await client.get("/queue")).csrf
    sent = {name: text or (right if name == "csrf" else text) for name, text in form.items()}
    assert (await client.post(f"{WRF}/hold", sent, **headers)).status == status
    assert not client.stage.api.writes()


async def test_a_form_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluxqueue.dashboard.app._FORM_S", 0.01)
    client = InProcess(stage())
    client.endless = True
    async with asyncio.timeout(60):
        answer = await client.post("/sign-in", {"token": "x"})
    assert (answer.status, answer.headers["connection"]) == (400, "close")


async def test_what_the_api_server_refuses_is_said_on_the_page_of_the_job() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    csrf = (await client.get("/queue")).csrf
    path = FLUXJOBS.path("blue", job("wrf").metadata.name)
    client.stage.api.refused.add(("alice", path))
    answer = await client.post(f"{WRF}/cancel", {"csrf": csrf, "uid": "blue-wrf"})
    assert answer.status == 409
    assert "you may not cancel work in the namespace blue" in answer.text
    assert Forbidden.__name__ not in answer.text
    wrong = await client.post(f"{WRF}/prioritize", {"csrf": csrf, "uid": "blue-wrf", "priority": "<b>"})
    assert wrong.status == 409
    assert "is not a priority" in wrong.text
    assert "<b>" not in wrong.text


@pytest.mark.parametrize("path", [*(page.path for page in PAGES.values()), WRF])
async def test_while_the_api_server_does_not_answer_every_page_says_so(path: str) -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE, ("list", "nodes", ""))
    csrf = (await client.get("/queue")).csrf
    client.stage.api.failing = True
    client.stage.clock.now += 61
    answer = await client.get(path)
    assert answer.status == 503
    assert "The API server does not answer, so it is not known what you may see" in answer.text
    assert "You may not" not in answer.text
    answer = await client.post(f"{WRF}/hold", {"csrf": csrf, "uid": "blue-wrf"})
    assert (answer.status, "does not answer" in answer.text) == (503, True)


async def test_the_page_and_the_stream_of_a_namespace_are_there_however_many_others_have_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fluxqueue.dashboard.access.MOST_NAMESPACES", 1)
    client = InProcess(stage())
    await client.sign_in("alice", ("list", "fluxjobs", "red"), ("patch", "fluxjobs", "red"))
    text = (await client.get("/queue")).text
    assert "write the name of yours into the field Namespace" in text
    assert "job/secret" not in text
    page = await client.get("/queue?namespace=red")
    assert "job/secret" in page.text
    path = f"/jobs/red/{job('secret', 'red').metadata.name}"
    assert (await client.get(path)).status == 200
    assert (await client.post(f"{path}/hold", {"csrf": page.csrf, "uid": "red-secret"})).status == 303
    assert "job/secret" in (await client.get("/live/queue?namespace=red")).text
    assert (await client.get("/jobs/blue/x?namespace=red")).status == 404


async def test_a_namespace_whose_work_has_ended_is_still_the_one_that_is_chosen() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    assert "<option selected>green</option>" in (await client.get("/queue?namespace=green")).text


async def test_signing_out_needs_the_form_and_ends_the_session() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    csrf, cookies = (await client.get("/queue")).csrf, dict(client.cookies)
    assert (await client.post("/sign-out", {"csrf": "wrong"})).status == 403
    assert (await client.get("/queue")).status == 200
    assert (await client.post("/sign-out", {"csrf": csrf})).status == 303
    client.cookies = cookies
    assert (await client.get("/queue")).status == 303
    assert (await client.post("/sign-out", {"csrf": csrf})).status == 303


async def test_the_proxy_s_person_looks_and_is_told_why_he_may_not_change() -> None:
    client = InProcess(stage(proxy=ProxyHeaders(SECRET)), headers=NAMED)
    client.stage.api.person("carol", LISTS_ALL, ("patch", "fluxjobs", ""))
    page = await client.get(WRF)
    assert page.status == 200
    assert "Sign out" not in page.text
    answer = await client.post(f"{WRF}/hold", {"csrf": page.csrf, "uid": "blue-wrf"})
    assert answer.status == 409
    assert "use kubectl fluxqueue" in answer.text
    assert not client.stage.api.writes()


async def test_with_impersonation_the_proxy_s_person_changes_as_himself() -> None:
    client = InProcess(stage(proxy=ProxyHeaders(SECRET), impersonate=True), headers=NAMED)
    client.stage.api.person("carol", LISTS_ALL)
    page = await client.get(WRF)
    assert (await client.post(f"{WRF}/hold", {"csrf": page.csrf, "uid": "blue-wrf"})).status == 303
    assert [who for who, _, _ in client.stage.api.writes()] == ["as:carol"]


async def test_while_it_starts_it_says_so() -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    client.stage.problem = "it has not read the queue yet"
    for path, expected in (("/", 503), ("/readyz", 503), ("/healthz", 200)):
        assert (await client.get(path)).status == expected
    assert "it has not read the queue yet" in (await client.get("/queue")).text


async def test_while_it_starts_no_stream_takes_what_a_page_shows_away() -> None:
    client = InProcess(stage(proxy=ProxyHeaders(SECRET)), headers=NAMED)
    client.stage.api.person("carol", LISTS_ALL)
    client.stage.problem = "it has not read the queue yet"
    answer = await client.get("/live/job?namespace=blue&name=x")
    assert (answer.status, "it has not read the queue yet" in answer.text) == (503, True)


async def test_a_fault_is_a_sentence_and_an_error_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    client = InProcess(stage())
    await client.sign_in("alice", BLUE)
    monkeypatch.setattr(client.stage.state.table, "page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await client.get("/queue")
    assert client.last is not None
    answer = client.last
    assert (answer.status, "its log says which" in answer.text) == (500, True)
    assert "Traceback" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_what_may_be_old_is_said_to_be() -> None:
    made = stage()
    client = InProcess(made)
    await client.sign_in("alice", BLUE)
    assert "may be old" not in (await client.get("/queue")).text
    made.app = make_app(replace(made.site, stale=lambda: True), lambda: None)
    answer = await client.get("/queue")
    assert (answer.status, "what is shown may be old" in answer.text) == (200, True)


async def test_static_files_are_kept_by_browsers_and_nothing_else_is_served() -> None:
    client = InProcess(stage())
    assert "immutable" in (await client.get(asset("style.css"))).headers["cache-control"]
    for path in ("/static/000000000000/live.js", "/static/x/main.py", "/static/x/..%2fmain.py", "/live/none"):
        assert (await client.get(path)).status in (401, 404)


@pytest.mark.parametrize("path", ["/plan", "/queue", "/nodes", "/history", "/live/plan", WRF])
async def test_parameters_that_are_too_long_are_refused_with_the_one_to_shorten(path: str) -> None:
    client = InProcess(stage())
    await client.sign_in("alice", LISTS_ALL)
    answer = await client.get(f"{path}?by=work&q={'x' * 3_000}")
    assert answer.status == 414
    assert "The parameters of this address have 3010 characters" in answer.text
    assert "no more than 2000 are read: shorten &#39;q&#39;." in answer.text
    assert '<a href="/">To the overview</a>' in answer.text
    if not path.startswith("/live"):
        assert (await client.get(f"{path}?q={'x' * 1_900}")).status in (200, 404)


async def test_who_loads_pages_far_beyond_his_share_waits_and_nobody_else() -> None:
    made, used = stage(), 0.0
    waits: list[float] = []

    def cpu() -> float:
        nonlocal used
        used += 0.001
        return used

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        made.clock.now += seconds

    made.app = make_app(replace(made.site, loads=LoopShares(made.clock, cpu, sleep)), lambda: None)
    alice, bob = InProcess(made), InProcess(made)
    await alice.sign_in("alice", BLUE)
    await bob.sign_in("bob", BLUE)
    began = made.clock.now
    for number in range(700):
        assert (await alice.get(f"/plan?q=n{number}")).status == 200
    assert made.clock.now - began > 700 * 0.001 / 0.1 - 6
    assert waits
    waits.clear()
    assert (await bob.get("/plan")).status == 200
    assert not waits


async def test_no_more_than_some_pages_of_one_person_are_made_at_once() -> None:
    made = stage()
    free = asyncio.Event()

    due_at = made.clock.now + 100

    async def wait(_seconds: float) -> None:
        await free.wait()
        made.clock.now = due_at

    shares = LoopShares(made.clock, lambda: 0.0, wait)
    made.app = make_app(replace(made.site, loads=shares), lambda: None)
    client = InProcess(made)
    await client.sign_in("alice", BLUE)
    shares._free_at["alice"] = due_at
    loads = [asyncio.create_task(client.get("/queue")) for _ in range(20)]
    await until(lambda: shares._loaded["alice"] == len(loads))
    assert not any(load.done() for load in loads)
    answer = await client.get("/queue")
    assert (answer.status, answer.text) == (
        429,
        "too many pages are loaded at once: load this one again in some seconds\n",
    )
    free.set()
    assert {(await load).status for load in loads} == {200}
    assert (await client.get("/queue")).status == 200
