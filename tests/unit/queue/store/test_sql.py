from __future__ import annotations

import re
from enum import StrEnum
from importlib import resources

import pytest
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.queue.model.records import ReleaseMode, SlotState
from fluxqueue.queue.model.states import TRANSITIONS
from fluxqueue.queue.store.migrations import our_migrations
from fluxqueue.queue.store.queries import QUERIES, parse

_MIGRATIONS = list(our_migrations().values())


def _words(pattern: str) -> set[str]:
    """The quoted words in the parentheses behind a pattern, in the newest migration that has it."""
    found = [match for text in _MIGRATIONS if (match := re.search(pattern + r"\s*\(([^)]*)\)", text))]
    assert found, pattern
    return set(re.findall(r"'([^']*)'", found[-1][1]))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"CHECK \(state IN", State),
        (r"CHECK \(reason IN", Reason),
        (r"CHECK \(outcome IN", Outcome),
        (r"CHECK \(release_mode IN", ReleaseMode),
        (r"DEFAULT 'free' CHECK \(state IN", SlotState),
    ],
)
def test_the_tables_know_exactly_the_words_of_the_code(pattern: str, words: type[StrEnum]) -> None:
    assert _words(pattern) == {str(word) for word in words}


def test_the_tables_allow_exactly_the_transitions_of_the_code() -> None:
    allowed = {f"{before or ''}>{after}" for before, follow in TRANSITIONS.items() for after in follow}
    assert _words(r"CHECK \(COALESCE\(before, ''\) \|\| '>' \|\| after IN") == allowed


def test_every_query_is_used_and_every_used_query_exists() -> None:
    store = resources.files("fluxqueue.queue.store")
    code = "\n".join(entry.read_text("utf-8") for entry in store.iterdir() if entry.name.endswith(".py"))
    used = set(re.findall(r'(?:Statement\(|_read\(|_records\(\s*\w+,)\s*"(\w+)"', code))
    assert used == set(QUERIES)


def test_only_the_store_speaks_sql() -> None:
    speaks = re.compile(r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM)\b\s+\w")
    room = resources.files("fluxqueue.queue.store").joinpath("..")
    speakers = [
        entry.name
        for entry in room.iterdir()
        if entry.name.endswith(".py") and speaks.search(entry.read_text("utf-8"))
    ]
    assert speakers == []


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(name.removeprefix("fluxqueue/")[:4]) for name in our_migrations()]
    assert numbers == list(range(25, 25 + len(numbers)))


def test_a_file_is_split_into_its_queries_without_comments_and_indentation() -> None:
    text = "-- about all\n\n-- first --\n-- why\nSELECT 1;\n\n-- second --\nSELECT 2\n  FROM t;\n"
    assert parse(text) == {"first": b"SELECT 1", "second": b"SELECT 2\nFROM t"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;\n-- late --\nSELECT 2;", "before the first name"),
        ("-- a --\n-- only words\n", "is empty"),
        ("-- a --\nSELECT 1;\n-- a --\nSELECT 2;", "occurs twice"),
    ],
)
def test_a_file_that_would_lose_a_query_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)


def test_psycopg_remembers_how_each_query_is_parsed() -> None:
    too_long = [name for name, query in QUERIES.items() if len(query) > MAX_CACHED_STATEMENT_LENGTH]
    assert too_long == [], "these would be parsed again each time"


def test_no_row_has_the_time_of_postgres_own_clock() -> None:
    by_postgres = re.compile(
        rb"fluxqueue\.clock\(\)|clock_timestamp\(\)|\bnow\(\)|current_timestamp", re.IGNORECASE
    )
    reading = {name for name, query in QUERIES.items() if by_postgres.search(query)}
    assert reading == {
        "end_stalled_changes",
        "raise_epoch",
        "now",
        "read_clocks",
        "keep_clock",
        "stalled_tasks",
    }
