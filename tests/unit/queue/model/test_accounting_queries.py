"""Questions to the accounting: what is understood, and which sentence answers what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.accounting_queries import (
    Cursor,
    Group,
    InvalidQuery,
    namespace_of,
    read_history_query,
    read_report_query,
)

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def test_by_default_a_page_is_of_the_last_day_and_a_report_of_thirty() -> None:
    page = read_history_query([], NOW)
    assert (page.filters.since, page.filters.until, page.live, page.limit, page.states) == (
        NOW - DAY,
        NOW,
        True,
        100,
        (),
    )
    report = read_report_query([], NOW)
    assert (report.filters.since, report.by) == (NOW - 30 * DAY, (Group.NAMESPACE,))


@pytest.mark.parametrize(
    ("text", "since"),
    [
        pytest.param("7d", NOW - 7 * DAY, id="how long ago"),
        pytest.param("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC), id="a day"),
        pytest.param("2026-11-01T08:00:00+09:00", datetime(2026, 10, 31, 23, tzinfo=UTC), id="another zone"),
    ],
)
def test_times_are_dates_or_how_long_ago(text: str, since: datetime) -> None:
    assert read_history_query([("since", text)], NOW).filters.since == since


def test_filters_states_and_groups_are_read() -> None:
    names = {"namespace": "science", "account": "", "queue": "gpu", "user": "alice"}
    page = read_history_query([*names.items(), ("state", "failed, Running,failed")], NOW)
    filters = page.filters
    assert (filters.namespace, filters.account, filters.queue, filters.user) == (
        "science",
        "",
        "gpu",
        "alice",
    )
    assert page.states == (State.FAILED, State.RUNNING)
    assert read_report_query([("by", "day,user,day")], NOW).by == (Group.DAY, Group.USER)


def test_who_names_work_asks_for_all_of_its_runs() -> None:
    page = read_history_query([("name", "lammps"), ("kind", "Job")], NOW)
    assert (page.name, page.kind, page.live) == ("lammps", "job", True)
    assert page.filters.since < NOW - 3_000 * DAY
    again = [
        ("name", "lammps"),
        ("since", page.filters.since.isoformat()),
        ("cursor", str(Cursor.behind(None, 1))),
    ]
    assert read_history_query(again, NOW + DAY).filters.since == page.filters.since, (
        "the next page, some time later"
    )
    assert read_history_query([("name", "lammps"), ("since", "7d")], NOW).filters.since == NOW - 7 * DAY
    assert (read_history_query([], NOW).name, read_history_query([], NOW).kind) == (None, None)


def test_work_that_has_not_ended_counts_as_ending_now() -> None:
    assert not read_history_query([("until", "1h")], NOW).live


@pytest.mark.parametrize(
    "finished", [None, datetime(2026, 11, 22, 7, 1, 2, 345, tzinfo=UTC)], ids=["live", "ended"]
)
def test_a_page_continues_behind_the_last_row(finished: datetime | None) -> None:
    cursor = Cursor.behind(finished, 17)
    assert read_history_query([("cursor", str(cursor))], NOW).after == cursor


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (
            [("title", "x")],
            (
                "there is no parameter 'title': there are namespace, account, queue, user, name, "
                "kind, since, until, state, limit"
            ),
        ),
        ([("queue", "a"), ("queue", "b")], "queue is given twice: give it once"),
        ([("user", "a" * 1025)], "user is longer than 1024 characters: shorten it"),
        ([("user", "a\x00")], "user contains a control character: remove it"),
        (
            [("namespace", "No")],
            "namespace='No' is no name of a namespace: name one, or leave it out for all",
        ),
        (
            [("since", "soon")],
            "since='soon' is no time: write 2026-11-23, 2026-11-23T08:00:00Z, or how long ago: 12h, 7d",
        ),
        (
            [("since", "0001-01-01T00:00:00+20:00")],
            "since='0001-01-01T00:00:00+20:00' is no time: write 2026-11-23",
        ),
        ([("until", "0001-01-01")], "until='0001-01-01' is no time: write 2026-11-23"),
        (
            [("since", "2027-01-01")],
            "since lies in the future: name a time that has passed, or how long ago: 12h, 7d",
        ),
        (
            [("since", "1h"), ("until", "2h")],
            "since is not before until: name a later until, or an earlier since",
        ),
        ([("since", "1990-01-01")], "since lies more than ten years before until: name a later one"),
        ([("state", "done")], "state='done' is no state: name some of pending, allocated, running"),
        (
            [("limit", "1001")],
            "limit='1001' is not a number from 1 to 1000: name one, and ask for more with cursor",
        ),
        ([("limit", "²")], "limit='²' is not a number from 1 to 1000"),
        (
            [("cursor", "2026-13-01T00:00:00.000000Z_1")],
            "cursor='2026-13-01T00:00:00.000000Z_1' is none: send the `next`",
        ),
        ([("cursor", "-")], "cursor='-' is none: send the `next` of the page before, or no cursor"),
    ],
)
def test_bad_parameters_get_one_sentence(parameters: list[tuple[str, str]], sentence: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        read_history_query(parameters, NOW)
    assert str(refused.value).startswith(sentence)


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(
        InvalidQuery, match="by='week' is no group: name some of namespace, account, queue, user, day"
    ):
        read_report_query([("by", "day,week")], NOW)


def test_a_report_until_the_first_month_of_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="until='0001-01-15' is no time"):
        read_report_query([("until", "0001-01-15")], NOW)


def test_the_namespace_is_known_before_anything_else_is_read() -> None:
    assert namespace_of([("limit", "x")]) == ""
    assert namespace_of([("namespace", "science"), ("limit", "x")]) == "science"
    for wrong in ([("namespace", "a"), ("namespace", "b")], [("namespace", "")], [("namespace", "a/b")]):
        with pytest.raises(InvalidQuery):
            namespace_of(wrong)
