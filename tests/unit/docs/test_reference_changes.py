from __future__ import annotations

from reference_changes import ROOMS, changes_page

from fluxqueue.queue.leadership.subscriptions import SOURCES


def test_each_handler_is_a_row_with_what_it_is_for_below_what_changes() -> None:
    page = changes_page()
    for source in SOURCES:
        heading = f"## {source.name[0].upper()}{source.name[1:]}\n"
        rows = page.split(heading)[1].split("\n## ")[0].splitlines()
        names = [row.split("`")[1] for row in rows if row.startswith("| `")]
        assert names == [handler.__qualname__ for handler in source.handlers]
        assert all(len(row.split(" | ")[1]) > 10 for row in rows if row.startswith("| `"))


def test_each_handler_is_counted_in_a_room() -> None:
    table = changes_page().split("## ")[0]
    counted = sum(int(each) for each in table.split() if each.isdigit())
    assert counted == sum(len(source.handlers) for source in SOURCES)
    assert "tasks" not in ROOMS, "no part of that room is told of anything"
