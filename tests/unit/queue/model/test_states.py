from __future__ import annotations

import pytest
from support.queue_builders import a_workload

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.model.states import ENDED, LIVE, TRANSITIONS, released_at_creation, sources


def test_every_state_stands_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == {None, *State}
    assert set().union(*TRANSITIONS.values()) == set(State)


def test_a_state_is_pending_live_or_ended() -> None:
    assert {State.PENDING} | LIVE | ENDED == set(State)
    assert not LIVE & ENDED


@pytest.mark.parametrize("state", sorted(ENDED))
def test_nothing_follows_an_end_but_a_cancelled_job_may_be_resumed(state: State) -> None:
    assert state.ended
    assert TRANSITIONS[state] == ({State.PENDING} if state is State.CANCELLED else set())


def test_a_running_workload_waits_again_only_after_draining() -> None:
    assert State.PENDING not in TRANSITIONS[State.RUNNING]
    assert sources(State.PENDING) - ENDED == {State.ALLOCATED, State.DRAINING}


def test_any_workload_that_has_not_ended_may_end() -> None:
    assert all(sources(end) == {State.PENDING} | LIVE for end in ENDED)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("mode", ReleaseMode)
def test_gated_pods_and_work_that_stops_wait_for_the_tracker(state: State, mode: ReleaseMode) -> None:
    expected = mode in ("pin", "pod") and state in (State.ALLOCATED, State.RUNNING)
    assert released_at_creation(a_workload(state=state, release_mode=mode)) == expected
