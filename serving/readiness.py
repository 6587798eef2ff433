"""Readiness of a server: the state that its probes report and its drain sets."""

from __future__ import annotations

import datetime as dt

__all__ = ["Readiness"]


class Readiness:
    """Whether a server is ready, and why not.

    Parameters
    ----------
    client
        The client that would refuse an expired certificate, for the message.

    Attributes
    ----------
    certificate_ends
        Expiry of the served certificate; None while only the placeholder is served.
    waiting_for
        What is missing, as a sentence; None if nothing is.
    refused_by_itself
        Why a call of the server to itself was not verified; None if it was, or if none is made.
    draining
        True once the server is stopping. It still answers, and asks every client to connect to another
        replica.
    """

    def __init__(self, client: str = "API server") -> None:
        self._client = client
        self.certificate_ends: dt.datetime | None = None
        self.waiting_for: str | None = "the certificate has not been read yet"
        self.refused_by_itself: str | None = None
        self.draining = False

    def problem(self, now: dt.datetime) -> str | None:
        """Return why no request should be sent here now, or None."""
        if self.draining:
            return "ending: another replica answers"
        if self.waiting_for is not None:
            return self.waiting_for
        if self.certificate_ends is not None and now >= self.certificate_ends:
            return (
                f"the certificate ended at {self.certificate_ends.isoformat()}: no {self._client} accepts it"
            )
        return self.refused_by_itself
