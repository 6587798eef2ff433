"""The pages of a busy cluster in a browser, at the widths of a desk and of a telephone: nothing is cut off,
and what lights up does.

The application itself is served here, with work that is made up: 64 nodes and 312 jobs, or 1,000
and 10,000. The pictures of
docs/dashboard.md are taken here.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect
from support.accessibility import is_accessible
from support.animations import animated
from support.dashboard_load import RACK, ZONE, busy_cluster, busy_history
from support.dashboard_logs import Printer
from support.dashboard_played import PlayedDay
from support.dashboard_site import Stage
from support.queue_standin import QueueStandin, claims_token, run_queue_standin

from fluxqueue.dashboard.people import ProxyHeaders
from fluxqueue.dashboard.settings import QueueAddress
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until
from fluxqueue.serving.guarded_server import listen

Look = Callable[..., Page]
Picture = Callable[[Page, str], None]

PAGES = {
    "overview": "/",
    "queue": "/queue",
    "nodes": "/nodes",
    "nodes-account": "/nodes?by=account",
    "plan": "/plan",
    "plan-rack": "/plan?by=rack",
    "plan-work": "/plan?by=work",
    "submit": "/submit",
    "limits": "/limits",
    "history": "/history?days=30",
}
_SHOWN = ("overview", "queue", "nodes", "plan", "job", "history")
"""Pages whose pictures are in the documentation at each width, light and dark."""
_ONCE = ("nodes-account", "plan-rack", "limits")
FRAMES = 20
JOBS = {"busy": 312, "crowd": 10_000}
_RIGHTS = [
    *(("list", kind, "") for kind in ("fluxjobs", "nodes", "fluxqueues", "fluxaccounts", "fluxreservations")),
    ("get", "pods/log", ""),
    ("patch", "fluxjobs", ""),
]
_SECRET = "of the proxy"
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def _stage(standin: QueueStandin, now: dt.datetime | None = None, **size: int) -> Stage:
    """Return what an application is made from: three queues, and work of this number."""
    made = Stage(
        queue=QueueAddress(standin.url, standin.ca),
        levels=(ZONE, RACK),
        proxy=ProxyHeaders(_SECRET),
        impersonate=True,
        clock_of_day=lambda: dt.datetime.now(dt.UTC),
    )
    made.api.person("alice", *_RIGHTS)
    path = "/api/v1/namespaces/fluxqueue-system/serviceaccounts/fluxqueue-history/token"
    made.api.objects[path] = {"status": {"token": claims_token("fluxqueue-history")}}
    busy_cluster(made, now or dt.datetime.now(dt.UTC), **size)
    return made


@pytest.fixture(scope="module")
def answers(service_folder: Path) -> Iterator[QueueStandin]:
    """The queue's port, which has a month of work."""
    with run_queue_standin(service_folder / "busy-queue-standin") as running:
        running.answers = busy_history(dt.datetime.now(dt.UTC))
        yield running


@contextmanager
def _served(stage: Stage) -> Iterator[str]:
    """Serve an application; its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(stage.app, lifespan="off", log_level="error"))
    socket = listen("127.0.0.1", port)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    wait_until(lambda: server.started, "the application", 60)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = server.force_exit = True
    thread.join(60)
    socket.close()


@pytest.fixture(scope="module")
def stage(answers: QueueStandin) -> Stage:
    """A busy day of 64 nodes."""
    return _stage(answers)


@pytest.fixture(scope="module")
def busy(stage: Stage) -> Iterator[str]:
    """The address of the application."""
    with _served(stage) as address:
        yield address


@pytest.fixture(scope="module")
def crowd(answers: QueueStandin) -> Iterator[str]:
    """The address of one with 1,000 nodes and 10,000 jobs."""
    with _served(_stage(answers, nodes=1_000, waiting=6_000, ended=3_695)) as address:
        yield address


@pytest.fixture
def look(browser: Browser, busy: str) -> Iterator[Look]:
    """Open a page; at the end, no page may have reported an error."""
    contexts = []
    complaints: list[str] = []

    def opened(
        path: str, width: int = 1400, scheme: str = "light", address: str = "", **options: object
    ) -> Page:
        headers = {"fluxqueue-proxy-secret": _SECRET, "x-forwarded-user": "alice"}
        context = browser.new_context(
            base_url=address or busy,
            extra_http_headers=headers,
            viewport={"width": width, "height": 900 if width > 500 else 844},
            color_scheme=scheme,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        if page.locator("#live[data-live]").count():
            expect(page.locator("#connection")).to_have_text("live")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", [*PAGES, "job"])
def test_no_page_is_wider_than_its_screen_and_all_are_accessible(
    name: str, width: int, scheme: str, look: Look, stage: Stage, picture: Picture
) -> None:
    page = look(Printer(stage).page if name == "job" else PAGES[name], width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_accessible(page)
    if name in _SHOWN or (name in _ONCE and (width, scheme) == (1400, "light")):
        of = [*(["phone"] if width == 390 else []), *(["dark"] if scheme == "dark" else [])]
        picture(page, "-".join([name, *of]))


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", [*PAGES, "job"])
def test_no_page_is_too_wide_or_inaccessible_with_ten_thousand_jobs(
    name: str, width: int, look: Look, crowd: str
) -> None:
    page = look(PAGES.get(name, "/queue"), width, address=crowd)
    if name == "job":
        page.goto(page.locator("#rows th a").first.get_attribute("href") or "")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_accessible(page)


@pytest.mark.parametrize("load", ["busy", "crowd"])
def test_all_work_of_three_queues_is_there(load: str, look: Look, request: pytest.FixtureRequest) -> None:
    page = look("/queue", address=request.getfixturevalue(load))
    expect(page.locator("#summary")).to_contain_text(f"{JOBS[load]:,} jobs")
    assert page.locator("select[name=queue] option").all_inner_texts() == ["all", "batch", "gpu", "night"]


def test_an_end_that_has_passed_is_not_said_to_come(look: Look) -> None:
    page = look("/queue?state=Running")
    page.evaluate("""() => {
        const ago = (seconds) => new Date(Date.now() - 1000 * seconds).toISOString();
        const times = document.querySelectorAll("time[data-kind=end]");
        times[0].setAttribute("datetime", ago(9));
        times[1].setAttribute("datetime", ago(-5400));
        document.dispatchEvent(new Event("exchanged"));
    }""")
    ends = page.locator("time[data-kind=end]")
    expect(ends.nth(0)).to_have_text(re.compile("^was to end (9|1[0-9])s ago$"))
    expect(ends.nth(1)).to_have_text(re.compile("^ends in 1h(29m|30m)$"))


def test_the_map_is_coloured_by_account_and_one_lights_up(look: Look) -> None:
    page = look("/nodes")
    page.locator("#by").select_option("account")
    page.wait_for_url("**by=account**")
    chip = page.locator(".chips a").first
    nodes = int(re.findall(r"(\d+) node", chip.inner_text())[0])
    chip.focus()
    expect(page.locator(".cells a.lit")).to_have_count(nodes)
    hues = page.locator(".chips rect").evaluate_all("all => all.map(each => each.getAttribute('fill'))")
    assert len(set(hues)) == len(hues) > 3


def test_history_has_areas_by_account_and_waits_by_queue(look: Look) -> None:
    page = look("/history?days=30")
    expect(page.locator("#chart-cores canvas")).to_be_visible()
    page.locator("#chart-cores").hover(position={"x": 200, "y": 100})
    expect(page.locator("#chart-cores .tip")).to_contain_text("physics:")
    page.locator("#chart-waits").hover(position={"x": 120, "y": 100})
    expect(page.locator("#chart-waits .tip")).to_contain_text("batch:")
    assert page.locator("tbody th a").first.get_attribute("href")


def test_the_curve_is_drawn_and_has_its_values_as_text(look: Look) -> None:
    page = look("/")
    chart = page.get_by_role("img", name="Use of the nodes over the last day: Cores now")
    expect(chart.locator("canvas")).to_be_visible()
    chart.hover(position={"x": 300, "y": 100})
    expect(page.locator(".tip")).to_contain_text("Cores:")
    page.get_by_text("Values").click()
    expect(page.locator("#values-of-use tbody tr")).to_have_count(12)


def test_each_number_leads_to_a_list_of_as_many(look: Look) -> None:
    page = look("/")
    tile = page.locator("a.tile", has_text="Waiting")
    count = tile.locator(".big").inner_text()
    tile.click()
    expect(page.locator("#summary")).to_contain_text(f"{count} jobs")
    page.goto("/")
    free = page.locator("a.tile", has_text="Free nodes")
    count = free.locator(".big").inner_text().partition("of")[0]
    free.click()
    expect(page.locator(".cells a")).to_have_count(int(count))


def test_a_job_that_is_pointed_at_lights_up_on_all_its_nodes(look: Look) -> None:
    page = look("/nodes")
    chip = page.locator(".chips a", has_text="4 nodes").first
    chip.hover()
    expect(page.locator(".cells a.lit")).to_have_count(4)
    page.locator("h1").hover()
    expect(page.locator(".lit")).to_have_count(0)
    chip.focus()
    expect(page.locator(".cells a.lit")).to_have_count(4)


def test_a_log_is_followed_as_text_until_the_page_closes(look: Look, stage: Stage) -> None:
    printer = Printer(stage)
    page = look(printer.page)
    page.get_by_role("link", name=f"Log of {printer.pod}").click()
    text, state = page.locator("#log-text"), page.locator("#log-state")
    expect(text).to_contain_text("step 12 of 4000")
    expect(state).to_have_text("follows")
    printer.prints("<b onclick=1>\x1b[31mstep 13\x1b[0m</b>")
    expect(text).to_contain_text("<b onclick=1>step 13</b>")
    assert text.locator("b").count() == 0
    is_accessible(page)
    page.get_by_role("button", name="Pause").press("Enter")
    expect(state).to_have_text("paused")
    wait_until(lambda: printer.readers == 0, "the log is closed", 30)
    page.get_by_role("button", name="Follow").press("Enter")
    expect(state).to_have_text("follows")
    page.get_by_label("read new lines aloud").check()
    expect(text).to_have_attribute("aria-live", "polite")
    page.locator("#log-container").select_option("sidecar")
    expect(page.locator("#log-text")).to_contain_text("of the sidecar")
    page.goto("/queue")
    wait_until(lambda: printer.readers == 0, "the log is closed", 30)


def test_a_pod_that_goes_says_so_in_its_log(look: Look, stage: Stage) -> None:
    printer = Printer(stage)
    page = look(f"{printer.page}?pod={printer.pod}")
    expect(page.locator("#log-state")).to_have_text("follows")
    printer.goes()
    expect(page.locator("#log-state")).to_contain_text("it was deleted, and its log with it")
    expect(page.get_by_role("button", name="Follow")).to_be_visible()
    page.reload()
    expect(page.locator("#log")).to_contain_text("it was deleted, and its log with it")


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_of_a_job_with_a_log_fits_its_screen(width: int, look: Look, stage: Stage) -> None:
    printer = Printer(stage)
    page = look(f"{printer.page}?pod={printer.pod}", width)
    expect(page.locator("[aria-labelledby=used]")).to_contain_text("in use now")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_accessible(page)


def test_what_is_dragged_over_the_plan_is_shown_and_in_the_address(look: Look) -> None:
    page = look("/plan?by=work")
    whole = _minutes(page)
    drawing = page.locator(".lane > svg").nth(4)
    box = drawing.bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, y + 40, steps=4)
    expect(page.locator(".zoomed")).to_be_visible()
    page.mouse.move(box["x"] + box["width"] * 0.5, y + 40, steps=4)
    with page.expect_navigation():
        page.mouse.up()
    assert re.search(r"/plan\?by=work&from=[^&]+&to=[^&#]+#zooms$", page.url)
    expect(page.locator("#zoom-reset")).to_be_visible()
    assert abs(_minutes(page) - whole / 4) <= whole / 50
    is_accessible(page)
    kept = page.url
    page.reload()
    assert page.url == kept


def test_the_keyboard_looks_closer_and_back(look: Look) -> None:
    page = look("/plan")
    whole = _minutes(page)
    page.locator("#zoom-in").focus()
    for part in (2, 4):
        with page.expect_navigation():
            page.keyboard.press("+")
        expect(page.locator("#zoom-in")).to_be_focused()
        assert abs(_minutes(page) - whole / part) < 1
    with page.expect_navigation():
        page.keyboard.press("ArrowRight")
    assert abs(_minutes(page) - whole / 4) < 1
    with page.expect_navigation():
        page.keyboard.press("0")
    assert abs(_minutes(page) - whole) < 2
    assert "from=" not in page.url


def _minutes(page: Page) -> float:
    """How many minutes the plan shows."""
    return float(
        page.locator("#zooms").evaluate(
            "each => (Date.parse(each.dataset.end) - Date.parse(each.dataset.begin)) / 60000"
        )
    )


def test_what_a_waiting_job_waits_for_lights_up(look: Look) -> None:
    page = look("/plan?by=work")
    bar = page.locator("a[data-waits]").first
    waits = (bar.get_attribute("data-waits") or "").split()
    bar.focus()
    expect(page.locator("a.lit")).to_have_count(1 + len(waits))
    expect(bar).to_have_accessible_name(re.compile(", (when|after) job/.* ends?$"))
    page.locator("#zoom-in").focus()
    expect(page.locator(".lit")).to_have_count(0)


def test_a_row_opens_beside_the_list(look: Look) -> None:
    page = look("/queue?state=Pending")
    link = page.locator("#rows th a").nth(2)
    name = link.inner_text()
    link.click()
    beside = page.get_by_role("region", name=name)
    expect(beside).to_contain_text("Why it waits")
    assert "/queue" in page.url
    expect(beside.locator("h2").first).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    is_accessible(page)
    page.keyboard.press("Escape")
    expect(beside).to_be_hidden()
    expect(link).to_be_focused()
    phone = look("/queue?state=Pending", 390)
    phone.locator("#rows th a").first.click()
    phone.wait_for_url("**/jobs/**")


def test_a_row_on_a_telephone_begins_with_its_name_and_state(look: Look) -> None:
    row = look("/queue?state=Running", 390).locator("#rows tr").first
    places = [
        row.locator(part).bounding_box() for part in ("th", ".c-state", ".c-why", ".c-start", ".c-namespace")
    ]
    name, state, why, start, namespace = [place for place in places if place]
    assert name["x"] == why["x"] == namespace["x"] < state["x"]
    assert max(name["y"], state["y"]) < min(why["y"], start["y"]) < namespace["y"]


def test_running_rows_have_a_bar_of_their_time(look: Look) -> None:
    page = look("/queue?state=Running")
    parts = page.locator("progress").evaluate_all("bars => bars.map(bar => bar.value)")
    assert len(parts) > 5
    assert all(0 < part <= 1 for part in parts)
    assert len(set(parts)) > 5


def test_rows_that_are_known_stay_when_the_page_follows(look: Look) -> None:
    page = look("/queue")
    expect(page.locator("#connection")).to_have_text("live")
    assert page.locator("tr.changed").count() == 0


def test_nothing_moves_for_who_wants_no_motion(look: Look) -> None:
    page = look("/queue", reduced_motion="reduce")
    page.locator("#rows tr").first.evaluate("row => row.classList.add('changed')")
    assert page.locator("#rows tr").first.evaluate("row => getComputedStyle(row).animationName") == "none"


def test_without_scripts_pages_say_the_same(look: Look, browser: Browser, busy: str) -> None:
    headers = {"fluxqueue-proxy-secret": _SECRET, "x-forwarded-user": "alice"}
    context = browser.new_context(base_url=busy, extra_http_headers=headers, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_text("Values").click()
    expect(page.locator("#values-of-use tbody tr")).to_have_count(12)
    context.close()


def test_what_is_lit_stays_so_after_a_change_and_is_looked_for_once(look: Look) -> None:
    page = look("/nodes")
    page.add_init_script(
        "window.EventSource = class { constructor() { window.stream = this; "
        "} addEventListener() {} close() {} };"
    )
    page.reload()
    found = page.evaluate("""() => {
        const live = document.getElementById("live");
        const html = live.innerHTML;
        const real = live.querySelectorAll.bind(live);
        let looked = 0;
        live.querySelectorAll = (what) => { looked += what === "[data-job]"; return real(what); };
        const point = () => real(".chips a")[0].dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
        point();
        point();
        const before = real(".cells a.lit").length;
        const once = looked;
        window.stream.onmessage({ data: JSON.stringify({ html }) });
        return { before, once, after: real(".cells a.lit").length, dims: live.classList.contains("dims") };
    }""")
    assert found["before"] > 0
    assert found == {"before": found["before"], "once": 1, "after": found["before"], "dims": True}


def test_the_plan_moves_while_work_ends_and_starts(
    browser: Browser, answers: QueueStandin, picture: Picture
) -> None:
    began = dt.datetime.now(dt.UTC).replace(minute=5, second=0, microsecond=0)
    day = PlayedDay(_stage(answers, began), began)
    with _served(day.stage) as address:
        context = browser.new_context(
            base_url=address,
            extra_http_headers={"fluxqueue-proxy-secret": _SECRET, "x-forwarded-user": "alice"},
            viewport={"width": 1200, "height": 600},
        )
        page = context.new_page()
        page.clock.install()
        for frame in range(FRAMES):
            page.clock.set_system_time(day.now)
            page.goto("/plan?by=rack&hours=6")
            running = page.locator("[aria-label*=racks] a[data-job]").evaluate_all(
                "all => new Set(all.map(each => each.dataset.job)).size"
            )
            assert running == day.running
            page.locator("section.card").first.evaluate("card => scrollTo(0, card.offsetTop - 12)")
            picture(page, f"plan-moves-{frame:02}")
            day.passes(dt.timedelta(minutes=12))
        context.close()
    assert day.started > 3
    if pictures := sorted(PICTURES.glob("dashboard-plan-moves-*.webp")):
        (PICTURES / "dashboard-plan-moves.webp").write_bytes(
            animated([each.read_bytes() for each in pictures])
        )
        for each in pictures:
            each.unlink()
