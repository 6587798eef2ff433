from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetAdvanceReservations,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.messages import (
    AdvanceReservation,
    AppliedChanges,
    CallContext,
    GraphNodeSpec,
    JobInfo,
    JobMatchRequest,
    JobMode,
    Level,
    MatchBatch,
    MatchedAllocation,
    MatchResult,
    MatchVerdict,
    NodeShare,
    NodeUse,
    Pool,
    RestoredJob,
    Shortage,
    Stat,
)
from fluxqueue.fluxion.rpc.apply import ApplyRpc, read_change
from fluxqueue.fluxion.rpc.compatible import CancelRpc, InitRpc, MatchRpc
from fluxqueue.fluxion.rpc.failures import InternalError, InvalidCall
from fluxqueue.fluxion.rpc.matching import MatchBatchRpc, ReserveAtRpc, SatisfyRpc
from fluxqueue.fluxion.rpc.methods import METHODS
from fluxqueue.fluxion.rpc.reports import InfoRpc, ListRpc, StatRpc
from fluxqueue.fluxion.rpc.values import read_call, read_node, write_call
from fluxqueue.proto.v1 import fluxion_pb2 as pb

INT = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=12)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
INTS = st.lists(INT, max_size=3).map(tuple)
COUNTS = st.dictionaries(TEXT, INT, max_size=3)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
SECONDS = st.floats(width=32, allow_nan=False)


def tuples(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


COUNT = st.integers(0, 2**63 - 1)
CALL = st.builds(CallContext, now=st.none() | COUNT, epoch=COUNT, instance=TEXT)
POOL = st.builds(Pool, TEXT, INT, INT.filter(bool))
NODE = st.builds(
    GraphNodeSpec, TEXT, tuples(POOL), tuples(st.builds(Level, TEXT, TEXT)), LABELS, st.booleans()
)
SHARE = st.builds(NodeShare, TEXT, COUNTS, COUNTS, st.booleans())
SYSTEM_SHARE = st.builds(NodeShare, TEXT, st.just({}), COUNTS)
REQUEST = st.builds(JobMatchRequest, TEXT, INT, st.booleans(), st.booleans(), TEXTS, st.none() | INT)
SHORTAGE = st.builds(Shortage, TEXT, INT, INT, TEXT, TEXT)
RESULT = st.builds(
    MatchResult,
    st.sampled_from(MatchVerdict),
    INT,
    INT,
    INT,
    tuples(SHARE),
    TEXT,
    tuples(SHORTAGE),
    TEXT,
    TEXT,
)
BATCH = st.builds(MatchBatch, tuples(RESULT), TEXT, SECONDS)
ALLOCATION = st.builds(MatchedAllocation, INT, TEXT, st.booleans(), INT, SECONDS)
INFO = st.builds(JobInfo, INT, st.sampled_from(JobMode), INT, INT, tuples(SHARE))
RESTORED = st.builds(RestoredJob, INT, tuples(SHARE), INT, INT, st.booleans())
APPLIED = st.builds(
    AppliedChanges, st.booleans(), TEXT, TEXT, INTS, tuples(SYSTEM_SHARE), st.integers(-(2**31), 2**31 - 1)
)
USE = st.builds(NodeUse, TEXT, st.booleans(), st.booleans(), COUNTS, COUNTS, INTS)
STAT = st.builds(Stat, TEXT, TEXT, INT, INT, INT, COUNTS, COUNTS, INT, INT, INT, INT, tuples(USE))
CANCEL = st.builds(CancelJobs, INTS)
CANCEL_PART = st.builds(CancelPart, INT, tuples(SHARE), TEXTS)
RESTORE = st.builds(RestoreJobs, tuples(RESTORED))
RESIZE = st.builds(ResizeSystem, tuples(SYSTEM_SHARE))
EXTEND = st.builds(ExtendJob, INT, INT)
SET_STATUS = st.builds(SetNodeStatus, st.dictionaries(TEXT, st.booleans(), max_size=3))
SET_PROPERTIES = st.builds(SetProperties, st.dictionaries(TEXT, LABELS, max_size=3))
ADD = st.builds(AddNodes, tuples(NODE))
REMOVE = st.builds(RemoveNodes, TEXTS)
ADVANCE = st.builds(AdvanceReservation, TEXT, TEXTS, tuples(st.tuples(INT, INT)), st.booleans())
SET_ADVANCE = st.builds(SetAdvanceReservations, tuples(ADVANCE))
CHANGE = st.one_of(
    CANCEL, CANCEL_PART, RESTORE, RESIZE, EXTEND, SET_STATUS, SET_PROPERTIES, ADD, REMOVE, SET_ADVANCE
)

JOBS = st.lists(REQUEST, max_size=3)
NODES = st.lists(NODE, max_size=3)
FLAG = st.booleans()
INIT = st.builds(InitRpc, TEXT, TEXT, st.none(), st.none() | CALL) | st.builds(
    InitRpc, TEXT, st.none(), NODES, st.none() | CALL
)
RPCS: dict[str, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "Init": (INIT, TEXT.filter(bool)),
    "Match": (st.builds(MatchRpc, TEXT, FLAG), ALLOCATION),
    "Cancel": (st.builds(CancelRpc, INT), st.none()),
    "MatchBatch": (
        st.builds(MatchBatchRpc, JOBS, CALL, FLAG, FLAG, INTS, FLAG, INTS, tuples(CANCEL_PART)),
        BATCH,
    ),
    "ReserveAt": (st.builds(ReserveAtRpc, INT, TEXT, INT, TEXTS, CALL, TEXT), RESULT),
    "Satisfy": (st.builds(SatisfyRpc, TEXT, CALL), RESULT),
    "Info": (st.builds(InfoRpc, INT, CALL), INFO),
    "List": (st.builds(ListRpc, CALL, FLAG), tuples(INFO)),
    "Stat": (st.builds(StatRpc, CALL, FLAG), STAT),
    "Apply": (st.builds(ApplyRpc, st.lists(CHANGE, max_size=4), CALL), APPLIED),
}
"""Calls and answers of every RPC."""


def over_the_wire(message: Message) -> Any:
    return type(message).FromString(message.SerializeToString())


def test_the_table_has_every_rpc() -> None:
    assert RPCS.keys() == METHODS.keys()


@pytest.mark.parametrize("method", RPCS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_call_survives_the_wire(data: st.DataObject, method: str) -> None:
    rpc = data.draw(RPCS[method][0])
    assert type(rpc).read_request(over_the_wire(rpc.checked_request())) == rpc


@pytest.mark.parametrize("method", RPCS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_an_answer_survives_the_wire(data: st.DataObject, method: str) -> None:
    call, answer = RPCS[method]
    rpc, value = data.draw(call), data.draw(answer)
    message = over_the_wire(rpc.write_response(value, "instance-1"))
    assert isinstance(message, rpc.response_type)
    assert rpc.read_response(message) == value


def test_every_kind_of_change_has_its_field_in_the_proto() -> None:
    assert len(Change.__args__) == len(pb.Change.DESCRIPTOR.oneofs_by_name["change"].fields)


def test_a_now_of_0_is_not_the_absence_of_now() -> None:
    assert read_call(over_the_wire(write_call(CallContext(now=0)))).now == 0
    assert read_call(over_the_wire(write_call(CallContext()))).now is None


@pytest.mark.parametrize("message", [pb.Call(now=-1), pb.Call(epoch=-1)])
def test_a_negative_time_or_epoch_is_refused(message: pb.Call) -> None:
    with pytest.raises(InvalidCall, match="is -1"):
        read_call(message)


def test_a_vertex_size_of_0_is_1() -> None:
    assert read_node(pb.NodeSpec(name="n", pools=[pb.Pool(type="gpu", total=4)])).pools == (
        Pool("gpu", 4, 1),
    )


def test_an_answer_with_an_unknown_verdict_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="verdict 0"):
        SatisfyRpc("{}", CallContext()).read_response(pb.MatchResult(jobid=3))


def test_an_info_with_an_unknown_mode_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="mode 0"):
        InfoRpc(3, CallContext()).read_response(pb.JobInfo(jobid=3))


def test_a_change_that_changes_nothing_is_refused() -> None:
    with pytest.raises(InvalidCall, match="names nothing to do"):
        read_change(pb.Change())


def test_a_change_as_a_process_of_before_writes_it_is_refused_and_not_empty() -> None:
    cancel = bytes([0x0A, 3, 0x12, 1, 7])  # its field 1, with the job ids in field 2
    restore = bytes([0x1A, 4, 0x12, 2, 0x08, 7])  # its field 3, with the jobs in field 2
    for written in (cancel, restore):
        with pytest.raises(InvalidCall, match="names nothing to do"):
            read_change(pb.Change.FromString(written))


def test_an_init_of_both_jgf_and_nodes_is_refused() -> None:
    with pytest.raises(InvalidCall, match="both jgf and nodes"):
        InitRpc.read_request(pb.InitRequest(jgf="{}", nodes_given=True))
