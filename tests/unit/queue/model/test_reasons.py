"""Kinds of reasons contain each other as the code that reads them assumes."""

from __future__ import annotations

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.reasons import LIMIT_REASONS, MATCHABLE_REASONS, WAITS_FOR_OTHERS


def test_work_at_a_limit_is_matched_and_work_that_waits_for_other_work_is_not() -> None:
    assert LIMIT_REASONS < MATCHABLE_REASONS
    assert not WAITS_FOR_OTHERS & MATCHABLE_REASONS


def test_what_a_person_has_to_change_is_never_matched() -> None:
    assert not MATCHABLE_REASONS & {
        Reason.HELD,
        Reason.USER_SUSPENDED,
        Reason.INVALID_REQUEST,
        Reason.QUEUE_NOT_ALLOWED,
        Reason.TIME_LIMIT,
    }
