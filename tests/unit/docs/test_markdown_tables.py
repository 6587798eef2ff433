from __future__ import annotations

from markdown_tables import cell, code, table


def test_a_cell_is_one_line_without_what_ends_it() -> None:
    assert cell("a |\n  <b>") == "a \\| &lt;b>"


def test_code_of_nothing_is_nothing() -> None:
    assert (code(" "), code("a|b")) == ("", "`a\\|b`")


def test_a_table_has_a_title_row_and_ends_with_an_empty_line() -> None:
    assert list(table(("a", "b"), [("1", "2")])) == ["| a | b |", "|---|---|", "| 1 | 2 |", ""]
