from support.dashboard_site import Clock

from fluxqueue.dashboard.people import Person
from fluxqueue.dashboard.sessions import LIFETIME_S, Sessions

ALICE = Person("alice")


def test_a_session_is_found_by_its_cookie() -> None:
    sessions = Sessions(Clock())
    session, cookie = sessions.begin(ALICE, "token")
    assert sessions.find(cookie) is session
    assert sessions.lives(session)
    assert "token" not in cookie
    assert "token" not in repr(session)
    assert session.csrf not in cookie


def test_a_made_up_cookie_is_refused() -> None:
    sessions = Sessions(Clock())
    session, cookie = sessions.begin(ALICE, "token")
    _, other = Sessions(Clock()).begin(ALICE, "token")
    for wrong in (
        "",
        session.key,
        f"{session.key}.",
        f"{session.key}.{'0' * 64}",
        cookie[:-1],
        cookie + "é",
        other,
    ):
        assert sessions.find(wrong) is None


def test_a_session_ends_an_hour_after_it_began() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session, cookie = sessions.begin(ALICE, "token")
    clock.now += LIFETIME_S
    assert not sessions.lives(session)
    assert sessions.find(cookie) is None
    assert len(sessions) == 0


def test_who_signs_out_is_out() -> None:
    sessions = Sessions(Clock())
    session, cookie = sessions.begin(ALICE, "token")
    sessions.leave_note(session, "said")
    sessions.end(session)
    assert sessions.find(cookie) is None
    assert sessions.take_note(session) == ""
    sessions.leave_note(session, "too late")
    assert sessions.take_note(session) == ""


def test_a_note_is_given_once() -> None:
    sessions = Sessions(Clock())
    session, _ = sessions.begin(ALICE, "token")
    sessions.leave_note(session, "job/a is held")
    assert (sessions.take_note(session), sessions.take_note(session)) == ("job/a is held", "")


def test_the_oldest_sessions_of_one_person_make_room() -> None:
    sessions = Sessions(Clock())
    cookies = [sessions.begin(ALICE, "token")[1] for _ in range(25)]
    _, other = sessions.begin(Person("bob"), "token")
    assert [sessions.find(cookie) is not None for cookie in cookies] == [False] * 5 + [True] * 20
    assert sessions.find(other) is not None


def test_the_number_of_sessions_is_bounded() -> None:
    sessions = Sessions(Clock())
    for number in range(2_100):
        sessions.begin(Person(f"p{number}"), "")
    assert len(sessions) == 2_000


def test_who_has_most_sessions_makes_room_with_all_accounts_of_a_namespace_as_one() -> None:
    sessions = Sessions(Clock())
    _, alice = sessions.begin(ALICE, "token")
    cookies = [
        sessions.begin(Person(f"system:serviceaccount:evil:sa{number % 101}"), "token")[1]
        for number in range(2_100)
    ]
    _, bob = sessions.begin(Person("bob"), "token")
    assert sessions.find(alice) is not None
    assert sessions.find(bob) is not None
    assert sessions.find(cookies[0]) is None
    assert len(sessions) == 2_000
