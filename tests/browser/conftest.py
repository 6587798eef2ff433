"""The dashboard in a real browser: Chromium of the system, driven by Playwright; skipped with a sentence
where there is none.

With FLUXQUEUE_SCREENSHOTS=1 the tests write the pictures of docs/dashboard.md again.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.browsers import chromium
from support.dashboard_stage import SYSTEM, RunningDashboard, make_person, prepare, run_dashboard
from support.dashboard_work import some_work
from support.queue_standin import QueueStandin, run_queue_standin

from fluxqueue.local.controlplane import ControlPlane

Open = Callable[..., Page]

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_MEANT = (404, 409)
"""Statuses of pages that tests look at, of which browsers complain."""
_TIMEOUT_MS = 60_000

expect.set_options(timeout=_TIMEOUT_MS)


def _chromium() -> str:
    named = chromium()
    if named is None:
        pytest.skip(
            "there is no Chromium on this machine: install it (apt-get install chromium), "
            "or name it in FLUXQUEUE_CHROMIUM"
        )
    return named


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    program = _chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def cluster(service_folder: Path, browser: Browser) -> Iterator[ControlPlane]:
    """Eight nodes and work in every state."""
    with ControlPlane(service_folder / "browser", nodes=8) as plane:
        prepare(plane)
        some_work(plane)
        yield plane


@pytest.fixture(scope="session")
def standin(service_folder: Path) -> Iterator[QueueStandin]:
    """Answers for history and doctor."""
    with run_queue_standin(service_folder / "queue-standin") as running:
        yield running


@pytest.fixture(scope="session")
def dashboard(
    cluster: ControlPlane, standin: QueueStandin, service_folder: Path
) -> Iterator[RunningDashboard]:
    """The program."""
    levels = ["--level", "topology.kubernetes.io/zone", "--level", "topology.kubernetes.io/rack"]
    queue = ["--queue-url", standin.url, "--queue-ca", str(standin.ca), "--namespace", SYSTEM]
    with run_dashboard(cluster, service_folder / "browser-dashboard", *levels, *queue) as running:
        yield running


@pytest.fixture(scope="session")
def tokens(cluster: ControlPlane) -> dict[str, str]:
    """Tokens of people, by what they may."""
    return {
        "viewer": make_person(cluster, "viewer", {"blue": "view"}),
        "editor": make_person(cluster, "editor", {"blue": "edit"}),
        "operator": make_person(cluster, "operator", {"": "cluster-admin"}),
    }


@pytest.fixture
def sign_in(browser: Browser, dashboard: RunningDashboard, tokens: dict[str, str]) -> Iterator[Open]:
    """Open a page as somebody; at the end, no page may have reported an error."""
    contexts = []
    complaints: list[str] = []

    def opened(who: str, path: str = "/queue", **options: object) -> Page:
        context = browser.new_context(
            base_url=dashboard.url,
            ignore_https_errors=True,
            viewport={"width": 1400, "height": 900},
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        page.get_by_label("Token of the API server").fill(tokens[who])
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url: "/sign-in" not in url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not [
        complaint
        for complaint in complaints
        if not any(f"status of {status}" in complaint for status in _MEANT)
    ]


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    """Write a picture for the documentation, if it was asked for."""

    def write(page: Page, name: str) -> None:
        if os.environ.get("FLUXQUEUE_SCREENSHOTS"):
            shot = page.context.new_cdp_session(page).send(
                "Page.captureScreenshot", {"format": "webp", "quality": 82}
            )
            (PICTURES / f"dashboard-{name}.webp").write_bytes(base64.b64decode(shot["data"]))

    return write
