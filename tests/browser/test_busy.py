"""The pages of a busy cluster in a browser, at the widths of a desk and of a telephone: nothing is cut off,
and what lights up does.

The application itself is served here, with work that is made up: 64 nodes and 300 jobs. The pictures of
docs/dashboard.md are taken here.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect
from support.accessibility import is_accessible
from support.dashboard_load import RACK, ZONE, busy_cluster
from support.dashboard_logs import Printer
from support.dashboard_site import Stage

from fluxqueue.certs.guarded_server import listen
from fluxqueue.dashboard.people import ProxyHeaders
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until

Look = Callable[..., Page]
Picture = Callable[[Page, str], None]

PAGES = {
    "overview": "/",
    "queue": "/queue",
    "nodes": "/nodes",
    "plan": "/plan",
    "plan-work": "/plan?by=work",
    "limits": "/limits",
}
_PICTURES = {
    *((name, 1400, "light") for name in ("overview", "queue", "nodes", "plan", "limits")),
    *((name, 1400, "dark") for name in ("overview", "plan")),
    *((name, 390, "light") for name in ("overview", "queue")),
    *((name, 390, "dark") for name in ("nodes", "plan")),
}
_RIGHTS = [
    *(("list", kind, "") for kind in ("fluxjobs", "nodes", "fluxqueues", "fluxaccounts", "fluxreservations")),
    ("get", "pods/log", ""),
    ("patch", "fluxjobs", ""),
]
_SECRET = "of the proxy"


@pytest.fixture(scope="module")
def stage() -> Stage:
    """What the application is made from."""
    made = Stage(
        levels=(ZONE, RACK),
        proxy=ProxyHeaders(_SECRET),
        impersonate=True,
        clock_of_day=lambda: dt.datetime.now(dt.UTC),
    )
    made.api.person("alice", *_RIGHTS)
    busy_cluster(made, dt.datetime.now(dt.UTC))
    return made


@pytest.fixture(scope="module")
def busy(stage: Stage) -> Iterator[str]:
    """The address of the application."""
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


@pytest.fixture
def look(browser: Browser, busy: str) -> Iterator[Look]:
    """Open a page; at the end, no page may have reported an error."""
    contexts = []
    complaints: list[str] = []

    def opened(path: str, width: int = 1400, scheme: str = "light", **options: object) -> Page:
        headers = {"fluxqueue-proxy-secret": _SECRET, "x-forwarded-user": "alice"}
        context = browser.new_context(
            base_url=busy,
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
        expect(page.locator("#connection")).to_have_text("live")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", [*PAGES])
def test_no_page_is_wider_than_its_screen_and_all_are_accessible(
    name: str, width: int, scheme: str, look: Look, picture: Picture
) -> None:
    page = look(PAGES[name], width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_accessible(page)
    if (name, width, scheme) in _PICTURES:
        picture(
            page,
            "-".join([name, *(["phone"] if width == 390 else []), *(["dark"] if scheme == "dark" else [])]),
        )


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
