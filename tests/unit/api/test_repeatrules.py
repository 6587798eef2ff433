from datetime import UTC, datetime

import pytest

from fluxqueue.api.repeatrules import InvalidRepeat, RepeatRule, parse_repeat


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("FREQ=DAILY", RepeatRule("DAILY")),
        ("RRULE:FREQ=WEEKLY;BYDAY=TU,TH", RepeatRule("WEEKLY", by_day=((1, 0), (3, 0)))),
        ("FREQ=WEEKLY;INTERVAL=2;WKST=SU", RepeatRule("WEEKLY", 2, week_start=6)),
        ("FREQ=MONTHLY;BYDAY=1MO;COUNT=12", RepeatRule("MONTHLY", count=12, by_day=((0, 1),))),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", RepeatRule("MONTHLY", by_month_day=(-1,))),
        ("FREQ=YEARLY;BYMONTH=3,9;BYDAY=-1SU", RepeatRule("YEARLY", by_day=((6, -1),), by_month=(3, 9))),
        (
            "FREQ=DAILY;UNTIL=20271231T120000Z",
            RepeatRule("DAILY", until=datetime(2027, 12, 31, 12, tzinfo=UTC)),
        ),
        (
            "FREQ=DAILY;UNTIL=20271231T120000",
            RepeatRule("DAILY", until=datetime.fromisoformat("2027-12-31T12:00")),
        ),
        (
            "FREQ=DAILY;UNTIL=20271231",
            RepeatRule("DAILY", until=datetime.fromisoformat("2027-12-31T23:59:59")),
        ),
    ],
)
def test_reads_a_rule(text: str, rule: RepeatRule) -> None:
    assert parse_repeat(text) == rule


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not NAME=VALUE"),
        ("weekly", "is not NAME=VALUE"),
        ("FREQ=", "is not NAME=VALUE"),
        ("INTERVAL=2", "FREQ is one of DAILY"),
        ("FREQ=HOURLY", "FREQ is one of DAILY"),
        ("FREQ=SECONDLY;INTERVAL=1", "FREQ is one of DAILY"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ occurs twice"),
        ("FREQ=DAILY;BYHOUR=8", "'BYHOUR' is not supported"),
        ("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=1", "'BYSETPOS' is not supported"),
        ("FREQ=DAILY;BYDAY=MO", "BYDAY cannot be combined with FREQ=DAILY: use FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYMONTH=3", "BYMONTH cannot be combined with FREQ=MONTHLY: use FREQ=YEARLY"),
        ("FREQ=DAILY;WKST=MO", "use FREQ=WEEKLY"),
        ("FREQ=WEEKLY;BYDAY=1MO", "has no numbers"),
        ("FREQ=WEEKLY;BYDAY=Monday", "write weekdays such as MO"),
        ("FREQ=WEEKLY;WKST=8", "WKST=8: write one of"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0: write a number from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=99999", "write a number from 1 to 1000"),
        ("FREQ=DAILY;COUNT=x", "COUNT=x: write a number"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "from -31 to 31, but not 0"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "from -31 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=1;BYDAY=MO", "together are not supported"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20271231", "exclude each other"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL=tomorrow: write a time"),
        ("FREQ=DAILY;UNTIL=00010101T000000Z", "UNTIL=00010101T000000Z: it is before the year 2000"),
        ("FREQ=DAILY;" * 100, "at most 200 characters"),
    ],
)
def test_refuses_what_is_no_rule_and_says_what_to_write(text: str, complaint: str) -> None:
    with pytest.raises(InvalidRepeat, match=complaint):
        parse_repeat(text)
