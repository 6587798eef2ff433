"""Each page in a browser: what it shows, that it is accessible,
and that nothing on it runs what others wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from support.accessibility import is_accessible
from support.dashboard_stage import RunningDashboard

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name

Open = Callable[..., Page]
Picture = Callable[[Page, str], None]

WRF = f"/jobs/blue/{fluxjob_name('Job', 'wrf', 'uid-of-wrf')}"
HOSTILE = f"/jobs/red/{fluxjob_name('Job', 'hostile', 'uid-of-hostile')}"
PAGES = {
    "overview": ("/", "Starts next"),
    "queue": ("/queue", "job/lammps"),
    "job": (WRF, "needs 4 nodes with 2 cpu each"),
    "nodes": ("/nodes?node=node-3", "job/gromacs"),
    "plan": ("/plan", "job/wrf"),
    "submit": ("/submit", "What it asks for"),
    "limits": ("/limits", "physics"),
    "history": ("/history?namespace=blue&days=7", "lammps-3"),
    "doctor": ("/doctor", "Fluxion holds 4 cpu of node-2"),
}
_BY_WEBHOOK = {
    "metadata:": f'metadata:\n  labels: {{{names.SEEN_LABEL}: "{names.SEEN_VALUE}"}}',
    "annotations:": f"annotations:\n    {names.SUSPENDED_BY_ANNOTATION}: {names.SUSPENDED_BY_WEBHOOK}",
    "\nspec:": "\nspec:\n  suspend: true",
}
"""What admission would write, which is not here."""
_PICTURES = ("doctor",)
"""Those of the other pages are taken of a busy cluster (`test_busy`)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*PAGES])
def test_each_page_shows_its_work_and_is_accessible(
    name: str, scheme: str, sign_in: Open, picture: Picture
) -> None:
    path, expected = PAGES[name]
    page = sign_in("operator", path, color_scheme=scheme)
    expect(page.locator("main")).to_contain_text(expected)
    is_accessible(page)
    if scheme == "light" and name in _PICTURES:
        picture(page, name)


def test_the_sign_in_page_is_accessible_and_explains_itself(
    browser: object, dashboard: RunningDashboard
) -> None:
    page = browser.new_page(ignore_https_errors=True)  # type: ignore[attr-defined]
    page.goto(f"{dashboard.url}/plan")
    expect(page.get_by_label("Token of the API server")).to_be_focused()
    is_accessible(page)
    page.get_by_label("Token of the API server").fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("The API server does not accept this token")
    page.close()


def test_the_menu_leads_only_where_somebody_may_look(sign_in: Open) -> None:
    for who, pages in (("operator", ["Nodes", "Doctor"]), ("viewer", [])):
        menu = sign_in(who).get_by_role("navigation", name="Pages")
        expect(menu.get_by_role("link", name="History")).to_have_count(1)
        assert [name for name in ("Nodes", "Doctor") if menu.get_by_role("link", name=name).count()] == pages


def test_an_address_without_a_page_is_accessible_and_leads_back(sign_in: Open) -> None:
    page = sign_in("viewer")
    page.goto("/nosuch")
    expect(page.locator("main")).to_contain_text("There is no such page.")
    is_accessible(page)
    page.get_by_role("link", name="To the overview").click()
    expect(page.locator("h1")).to_have_text("Overview")


def test_one_leads_to_the_page_that_was_wanted(sign_in: Open) -> None:
    assert sign_in("viewer", "/plan?hours=24").url.endswith("/plan?hours=24")


def test_hostile_texts_run_nothing(sign_in: Open) -> None:
    page = sign_in("operator", HOSTILE)
    expect(page.locator("main")).to_contain_text('document.title="owned"')
    assert page.title() != "owned"
    page.goto("/queue?q=%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E")
    page.goto("/queue")
    assert page.title() == "Queue - fluxqueue"
    assert page.locator("main img, main script").count() == 0


def test_a_job_is_written_tried_and_shows_when_it_would_start(sign_in: Open, picture: Picture) -> None:
    page = sign_in("operator", "/submit?namespace=blue")
    page.get_by_label("Image").fill("example/solver")
    page.get_by_label("Nodes", exact=True).fill("2")
    page.get_by_role("button", name="Write the Job").click()
    written = page.locator("#manifest")
    expect(written).to_have_value(re.compile("completions: 2"))
    typed = admitted = written.input_value()
    for own, by_webhook in _BY_WEBHOOK.items():
        admitted = admitted.replace(own, by_webhook, 1)
    written.fill(admitted)
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("status").filter(has_text="What would become of")).to_contain_text(
        "As far as all work takes its stated time"
    )
    is_accessible(page)
    written.fill(typed)
    written.blur()
    page.evaluate("scrollTo(0, 0)")
    picture(page, "submit")


def test_nothing_comes_from_elsewhere(sign_in: Open, dashboard: RunningDashboard) -> None:
    page = sign_in("operator")
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    for path, _ in PAGES.values():
        page.goto(path)
    assert hosts == {f"127.0.0.1:{dashboard.port}"}


def test_the_queue_is_filtered_and_sorted(sign_in: Open) -> None:
    page = sign_in("operator")
    page.keyboard.press("/")
    expect(page.get_by_label("Text")).to_be_focused()
    page.keyboard.type("wrf")
    page.keyboard.press("Enter")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("State").select_option("Running")
    expect(page.locator("#rows tr")).to_have_count(4)
    page.get_by_role("link", name="Job", exact=True).click()
    assert page.locator("#rows th").all_inner_texts() == [
        "job/gromacs",
        "job/lammps",
        "job/other-tenant",
        "job/overrun",
    ]
    page.get_by_role("link", name="Job", exact=True).click()
    assert page.locator("#rows th").first.inner_text() == "job/overrun"
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Job")


def test_a_viewer_sees_one_tenant_on_every_page(sign_in: Open) -> None:
    page = sign_in("viewer")
    for path in ("/", "/queue", "/plan", "/limits", "/history?namespace=red"):
        page.goto(path)
        text = page.locator("main").inner_text()
        assert "other-tenant" not in text
        assert "hostile" not in text
    page.goto("/nodes")
    expect(page.locator("main")).to_contain_text("You may not list nodes")
    page.goto("/doctor")
    expect(page.locator("main")).to_contain_text("You may not ask the doctor")
    page.goto("/history?namespace=blue")
    expect(page.locator("main")).to_contain_text(
        "You may not request tokens of the account fluxqueue-history"
    )


def test_the_keyboard_reaches_everything(sign_in: Open) -> None:
    page = sign_in("editor", WRF)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.textContent.trim().slice(0, 20)"
            )
        )
        if "cancel" in seen:
            break
        if "Cancel ..." in seen and "cancel" not in seen:
            page.keyboard.press("Enter")
    assert {
        "Queue",
        "Plan",
        "hold",
        "priority",
        "prioritize",
        "queue",
        "move",
        "Cancel ...",
        "cancel",
    } <= seen
