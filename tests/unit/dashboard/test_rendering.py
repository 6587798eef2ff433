import re

import pytest
from jinja2 import UndefinedError

from fluxqueue.dashboard.rendering import (
    STATIC,
    asset,
    assets,
    colours,
    environment,
    how_long,
    job_link,
    moment,
    told,
)


def test_texts_are_escaped() -> None:
    made = environment().from_string('<a title="{{ text }}">{{ text }}</a>').render(text="<b>\"'&")
    assert made == '<a title="&lt;b&gt;&#34;&#39;&amp;">&lt;b&gt;&#34;&#39;&amp;</a>'


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ missing }}").render()


def test_the_address_of_a_file_changes_with_its_content() -> None:
    assert asset("live.js").startswith("/static/")
    assert asset("live.js").split("/")[2] != asset("style.css").split("/")[2]


def test_links_of_hostile_names_stay_paths() -> None:
    assert job_link("a/b", "../x?y#<z>") == "/jobs/a%2Fb/..%2Fx%3Fy%23%3Cz%3E"


def test_a_time_is_written_for_scripts_and_for_people() -> None:
    text = str(moment("2026-03-02T13:00:00+01:00", "since"))
    assert text == '<time datetime="2026-03-02T12:00:00Z" data-kind="since">2026-03-02 12:00:00 UTC</time>'
    assert "none" in str(moment("soon"))
    assert "none" in str(moment(None))


def test_colours_do_not_repeat_among_what_is_seen() -> None:
    names = [f"uid-{number}" for number in range(24)]
    found = colours(names)
    assert len(set(found.values())) == len(names)
    assert colours(names[:1])[names[0]] == found[names[0]], "a name keeps its colour while others come"
    assert all(re.fullmatch(r"oklch\(0\.\d+ 0\.\d+ \d+\)", each) for each in found.values())
    assert len(set(colours(f"uid-{number}" for number in range(200)).values())) > 150


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (95, "95s"),
        (60, "1m"),
        (190, "3m10s"),
        (2_820, "47m"),
        (6_000, "1h40m"),
        (7_200, "2h"),
        (86_399, "23h59m"),
        (86_400, "24h"),
        (180_000, "2d2h"),
        (86_400 * 40, "40d"),
    ],
)
def test_a_part_of_a_limit_and_the_limit_have_the_same_units(seconds: float, text: str) -> None:
    assert how_long(seconds) == text


def test_an_end_that_may_have_passed_is_called_a_limit() -> None:
    assert ">limit 2026-03-02 12:00:00 UTC<" in moment("2026-03-02T12:00:00Z", "end")


def test_every_file_comes_from_here() -> None:
    for name in assets():
        text = (
            (STATIC / name)
            .read_text()
            .replace("http://www.w3.org/2000/svg", "")
            .replace("/*! https://github.com/leeoniya/uPlot", "")
        )
        assert "http:" not in text
        assert "https:" not in text


def test_what_others_wrote_has_its_licence() -> None:
    assert "vendor/uPlot.min.js" in assets()
    assert "MIT License" in (STATIC / "vendor/uPlot.LICENSE").read_text()


def test_times_of_messages_are_written_in_the_zone_of_the_browser() -> None:
    text = told("<b> from 2026-03-02T12:00:00Z on")
    assert text == f"&lt;b&gt; from {moment('2026-03-02T12:00:00Z')} on"


def test_only_what_runs_has_a_time_without_a_word() -> None:
    """How long ago something was ends in "ago"; a length of time without a word is that of a run,
    next to its limit.
    """
    sources = {path.name: path.read_text() for path in (STATIC.parent / "templates").glob("*.html")}
    bare = {
        name: re.findall(r"\{\{ ([^{}]*) \| moment\(.since.\) \}\}", text) for name, text in sources.items()
    }
    assert {name: found for name, found in bare.items() if found} == {
        "job.html": ["row.began"],
        "row.html": ["row.began"],
    }
