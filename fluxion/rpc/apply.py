"""Apply: several changes of jobs and nodes, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fluxqueue.fluxion.changes import Change
from fluxqueue.fluxion.messages import AppliedChanges, CallContext
from fluxqueue.fluxion.rpc import job_changes, topology
from fluxqueue.fluxion.rpc.change_requests import StepRpc
from fluxqueue.fluxion.rpc.failures import InvalidCall
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.values import read_call, read_system_shares, write_call, write_system_share
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["RPCS", "ApplyRpc", "read_step", "write_step"]

_STEPS: Final[tuple[type[StepRpc[Any]], ...]] = (*job_changes.RPCS, *topology.RPCS)
_BY_TYPE: Final = {step.change_type: step for step in _STEPS}
_BY_FIELD: Final[dict[str | None, type[StepRpc[Any]]]] = {step.step: step for step in _STEPS}


@dataclass(frozen=True, slots=True)
class ApplyRpc(Rpc[AppliedChanges]):
    """Make all changes or none."""

    method = "Apply"
    request_type = pb.ApplyRequest
    response_type = pb.ApplyResponse

    changes: Sequence[Change]
    call: CallContext

    @property
    def idempotent(self) -> bool:
        """True if every change is repeatable."""
        return all(_BY_TYPE[type(change)].repeatable for change in self.changes)

    def write_request(self) -> pb.ApplyRequest:
        """Write the request."""
        return pb.ApplyRequest(
            call=write_call(self.call), changes=[write_step(change) for change in self.changes]
        )

    def read_response(self, message: pb.ApplyResponse) -> AppliedChanges:
        """Read what the changes did."""
        excess = read_system_shares(message.excess)
        return AppliedChanges(
            message.applied,
            message.instance,
            message.reason,
            tuple(message.displaced),
            excess,
            message.failed_index,
        )

    @classmethod
    def read_request(cls, message: pb.ApplyRequest) -> Self:
        """Read the request."""
        return cls([read_step(change) for change in message.changes], read_call(message.call))

    def run(self, engine: Engine) -> AppliedChanges:
        """Make the changes."""
        return engine.apply(self.changes, self.call)

    def write_response(self, answer: AppliedChanges, instance: str) -> pb.ApplyResponse:
        """Write what the changes did."""
        return pb.ApplyResponse(
            applied=answer.done,
            reason=answer.reason,
            failed_index=answer.failed_index,
            excess=[write_system_share(share) for share in answer.excess],
            displaced=answer.displaced,
            instance=answer.instance,
        )


def write_step(change: Change) -> pb.Change:
    """Write one step of an Apply."""
    rpc = _BY_TYPE[type(change)]
    return pb.Change(**{rpc.step: rpc.write_change(change)})  # type: ignore[arg-type]  # the field's name decides the message


def read_step(message: pb.Change) -> Change:
    """Read one step of an Apply.

    Raises
    ------
    InvalidCall
        The step is empty, or of a kind newer than this program.
    """
    field = message.WhichOneof("change")
    rpc = _BY_FIELD.get(field)
    if field is None or rpc is None:
        raise InvalidCall(
            "a change of Apply names nothing to do: set one of its fields, for example cancel or restore"
        )
    return rpc.read_change(getattr(message, field))


RPCS: Final[tuple[type[Rpc[Any]], ...]] = (ApplyRpc,)
