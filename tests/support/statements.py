"""Fails where a FluxJob says what is not so for longer than two seconds, while a test runs
(`statement_claims` has what it may say).

A thread compares FluxJobs with the cluster and with the tables of the queue about four times a second. What
is false must be false in each picture for the whole time, and in one that is read then. Time in which no
queue leads, or it misses a service, does not count, nor the moments after it. So a program that a test stops
says nothing false. On a slow or busy machine, more time passes before anything counts.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from support.loop_blocks import delays
from support.statement_claims import False_, false_claims
from support.statement_pictures import Picture, PictureReader

from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.inprocess import InProcessCluster

__all__ = ["Patience", "StatementChecker", "statements_checked"]

LIMIT_S = 2.0
_EVERY_S = 0.25
_MOST_OF_A_STEP_S = 0.5
"""A longer time between two pictures counts as this: what was true in between is not known."""
_SETTLES_S = 5.0
"""After another process leads, or a service came back."""
_BUSY = 2
"""After a picture the thread pauses for this many times as long as that took,
so that it costs little on a busy machine."""
_UNSEEN = "nothing was read yet"


@dataclass
class Patience:
    """Counts for how long each claim has been false without a break.

    Attributes
    ----------
    limit_s
        For how long a claim may be false, beside what it is granted itself.
    """

    limit_s: float
    _false_s: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def note(self, found: Sequence[False_], passed_s: float) -> list[False_]:
        """Take what is false in the next picture, this long after the one before;
        return what is false for too long.
        """
        step_s = min(passed_s, _MOST_OF_A_STEP_S)
        self._false_s = {
            each.key: self._false_s[each.key] + step_s if each.key in self._false_s else 0.0 for each in found
        }
        return [
            each
            for each in found
            if self._false_s[each.key] > self.limit_s + each.extra_s * max(self.limit_s / LIMIT_S, 1.0)
        ]

    def forget(self) -> None:
        """Begin again."""
        self._false_s.clear()


class StatementChecker:
    """Compares statements in a thread of its own.

    Parameters
    ----------
    reader
        Reads pictures.
    namespace
        Whose work is judged.
    limit_s
        None: that of the environment (``STATEMENT_LIMIT_S``, to look for what is false for a shorter time),
        else `LIMIT_S` times the slowness of this machine and its load.

    Attributes
    ----------
    found
        What was false for too long, by claim and work.
    pictures
        How many were judged.
    """

    def __init__(self, reader: PictureReader, namespace: str | None, limit_s: float | None = None) -> None:
        self.found: dict[tuple[str, str], False_] = {}
        self.pictures = 0
        self._reader = reader
        self._namespace = namespace
        self._limit_s = (
            float(os.environ["STATEMENT_LIMIT_S"])
            if limit_s is None and "STATEMENT_LIMIT_S" in os.environ
            else limit_s
        )
        self._patience = Patience(LIMIT_S)
        self._life: object | None = _UNSEEN
        self._quiet_until = 0.0
        self._last = time.monotonic()
        self._ends = threading.Event()
        self._error = ""
        self._thread = threading.Thread(target=self._run, name="statements", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._ends.set()
        self._thread.join(timeout=60)

    def look(self) -> None:
        """Read one picture, and judge it."""
        now = time.monotonic()
        passed_s, self._last = now - self._last, now
        life = self._reader.leader_life()
        if life is None or self._life not in (_UNSEEN, life):
            self._quiet_until = now + _SETTLES_S
        self._life = life
        if now < self._quiet_until:
            self._patience.forget()
            return
        self._patience.limit_s = LIMIT_S * delays() if self._limit_s is None else self._limit_s
        overdue = self._patience.note(self._false(self._reader.read()), passed_s)
        self.pictures += 1
        if not overdue:
            return
        still = {each.key for each in self._false(self._reader.read())}
        if self._reader.leader_life() == life:
            for each in overdue:
                if each.key in still:
                    self.found.setdefault((each.claim, each.uid), each)

    def assert_true(self) -> None:
        """Fail with what was false for too long, or if the checker failed by itself."""
        assert not self._error, f"statements are not checked any more: {self._error}"
        assert not self.found, self.report

    @property
    def report(self) -> str:
        """What was false for too long, in lines."""
        return "FluxJobs said what was not so:\n" + "\n".join(map(str, self.found.values()))

    def _false(self, picture: Picture) -> list[False_]:
        return list(false_claims(picture, self._namespace))

    def _run(self) -> None:
        try:
            self._look_often()
        except Exception:
            self._error = traceback.format_exc()
        finally:
            self._reader.close()

    def _look_often(self) -> None:
        while not self._ends.is_set():
            began = time.monotonic()
            try:
                self.look()
            except (OSError, http.client.HTTPException, ApiServerError, psycopg.Error):
                # a part of the cluster is away
                self._reader.close()
                self._patience.forget()
                self._quiet_until = time.monotonic() + _SETTLES_S
            self._ends.wait(max(_EVERY_S, _BUSY * (time.monotonic() - began)))


@contextmanager
def statements_checked(cluster: InProcessCluster, namespace: str | None = None) -> Iterator[StatementChecker]:
    """Check what FluxJobs of a namespace, or of all, say; fail at the end.
    If the test failed by itself, that is noted with its failure.
    """
    checker = StatementChecker(PictureReader(cluster), namespace)
    checker.start()
    try:
        yield checker
    except BaseException as error:
        checker.stop()
        if checker.found:
            error.add_note(checker.report)
        raise
    checker.stop()
    checker.assert_true()
