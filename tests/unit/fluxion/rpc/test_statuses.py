from __future__ import annotations

from typing import Any

import grpc
import pytest

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    ExtendJob,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.errors import (
    ClockMixed,
    FluxionError,
    InitError,
    NotInitialised,
    StaleEpoch,
    UnknownJob,
    UnknownPath,
    WrongInstance,
)
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, Pool
from fluxqueue.fluxion.rpc.apply import ApplyRpc
from fluxqueue.fluxion.rpc.compatible import CancelRpc, InitRpc, MatchRpc
from fluxqueue.fluxion.rpc.failures import (
    REFUSALS,
    DeadlinePassed,
    FluxionUnavailable,
    InternalError,
    InvalidCall,
    MatchFailed,
    Unsupported,
)
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc, ReserveAtRpc
from fluxqueue.fluxion.rpc.reports import InfoRpc, StatRpc
from fluxqueue.fluxion.rpc.requests import Rpc
from fluxqueue.fluxion.rpc.statuses import failure_of, status_of
from fluxqueue.proto.v1 import fluxion_pb2 as pb

CALL = CallContext(now=1_700_000_000, epoch=3)
TARGET = "fluxion:4242"
STAT = StatRpc(CALL)
MATCH = MatchRpc("{}")
NODES = [GraphNodeSpec("n1", (Pool("cpu", 1000, 100),))]
Status = grpc.StatusCode


def failed(call: Rpc[Any], code: grpc.StatusCode, details: str = "words", **metadata: str) -> FluxionError:
    return failure_of(
        call, TARGET, code, details, {key.replace("_", "-"): value for key, value in metadata.items()}
    )


@pytest.mark.parametrize(
    ("call", "idempotent"),
    [
        (InitRpc("lonode", "{}", None), False),
        (MATCH, False),
        (CancelRpc(4), True),
        (MatchBatchRpc([JobMatchRequest("{}", 1), JobMatchRequest("{}", 2)], CALL), True),
        (MatchBatchRpc([JobMatchRequest("{}", 1), JobMatchRequest("{}")], CALL), False),
        (ReserveAtRpc(5, "{}", 9, (), CALL), True),
        (ReserveAtRpc(0, "{}", 9, (), CALL), False),
        (ApplyRpc([CancelJobs((1,)), RestoreJobs(())], CALL), True),
        (ApplyRpc([CancelJobs((1,)), CancelPart(2)], CALL), False),
        (ApplyRpc([ExtendJob(1, 9)], CALL), False),
        (ApplyRpc([SetNodeStatus({})], CALL), True),
        (ApplyRpc([AddNodes(NODES)], CALL), False),
        (ApplyRpc([ResizeSystem(())], CALL), False),
        (ApplyRpc([SetProperties({})], CALL), False),
        (STAT, True),
    ],
    ids=lambda value: value.method if isinstance(value, Rpc) else "",
)
def test_a_call_is_idempotent_only_if_repeating_it_is_harmless(call: Rpc[Any], idempotent: bool) -> None:
    assert call.idempotent is idempotent


def test_an_init_without_extensions_is_that_of_the_go_client() -> None:
    assert InitRpc("lonode", "{}", None).write_request() == pb.InitRequest(policy="lonode", jgf="{}")


def test_an_init_takes_one_description_of_the_graph() -> None:
    for jgf, nodes in ((None, None), ("{}", NODES)):
        with pytest.raises(InvalidCall, match="exactly one"):
            InitRpc("", jgf, nodes, CALL)


def test_an_init_of_no_nodes_marks_them_as_given() -> None:
    request = InitRpc("", None, [], CALL).write_request()
    assert isinstance(request, pb.InitRequest)
    assert request.nodes_given


def test_an_init_whose_nodes_were_ignored_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="neither nodes nor epochs"):
        InitRpc("", None, NODES, CALL).read_response(pb.InitResponse())


@pytest.mark.parametrize("jobid", [2**63, "seven"])
def test_a_value_that_no_field_holds_is_an_invalid_call(jobid: Any) -> None:
    with pytest.raises(InvalidCall, match="cannot be written"):
        InfoRpc(jobid, CALL).checked_request()


def test_the_name_of_a_refusal_overrides_its_status_code() -> None:
    assert isinstance(failed(STAT, Status.FAILED_PRECONDITION, fluxion_error="stale-epoch"), StaleEpoch)
    assert isinstance(failed(STAT, Status.ABORTED, fluxion_error="wrong-instance"), WrongInstance)


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        (STAT, Status.UNAVAILABLE, FluxionUnavailable),
        (STAT, Status.DEADLINE_EXCEEDED, DeadlinePassed),
        (STAT, Status.UNIMPLEMENTED, Unsupported),
        (STAT, Status.INVALID_ARGUMENT, InvalidCall),
        (STAT, Status.RESOURCE_EXHAUSTED, InvalidCall),
        (STAT, Status.UNKNOWN, InternalError),
        (STAT, Status.INTERNAL, InternalError),
        (STAT, Status.FAILED_PRECONDITION, InternalError),
        (MATCH, Status.UNKNOWN, MatchFailed),
        (InitRpc("", "{", None), Status.UNKNOWN, InitError),
        (InitRpc("", None, NODES), Status.UNKNOWN, Unsupported),
        (CancelRpc(1), Status.UNKNOWN, UnknownJob),
    ],
)
def test_a_status_code_becomes_one_class(
    call: Rpc[Any], code: grpc.StatusCode, kind: type[FluxionError]
) -> None:
    assert type(failed(call, code)) is kind


def test_an_unimplemented_call_names_what_the_go_service_knows() -> None:
    error = failed(STAT, Status.UNIMPLEMENTED)
    assert (
        str(error) == "the server at fluxion:4242 lacks Stat: the Go service knows Init, Match, Cancel only"
    )


def test_a_failed_match_has_the_reason_of_the_server() -> None:
    ours = failed(MATCH, Status.UNKNOWN, "[Fluxion] Error", fluxion_reason="no node has 9 cores free")
    assert isinstance(ours, MatchFailed)
    assert ours.reason == "no node has 9 cores free"
    go = failed(MATCH, Status.UNKNOWN, "[Fluxion] Error")
    assert isinstance(go, MatchFailed)
    assert (str(go), go.reason) == ("[Fluxion] Error", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotInitialised("x"), Status.FAILED_PRECONDITION),
        (StaleEpoch("x"), Status.FAILED_PRECONDITION),
        (ClockMixed("x"), Status.FAILED_PRECONDITION),
        (WrongInstance("x"), Status.ABORTED),
        (InvalidCall("x"), Status.INVALID_ARGUMENT),
        (UnknownJob("x"), Status.NOT_FOUND),
        (UnknownPath("x"), Status.NOT_FOUND),
    ],
)
def test_a_refusal_has_a_code_and_its_name_in_the_metadata(
    error: FluxionError, code: grpc.StatusCode
) -> None:
    status = status_of(STAT, error)
    assert status is not None
    assert status.code is code
    assert REFUSALS[dict(status.metadata)["fluxion-error"]] is type(error)


@pytest.mark.parametrize(
    ("wanted", "compatible"),
    [
        (pb.InitRequest(policy="lonode", jgf="{}"), True),
        (pb.InitRequest(nodes_given=True), False),
        (pb.InitRequest(nodes=[pb.NodeSpec(name="a")]), False),
        (pb.InitRequest(jgf="{}", call=pb.Call()), False),
    ],
)
def test_an_init_with_any_extension_fails_with_a_code_of_its_own(
    wanted: pb.InitRequest, compatible: bool
) -> None:
    init = InitRpc.read_request(wanted)
    assert init.compatible is compatible
    status = status_of(init, InitError("policy foo"))
    assert status is not None
    assert status.code is (Status.UNKNOWN if compatible else Status.INVALID_ARGUMENT)
    assert ("fluxion-reason", "policy foo") in status.metadata or status.details == "policy foo"


def test_a_failed_match_has_the_words_of_the_go_service_and_a_printable_reason() -> None:
    status = status_of(MATCH, MatchFailed("ignored", "no\nnode\thas 9 cöres"))
    assert status is not None
    assert (status.code, status.details) == (Status.UNKNOWN, "[Fluxion] Error in ReapiCliMatchAllocate")
    assert status.metadata == (("fluxion-reason", "no node has 9 c\\xf6res"),)


def test_a_long_sentence_is_cut_at_a_whole_character() -> None:
    status = status_of(STAT, InvalidCall("ö" * 5_000))
    assert status is not None
    assert status.details == "ö" * 1_000 + " ..."


def test_an_error_that_no_call_should_end_in_has_no_status() -> None:
    assert status_of(STAT, FluxionError("odd")) is None
