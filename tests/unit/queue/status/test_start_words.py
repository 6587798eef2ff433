from datetime import UTC, datetime, timedelta, timezone

import pytest

from fluxqueue.queue.model.estimates import Estimate
from fluxqueue.queue.status.start_words import has_moved, start_words

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (None, ""),
        (Estimate(position=None), ""),
        (Estimate(position=7), "position 7 in the queue 'lab'"),
        (Estimate(position=None, eta=NOON), "expected to start by 2026-03-02T12:00:00Z"),
        (
            Estimate(position=1, eta=NOON.astimezone(timezone(timedelta(hours=2))), reserved=True),
            "its nodes are reserved from 2026-03-02T12:00:00Z, position 1 in the queue 'lab'",
        ),
    ],
)
def test_a_start_is_named_as_far_as_it_is_known(estimate: Estimate | None, words: str) -> None:
    assert start_words(estimate, "lab") == words


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (None, None, False),
        (60, None, False),
        (None, 60, True),
        (60, 74, False),
        (60, 76, True),
        (60, 44, True),
        (10, 19, False),
        (10, 21, True),
        (600, 740, False),
    ],
)
def test_a_start_moves_by_ten_minutes_and_a_quarter_of_the_wait(
    before: int | None, now: int | None, moved: bool
) -> None:
    def at(minutes: int | None) -> datetime | None:
        return None if minutes is None else NOON + timedelta(minutes=minutes)

    assert has_moved(at(before), NOON, at(now)) is moved
