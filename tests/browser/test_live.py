"""What happens by itself and by hand: changes arrive, verbs are carried out, and many rows are no burden."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect
from support.dashboard_stage import at, change, create, fluxjob, read
from support.dashboard_work import finish, many_jobs

from fluxqueue.local.controlplane import ControlPlane

Open = Callable[..., Page]
Picture = Callable[[Page, str], None]

CROWD = 10_000


def test_a_change_arrives_without_loading_the_page(sign_in: Open, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("live-one", "blue", reason="WaitingForNodes"))
    page = sign_in("viewer", "/queue?q=live-one")
    row = page.locator("#rows tr")
    expect(row).to_contain_text("WaitingForNodes")
    expect(page.locator("#connection")).to_have_text("live")
    page.evaluate("window.loadedOnce = true")
    change(cluster, "blue", name, status={"state": "Running", "nodes": "node-2", "reason": ""})
    expect(row).to_contain_text("node-2")
    finish(cluster, "blue", name)
    expect(row).to_contain_text("Succeeded")
    create(cluster, fluxjob("live-one-more", "blue"))
    expect(row).to_have_count(2)
    cluster.client.request(
        "DELETE", f"/apis/jobs.converged-computing.org/v1alpha1/namespaces/blue/fluxjobs/{name}"
    )
    expect(row).to_have_count(1)
    expect(row).to_contain_text("live-one-more")
    assert page.evaluate("window.loadedOnce") is True


def test_a_page_that_nobody_sees_holds_no_connection_and_catches_up(
    sign_in: Open, cluster: ControlPlane
) -> None:
    name = create(cluster, fluxjob("unseen", "blue", reason="WaitingForNodes"))
    page = sign_in("viewer", "/queue?q=unseen")
    row = page.locator("#rows tr")
    expect(page.locator("#connection")).to_have_text("live")
    with page.expect_event("requestfailed", lambda request: "/live/" in request.url):
        _seen(page, hidden=True)
    change(cluster, "blue", name, status={"state": "Running", "nodes": "node-2", "reason": ""})
    with page.expect_request(lambda request: "/live/" in request.url):
        _seen(page, hidden=False)
    expect(row).to_contain_text("node-2")
    finish(cluster, "blue", name)
    expect(row).to_contain_text("Succeeded")


def _seen(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        "hidden => Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden })",
        hidden,
    )
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_page_of_a_job_follows_it_and_waits_for_who_types(sign_in: Open, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("followed", "blue"))
    page = sign_in("editor")
    page.goto(f"/jobs/blue/{name}")
    expect(page.locator("#connection")).to_have_text("live")
    page.locator("#priority").fill("12")
    change(cluster, "blue", name, status={"reason": "WaitingForNodes", "message": "needs more"})
    expect(page.locator("body")).to_have_attribute("data-updates", re.compile("[1-9]"))
    expect(page.locator("#priority")).to_have_value("12")
    page.locator("#priority").blur()
    expect(page.locator("main")).to_contain_text("needs more")


def test_a_page_that_follows_leaves_the_keyboard_where_it_is(sign_in: Open, cluster: ControlPlane) -> None:
    page = sign_in("operator", "/nodes")
    expect(page.locator("#connection")).to_have_text("live")
    page.get_by_role("link", name="node-3,").focus()
    name = create(
        cluster,
        fluxjob(
            "beside", "blue", state="Running", nodes="node-7", jobid=77, allocatedAt=at(-5), startedAt=at(-4)
        ),
    )
    expect(page.get_by_role("link", name="node-7,")).to_have_accessible_name(re.compile("job/beside"))
    expect(page.get_by_role("link", name="node-3,")).to_be_focused()
    finish(cluster, "blue", name)


def test_hold_and_cancel_with_the_mouse(sign_in: Open, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("mine", "blue"))
    page = sign_in("editor")
    page.get_by_role("link", name="job/mine").click()
    page.locator("#hold").click()
    expect(page.get_by_role("status").filter(has_text="is held")).to_be_visible()
    assert read(cluster, "blue", name)["spec"]["hold"] is True
    page.locator("#release").click()
    expect(page.get_by_role("status").filter(has_text="is released")).to_be_visible()
    page.get_by_text("Cancel ...").click()
    page.locator("#cancel").click()
    expect(page.get_by_role("status").filter(has_text="is being cancelled")).to_be_visible()
    assert read(cluster, "blue", name)["spec"]["cancel"] is True


def test_who_may_only_look_is_offered_nothing(sign_in: Open, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("not-mine", "blue"))
    page = sign_in("viewer")
    page.goto(f"/jobs/blue/{name}")
    expect(page.locator("main")).to_contain_text("You may not change work in the namespace blue")
    assert page.locator(".verbs").count() == 0


def test_ten_thousand_jobs(sign_in: Open, cluster: ControlPlane, picture: Picture) -> None:
    many_jobs(cluster, "crowd", CROWD)
    page = sign_in("operator", "/queue?namespace=crowd")
    expect(page.locator("#summary")).to_contain_text(f"{CROWD:,} jobs", timeout=120_000)
    expect(page.locator("#rows tr")).to_have_count(100)
    page.goto("/queue?namespace=crowd&sort=position")
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#summary")).to_contain_text("page 2 of 100")
    expect(page.locator("#rows th").first).to_have_text("job/crowd-00100")
    page.goto("/queue?namespace=crowd&q=crowd-09999")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#connection")).to_have_text("live")
    link = page.locator("#rows a").get_attribute("href") or ""
    change(cluster, "crowd", link.rpartition("/")[2], status={"reason": "QueueLimit"})
    expect(page.locator("#rows tr")).to_contain_text(re.compile("QueueLimit"))
