import io
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fluxqueue.cli.tables import age, clock, columns, in_zone, instant, printable, wants_colour


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (659, "10m"),
        (2 * 3600, "120m"),
        (3 * 3600 + 300, "3h5m"),
        (9 * 3600 + 1800, "9h"),
        (49 * 3600, "2d1h"),
        (40 * 86400, "40d"),
    ],
)
def test_says_an_age_in_at_most_two_units_as_kubectl_does(seconds: int, text: str) -> None:
    assert age(seconds) == text


def test_aligns_columns_and_leaves_nothing_behind_the_last() -> None:
    assert (
        columns(["NAME", "STATE"], [["a", "Running"], ["longer", ""]])
        == "NAME     STATE\na        Running\nlonger   -\n"
    )


def test_later_lines_keep_the_widths_of_earlier_ones() -> None:
    assert columns(None, [["a", "b"]], least=[6, 5]) == "a        b\n"


def test_an_empty_table_without_titles_is_nothing() -> None:
    assert columns(None, []) == ""


def test_nothing_that_others_wrote_commands_the_terminal() -> None:
    assert columns(None, [["a\x1b]0;evil\x07", "b\nc", "\x9b2J"]]) == "a\\x1b]0;evil\\x07   b c   \\x9b2J\n"
    assert printable("grün \u202e→\n\tx", lines=True) == "grün \\u202e→\n\tx"
    assert printable("\r\u2028") == " \\u2028"


def test_colour_changes_no_width() -> None:
    plain = columns(["STATE", "X"], [["Running", "1"], ["Failed", "2"]])
    painted = columns(
        ["STATE", "X"], [["Running", "1"], ["Failed", "2"]], {"Running": "good", "Failed": "bad"}
    )
    assert "\x1b[32mRunning\x1b[0m" in painted
    for code in ("32", "31", "0"):
        painted = painted.replace(f"\x1b[{code}m", "")
    assert painted == plain


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        pytest.param(_Terminal(), {}, True, id="a terminal"),
        pytest.param(_Terminal(), {"NO_COLOR": "1"}, False, id="a terminal of somebody who wants none"),
        pytest.param(_Terminal(), {"TERM": "dumb"}, False, id="a dumb terminal"),
        pytest.param(io.StringIO(), {}, False, id="a pipe"),
    ],
)
def test_colours_only_what_a_person_watches(
    stream: io.StringIO, environ: dict[str, str], wanted: bool
) -> None:
    assert wants_colour(stream, environ) is wanted


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_a_time_that_is_none_is_none(text: str | None) -> None:
    assert instant(text) is None


def test_says_the_date_only_of_another_day() -> None:
    now = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
    assert clock(datetime(2026, 3, 2, 9, 5, 7, tzinfo=UTC), now) == "09:05:07"
    assert clock(datetime(2026, 3, 1, 9, 5, 7, tzinfo=UTC), now) == "2026-03-01 09:05:07"


def test_times_of_messages_are_in_the_zone_of_the_reader() -> None:
    now = datetime(2026, 3, 2, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    text = "reserved from 2026-03-02T08:30:00Z, until 2026-03-03T08:30:00Z; job-2026-99-02T08:30:00Z is none"
    assert (
        in_zone(text, now)
        == "reserved from 10:30:00, until 2026-03-03 10:30:00; job-2026-99-02T08:30:00Z is none"
    )
