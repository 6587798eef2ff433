from __future__ import annotations

from typing import Any

import grpc
import pytest

from fluxqueue.fluxion import calls
from fluxqueue.fluxion.changes import CancelJobs, CancelPart, ExtendJob, RestoreJobs
from fluxqueue.fluxion.errors import FluxionError, InitError, StaleEpoch, UnknownJob, WrongInstance
from fluxqueue.fluxion.failures import (
    DeadlinePassed,
    FluxionUnavailable,
    InternalError,
    InvalidCall,
    MatchFailed,
    Unsupported,
)
from fluxqueue.fluxion.messages import Call, JobRequest, NodeShare, NodeSpec, Pool
from fluxqueue.proto.v1 import fluxion_pb2 as pb

CALL = Call(now=1_700_000_000, epoch=3)
TARGET = "fluxion:4242"
STAT = calls.stat(CALL, False)
MATCH = calls.match("{}", False)
NODES = [NodeSpec("n1", (Pool("cpu", 1000, 100),))]
Status = grpc.StatusCode


def failed(call: calls.Prepared[Any], code: grpc.StatusCode, details: str = "words", **metadata: str) -> FluxionError:
    return calls.failure(call, TARGET, code, details, {key.replace("_", "-"): value for key, value in metadata.items()})


@pytest.mark.parametrize(
    ("call", "idempotent"),
    [
        (calls.init("lonode", "{}", None, Call()), False),
        (MATCH, False),
        (calls.cancel(4), True),
        (calls.match_batch([JobRequest("{}", 1), JobRequest("{}", 2)], CALL, False, False), True),
        (calls.match_batch([JobRequest("{}", 1), JobRequest("{}")], CALL, False, False), False),
        (calls.reserve_at(5, "{}", 9, (), CALL), True),
        (calls.reserve_at(0, "{}", 9, (), CALL), False),
        (calls.partial_cancel(1, [NodeShare("n1", {"s": 1})], (), CALL), False),
        (calls.extend(1, 9, CALL), False),
        (calls.apply([CancelJobs((1,)), RestoreJobs(())], CALL), True),
        (calls.apply([CancelJobs((1,)), CancelPart(2)], CALL), False),
        (calls.apply([ExtendJob(1, 9)], CALL), False),
        (STAT, True),
    ],
    ids=lambda value: value.method if isinstance(value, calls.Prepared) else "",
)
def test_a_call_is_sent_twice_only_where_twice_is_once(call: calls.Prepared[Any], idempotent: bool) -> None:
    assert call.idempotent is idempotent


def test_an_init_without_extensions_is_the_go_clients() -> None:
    assert calls.init("lonode", "{}", None, Call()).request == pb.InitRequest(policy="lonode", jgf="{}")


def test_an_init_takes_one_description_of_the_graph() -> None:
    for jgf, nodes in ((None, None), ("{}", NODES)):
        with pytest.raises(InvalidCall, match="exactly one"):
            calls.init("", jgf, nodes, CALL)


def test_an_empty_cluster_is_a_cluster() -> None:
    request = calls.init("", None, [], CALL).request
    assert isinstance(request, pb.InitRequest)
    assert request.nodes_given


def test_a_server_that_ignored_nodes_is_found_out() -> None:
    with pytest.raises(Unsupported, match="neither nodes nor epochs"):
        calls.init("", None, NODES, CALL).read(pb.InitResponse())


@pytest.mark.parametrize("jobid", [2**63, "seven"])
def test_a_value_that_no_field_holds_is_the_callers_mistake(jobid: Any) -> None:
    with pytest.raises(InvalidCall, match="cannot be written"):
        calls.info(jobid, CALL)


def test_the_name_of_a_refusal_counts_more_than_its_status_code() -> None:
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
        (calls.init("", "{", None, Call()), Status.UNKNOWN, InitError),
        (calls.init("", None, NODES, Call()), Status.UNKNOWN, Unsupported),
        (calls.cancel(1), Status.UNKNOWN, UnknownJob),
    ],
)
def test_a_status_code_becomes_one_class(call: calls.Prepared[Any], code: grpc.StatusCode, kind: type[FluxionError]) -> None:
    assert type(failed(call, code)) is kind


def test_what_the_go_service_lacks_is_named() -> None:
    error = failed(STAT, Status.UNIMPLEMENTED)
    assert str(error) == "the server at fluxion:4242 lacks Stat: the Go service knows Init, Match, Cancel only"


def test_a_match_that_failed_says_why_where_the_server_does() -> None:
    ours = failed(MATCH, Status.UNKNOWN, "[Fluxion] Error", fluxion_reason="no node has 9 cores free")
    assert isinstance(ours, MatchFailed)
    assert ours.reason == "no node has 9 cores free"
    go = failed(MATCH, Status.UNKNOWN, "[Fluxion] Error")
    assert isinstance(go, MatchFailed)
    assert (str(go), go.reason) == ("[Fluxion] Error", "")
