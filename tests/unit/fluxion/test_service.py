from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message

from fluxqueue.fluxion.errors import ClockMixed, FluxionError, InitError, NotInitialised, StaleEpoch, UnknownJob, UnknownPath, WrongInstance
from fluxqueue.fluxion.failures import REFUSALS, InvalidCall, MatchFailed
from fluxqueue.fluxion.handlers import HANDLERS, is_compatible
from fluxqueue.fluxion.service import status_of
from fluxqueue.proto.v1 import fluxion_pb2 as pb

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotInitialised("x"), Code.FAILED_PRECONDITION),
        (StaleEpoch("x"), Code.FAILED_PRECONDITION),
        (ClockMixed("x"), Code.FAILED_PRECONDITION),
        (WrongInstance("x"), Code.ABORTED),
        (InvalidCall("x"), Code.INVALID_ARGUMENT),
        (UnknownJob("x"), Code.NOT_FOUND),
        (UnknownPath("x"), Code.NOT_FOUND),
    ],
)
def test_a_refusal_has_a_code_and_its_name_beside(error: FluxionError, code: grpc.StatusCode) -> None:
    status = status_of("Stat", pb.StatRequest(), error)
    assert status is not None
    assert status.code is code
    assert REFUSALS[dict(status.metadata)["fluxion-error"]] is type(error)


@pytest.mark.parametrize(
    ("request_", "compatible"),
    [
        (pb.InitRequest(policy="lonode", jgf="{}"), True),
        (pb.InitRequest(nodes_given=True), False),
        (pb.InitRequest(nodes=[pb.NodeSpec(name="a")]), False),
        (pb.InitRequest(jgf="{}", call=pb.Call()), False),
    ],
)
def test_an_init_with_any_extension_fails_with_a_code_of_its_own(request_: pb.InitRequest, compatible: bool) -> None:
    assert is_compatible("Init", request_) is compatible
    status = status_of("Init", request_, InitError("policy foo"))
    assert status is not None
    assert status.code is (Code.UNKNOWN if compatible else Code.INVALID_ARGUMENT)
    assert ("fluxion-reason", "policy foo") in status.metadata or status.details == "policy foo"


def test_a_failed_match_speaks_like_the_original_and_its_reason_is_printable() -> None:
    status = status_of("Match", pb.MatchRequest(), MatchFailed("ignored", "no\nnode\thas 9 cöres"))
    assert status is not None
    assert (status.code, status.details) == (Code.UNKNOWN, "[Fluxion] Error in ReapiCliMatchAllocate")
    assert status.metadata == (("fluxion-reason", "no node has 9 c\\xf6res"),)


def test_a_long_sentence_is_cut_at_a_whole_character() -> None:
    status = status_of("Stat", pb.StatRequest(), InvalidCall("ö" * 5_000))
    assert status is not None
    assert status.details == "ö" * 1_000 + " ..."


def test_an_error_that_no_call_should_end_in_has_no_status() -> None:
    assert status_of("Stat", pb.StatRequest(), FluxionError("odd")) is None


def test_every_rpc_of_the_proto_has_a_handler_for_its_request() -> None:
    methods = pb.DESCRIPTOR.services_by_name["FluxionService"].methods_by_name
    described: dict[str, str] = {name: method.input_type.full_name for name, method in methods.items()}
    handled: dict[str, str] = {name: _name(handler.request) for name, handler in HANDLERS.items()}
    assert handled == described


def _name(request: type[Message]) -> str:
    return str(request.DESCRIPTOR.full_name)
