import io

import pytest

from fluxqueue.cli.fitting import Narrowing, fitted, line_width, without_empty
from fluxqueue.cli.tables import columns

STEPS = Narrowing((("INFO", 10), ("NAME", 0), ("OBJECT", 6)))
TITLES = ["NAME", "OBJECT", "INFO"]
ROWS = [
    ["job-a-1234567890", "job/a", "WaitingForNodes, position 1"],
    ["job-b-1234567890", "job/a-long-name", ""],
]


@pytest.mark.parametrize("width", range(12, 70))
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    titles, rows = fitted(TITLES, ROWS, width, STEPS)
    assert max(map(len, columns(titles, rows).splitlines())) <= width


def test_a_wide_terminal_and_a_pipe_show_everything() -> None:
    for width in (None, 200):
        assert fitted(TITLES, ROWS, width, STEPS) == (TITLES, ROWS)


def test_the_last_column_is_cut_first_and_then_a_column_is_dropped() -> None:
    titles, rows = fitted(TITLES, ROWS, 60, STEPS)
    assert titles == TITLES
    assert rows[0][2].endswith("+")
    titles, rows = fitted(TITLES, ROWS, 40, STEPS)
    assert titles == ["OBJECT", "INFO"]


def test_a_column_without_text_vanishes() -> None:
    assert without_empty(["A", "B"], [["x", ""], ["y", ""]]) == (["A"], [["x"], ["y"]])
    assert without_empty(["A", "B"], []) == (["A", "B"], [])


def test_only_a_terminal_or_a_stated_width_has_one() -> None:
    assert line_width(io.StringIO(), {}) is None
    assert line_width(io.StringIO(), {"COLUMNS": "80"}) == 80
    assert line_width(io.StringIO(), {"COLUMNS": "wide"}) is None
