"""Telling people what happens to their objects (skeleton: signatures are final, bodies follow)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fluxqueue.kube.kinds import Kind, T
from fluxqueue.kube.transport import Api

__all__ = ["Recorder", "Severity", "Subject"]


class Severity(enum.StrEnum):
    """The ``type`` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class Subject:
    """The object an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: Kind[T], obj: T) -> Subject:
        """The subject that a decoded object is."""
        meta = obj.metadata
        return cls(kind.api_version, kind.kind, meta.namespace, meta.name, meta.uid)


class Recorder:
    """Sends Events in the background."""

    def __init__(self, api: Api, *, instance: str) -> None:
        raise NotImplementedError

    def record(self, subject: Subject, reason: str, message: str, *, severity: Severity = Severity.NORMAL) -> None:
        """Say something about an object; never waits, never raises."""
        raise NotImplementedError

    async def run(self) -> None:
        """Send until cancelled."""
        raise NotImplementedError
