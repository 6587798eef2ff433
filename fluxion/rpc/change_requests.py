"""What the RPCs have in common that change the graph.

Each kind of change has one message, which serves twice: as the request of an RPC of its own, and as a step of
an Apply. Only the request carries time and epoch; a step has those of its Apply.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from fluxqueue.fluxion.changes import Change
from fluxqueue.fluxion.messages import AppliedChanges, CallContext
from fluxqueue.fluxion.rpc.requests import Answer, Rpc
from fluxqueue.fluxion.rpc.values import read_applied, read_call, write_applied, write_call
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = ["ChangeRpc", "StepRpc"]


@dataclass(frozen=True, slots=True)
class StepRpc(Rpc[Answer]):
    """One change, as a call of its own.

    Attributes
    ----------
    change_type
        Class of the change.
    step
        Name of its field in the message of a step.
    repeatable
        True if making the change twice leaves the graph as once.
    """

    change_type: ClassVar[type[Any]]
    step: ClassVar[str]
    repeatable: ClassVar[bool] = True

    change: Any
    call: CallContext

    @property
    def idempotent(self) -> bool:
        """True if the change is repeatable."""
        return self.repeatable

    @staticmethod
    @abstractmethod
    def write_change(change: Any, call: pb.Call | None = None) -> Message:
        """Write a change, with ``call`` as a request, without it as a step."""

    @staticmethod
    @abstractmethod
    def read_change(message: Any) -> Change:
        """Read a change from a request or a step."""

    def write_request(self) -> Message:
        """Write the request."""
        return self.write_change(self.change, write_call(self.call))

    @classmethod
    def read_request(cls, message: Any) -> Self:
        """Read the request."""
        return cls(cls.read_change(message), read_call(message.call))


class ChangeRpc(StepRpc[AppliedChanges]):
    """One change that answers with what it did."""

    __slots__ = ()

    response_type: ClassVar[type[Message]] = pb.ChangeResponse

    def read_response(self, message: Any) -> AppliedChanges:
        """Read what the change did."""
        return read_applied(message)

    def write_response(self, answer: AppliedChanges, instance: str) -> Message:
        """Write what the change did."""
        return write_applied(answer)
