"""Whether the server may be asked: what the probes say and the drain reads."""

from __future__ import annotations

import datetime as dt

__all__ = ["Readiness"]


class Readiness:
    """What stands between the server and its work.

    Attributes
    ----------
    certificate_ends
        When the certificate being served ends; None while there is none but the makeshift one.
    waiting_for
        What is missing, as a sentence; None when nothing is.
    draining
        Whether the server has been told to end: it still answers, and asks every client to come back to another.
    """

    def __init__(self) -> None:
        self.certificate_ends: dt.datetime | None = None
        self.waiting_for: str | None = "the certificate has not been read yet"
        self.draining = False

    def problem(self, now: dt.datetime) -> str | None:
        """Why no review should be sent here now, or None."""
        if self.draining:
            return "ending: another replica answers"
        if self.waiting_for is not None:
            return self.waiting_for
        if self.certificate_ends is not None and now >= self.certificate_ends:
            return f"the certificate ended at {self.certificate_ends.isoformat()}: no API server accepts it"
        return None
