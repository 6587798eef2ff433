from __future__ import annotations

import itertools
import threading

from fluxqueue.local.supervision import RestartBackoff, Supervisor


def restarts_until(backoff: RestartBackoff, end: float, step: float = 0.25) -> list[float]:
    """When something that never lives is started again."""
    return [now for now in (step * tick for tick in range(int(end / step))) if backoff.may_restart(now)]


def test_the_first_restart_comes_at_once_and_each_later_one_takes_longer() -> None:
    moments = restarts_until(RestartBackoff(), 130)
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert moments[0] == 0
    assert [round(pause) for pause in pauses[:7]] == [1, 2, 4, 5, 5, 5, 5]


def test_what_lived_for_a_minute_is_started_at_once_again() -> None:
    backoff = RestartBackoff()
    restarts_until(backoff, 20)
    before = backoff.restarts
    assert backoff.may_restart(200)
    assert backoff.restarts == before + 1


class Thing:
    name = "thing"

    def __init__(self) -> None:
        self.dead = True
        self.failures = 1
        self.tended = 0
        self.lives = threading.Event()

    def died(self) -> bool:
        return self.dead

    def revive(self) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no port")
        self.dead = False

    def tend(self) -> None:
        self.tended += 1
        if not self.dead:
            self.lives.set()


def test_a_failed_restart_is_reported_and_retried_and_the_others_are_supervised() -> None:
    message: list[str] = []
    thing, other = Thing(), Thing()
    other.dead = False
    supervisor = Supervisor([thing, other], message.append, interval_s=0.01)
    supervisor.start()
    assert thing.lives.wait(20)
    supervisor.stop()
    assert message == [
        "thing ended: starting it again (restart 1)",
        "thing: no port",
        "thing ended: starting it again (restart 2)",
    ]
    assert supervisor.restarts("thing") == 2
    assert other.tended > 0
