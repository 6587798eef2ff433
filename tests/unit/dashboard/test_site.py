from markupsafe import Markup
from support.dashboard_site import Clock, Stage, job

from fluxqueue.dashboard.site import Content, SharedRenders, render


def content() -> Content:
    return Content("Page", render("message.html", sentence="<b>"))


def test_content_is_made_once_for_each_change_and_moment() -> None:
    clock = Clock()
    shared = SharedRenders(clock)
    first = shared.get("key", 1, content)
    assert "&lt;b&gt;" in first.html
    assert shared.get("key", 1, content) is first
    shared.get("key", 2, content)
    shared.get("other", 2, content)
    clock.now += 11
    shared.get("key", 2, content)
    assert shared.made == 4


def test_a_bounded_number_is_kept() -> None:
    shared = SharedRenders(Clock())
    for number in range(200):
        shared.get(number, 1, content)
    assert len(shared._kept) == 64


def test_large_pages_are_kept_in_a_bounded_size() -> None:
    shared = SharedRenders(Clock())
    large = Content("Page", Markup("x") * 10_000_000)
    for number in range(10):
        shared.get(number, 1, lambda: large)
        shared.get(number, 2, lambda: large)
    assert len(shared._kept) == 3
    shared.get("small", 1, content)
    assert len(shared._kept) == 4


async def test_what_somebody_sees_is_asked_about_the_namespaces_that_have_work() -> None:
    stage = Stage()
    stage.show(job("a"), job("b", "red"))
    viewer = await stage.viewer("alice", ("list", "fluxjobs", "red"))
    assert (await stage.site.visible(viewer)).namespaces == frozenset({"red"})
