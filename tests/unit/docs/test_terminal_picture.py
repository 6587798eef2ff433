"""The picture of a terminal is one small file that stands alone, moves in the order of its commands,
and can stand still.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from terminal_picture import COLUMNS, Take, render

TAKES = (
    Take("first <command> & 'more'", ("job/a  Running", "", "x" * (COLUMNS + 5)), 1.0),
    Take("second", tuple(f"line {number}" for number in range(40)), 2.0, still=True),
    Take("third", ("job/a  Cancelled",), 1.0),
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture() -> str:
    return render(TAKES, "A title", "What is < seen")


def rows(picture: str) -> list[str]:
    """Return the text of each row, in the order of the rows."""
    found: dict[int, str] = {}
    for text in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        row = int(text.get("y", "0"))
        found[row] = found.get(row, "") + "".join(text.itertext())
    return [found[row] for row in sorted(found)]


def appears_at(picture: str, content: str) -> float:
    """Return when a text appears, in percent of the loop."""
    group = next(
        each
        for each in ElementTree.fromstring(picture).iter(f"{SVG}g")
        if content in "".join(each.itertext()) and each.get("class") != "all"
    )
    found = re.search(rf"@keyframes {group.get('class')}{{0%{{opacity:0}}([0-9.]+)%", picture)
    return float(found[1]) if found else 0.0


def test_it_has_the_commands_and_their_output_in_their_order(picture: str) -> None:
    shown = rows(picture)
    assert shown[:2] == ["$ first <command> & 'more'", "job/aRunning"]
    assert shown[2:5] == ["x" * COLUMNS, "xxxxx", "$ second"]
    assert shown[-2:] == ["$ third", "job/aCancelled"]


def test_a_command_is_typed_before_its_output_appears(picture: str) -> None:
    times = [
        appears_at(picture, content)
        for content in ("fi", "om", "Running", "se", "line 39", "th", "Cancelled")
    ]
    assert times == sorted(set(times))
    assert all(0 < time < 100 for time in times)


def test_it_needs_nothing_from_elsewhere(picture: str) -> None:
    assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<image|@import|url\(", picture)


def test_it_is_named_for_people_who_do_not_see_it(picture: str) -> None:
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert [root.findtext(f"{SVG}{tag}") for tag in ("title", "desc")] == ["A title", "What is < seen"]
    assert root.get("aria-labelledby") == "title description"


def test_it_follows_the_colours_and_the_motion_that_the_reader_prefers(picture: str) -> None:
    light, dark = re.findall(r":root\{([^}]*)\}", picture)
    names = [re.findall(r"--(\w+):", colours) for colours in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\(--(\w+)\)", picture)) == set(names[0])
    assert "@media (prefers-color-scheme:dark)" in picture
    assert "@media (prefers-reduced-motion:reduce){*{animation:none!important}}" in picture


def test_what_stands_still_ends_with_the_output_that_was_chosen(picture: str) -> None:
    (still,) = re.findall(r"\.all\{transform:translateY\(-(\d+)px\)", picture)
    last = next(
        text
        for text in ElementTree.fromstring(picture).iter(f"{SVG}text")
        if "".join(text.itertext()) == "line 39"
    )
    inner = ElementTree.fromstring(picture).find(f"{SVG}svg")
    assert inner is not None
    assert 0 <= int(inner.get("height", "0")) - (int(last.get("y", "0")) - int(still)) < 18


def test_the_lines_move_up_when_the_terminal_is_full(picture: str) -> None:
    (steps,) = re.findall(r"@keyframes all\{(.*)\}\.all", picture)
    moved = [int(each) for each in re.findall(r"translateY\(-(\d+)px\)", steps)]
    assert moved == sorted(set(moved))
    assert moved
