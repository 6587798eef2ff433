"""What every RPC of the service describes about itself.

One class per RPC, in one of the modules `compatible`, `matching`, `reports` and `apply`. An instance is one
call with its arguments. The class holds everything that is particular to the RPC: how the arguments and the
answer travel, what the engine does, whether a repeated attempt is harmless, and how an answer is undone that
never reached its caller. The clients, the in-process matcher and the service contain no RPC of their own:
they send, run and answer any `Rpc`.

A new RPC needs its messages in the proto file, its class in one of these modules, and its method in
`fluxqueue.fluxion.rpc.interface`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

from google.protobuf.message import Message

from fluxqueue.fluxion.rpc.failures import InvalidCall

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine
    from fluxqueue.fluxion.errors import FluxionError

__all__ = ["SERVICE", "Answer", "Rpc"]

SERVICE: Final = "fluxion.FluxionService"

Answer = TypeVar("Answer")


class Rpc(ABC, Generic[Answer]):
    """One call of an RPC, with its arguments as attributes.

    Attributes
    ----------
    method
        Name of the RPC in the proto file.
    request_type, response_type
        Classes of its messages.
    can_undo
        True if `undo` takes back an answer that could not be delivered. False where repeating or ignoring the
        answer is harmless.
    """

    __slots__ = ()

    method: ClassVar[str]
    request_type: ClassVar[type[Message]]
    response_type: ClassVar[type[Message]]
    can_undo: ClassVar[bool] = False

    @classmethod
    def path(cls) -> str:
        """Return the path of the RPC on the wire."""
        return f"/{SERVICE}/{cls.method}"

    @property
    def idempotent(self) -> bool:
        """True if the call may be sent again when no answer arrived:
        carried out twice, it leaves graph and answer as carried out once.
        """
        return True

    @property
    def compatible(self) -> bool:
        """True if the Go service knows this request, so that it must fail with the words of the Go
        service.
        """
        return False

    # ---- the client's side ---------------------------------------------------------------------------------

    @abstractmethod
    def write_request(self) -> Message:
        """Return the arguments as a message."""

    @abstractmethod
    def read_response(self, message: Any) -> Answer:
        """Return the answer that a message holds."""

    def checked_request(self) -> Message:
        """Return the arguments as a message.

        Raises
        ------
        InvalidCall
            A value does not fit its field.
        """
        try:
            return self.write_request()
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidCall(f"the request cannot be written as a message: {error}") from None

    def failure_of_unknown(self, target: str, details: str, reason: str) -> FluxionError | None:
        """Return what status UNKNOWN means for this RPC; None if nothing in particular."""
        return None

    # ---- the service's side --------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def read_request(cls, message: Any) -> Self:
        """Return the call that a message asks for; `InvalidCall` if a field makes no sense."""

    @abstractmethod
    def run(self, engine: Engine) -> Answer:
        """Carry the call out."""

    @abstractmethod
    def write_response(self, answer: Answer, instance: str) -> Message:
        """Return the answer as a message.

        Parameters
        ----------
        instance
            Instance id of the graph that answered.
        """

    def undo(self, engine: Engine, answer: Answer) -> None:
        """Take back what the answer granted under an id that its caller never learnt."""

    def verdicts(self, answer: Answer) -> Iterable[str]:
        """Return the verdicts in an answer, to be counted."""
        return ()
