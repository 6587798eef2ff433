from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.fluxion import convert
from fluxqueue.fluxion.changes import (
    AddNodes,
    CancelJobs,
    CancelPart,
    Change,
    ExtendJob,
    RemoveNodes,
    ResizeSystem,
    RestoreJobs,
    SetNodeStatus,
    SetProperties,
)
from fluxqueue.fluxion.failures import InternalError, InvalidCall
from fluxqueue.fluxion.messages import (
    Allocation,
    Applied,
    Call,
    JobInfo,
    JobRequest,
    Level,
    MatchBatch,
    MatchResult,
    Mode,
    NodeShare,
    NodeSpec,
    NodeUse,
    Pool,
    RestoredJob,
    Shortage,
    Stat,
    Verdict,
)
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


CALL = st.builds(Call, now=st.none() | INT, epoch=INT, instance=TEXT)
POOL = st.builds(Pool, TEXT, INT, INT.filter(bool))
NODE = st.builds(NodeSpec, TEXT, tuples(POOL), tuples(st.builds(Level, TEXT, TEXT)), LABELS, st.booleans())
SHARE = st.builds(NodeShare, TEXT, COUNTS, COUNTS, st.booleans())
SYSTEM_SHARE = st.builds(NodeShare, TEXT, st.just({}), COUNTS)
REQUEST = st.builds(JobRequest, TEXT, INT, st.booleans(), st.booleans(), TEXTS, st.none() | INT)
SHORTAGE = st.builds(Shortage, TEXT, INT, INT, TEXT, TEXT)
RESULT = st.builds(MatchResult, st.sampled_from(Verdict), INT, INT, INT, tuples(SHARE), TEXT, tuples(SHORTAGE), TEXT)
BATCH = st.builds(MatchBatch, tuples(RESULT), TEXT, SECONDS)
ALLOCATION = st.builds(Allocation, INT, TEXT, st.booleans(), INT, SECONDS)
INFO = st.builds(JobInfo, INT, st.sampled_from(Mode), INT, INT, tuples(SHARE))
RESTORED = st.builds(RestoredJob, INT, tuples(SHARE), INT, INT, st.booleans())
APPLIED = st.builds(Applied, st.booleans(), TEXT, TEXT, INTS, tuples(SYSTEM_SHARE))
WHOLLY_APPLIED = st.builds(Applied, st.booleans(), TEXT, TEXT, INTS, tuples(SYSTEM_SHARE), st.integers(-(2**31), 2**31 - 1))
EXTENDED = st.builds(Applied, st.booleans(), TEXT, TEXT, INTS)
USE = st.builds(NodeUse, TEXT, st.booleans(), st.booleans(), COUNTS, COUNTS, INTS)
STAT = st.builds(Stat, TEXT, TEXT, INT, INT, INT, COUNTS, COUNTS, INT, INT, INT, INT, tuples(USE))
CHANGE = st.one_of(
    st.builds(CancelJobs, INTS),
    st.builds(CancelPart, INT, tuples(SHARE), TEXTS),
    st.builds(RestoreJobs, tuples(RESTORED)),
    st.builds(ResizeSystem, tuples(SYSTEM_SHARE)),
    st.builds(ExtendJob, INT, INT),
    st.builds(SetNodeStatus, st.dictionaries(TEXT, st.booleans(), max_size=3)),
    st.builds(SetProperties, st.dictionaries(TEXT, LABELS, max_size=3)),
    st.builds(AddNodes, tuples(NODE)),
    st.builds(RemoveNodes, TEXTS),
)


def over_the_wire(message: Message) -> Any:
    return type(message).FromString(message.SerializeToString())


PAIRS: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], Message], Callable[[Any], Any]]] = [
    ("call", CALL, convert.put_call, convert.get_call),
    ("node", NODE, convert.put_node, convert.get_node),
    ("share", SHARE, convert.put_share, convert.get_share),
    ("system share", SYSTEM_SHARE, convert.put_system_share, convert.get_system_share),
    ("job request", REQUEST, convert.put_job_request, convert.get_job_request),
    ("result", RESULT, convert.put_result, convert.get_result),
    ("batch", BATCH, convert.put_batch, convert.get_batch),
    ("allocation", ALLOCATION, convert.put_allocation, convert.get_allocation),
    ("info", INFO, convert.put_info, convert.get_info),
    ("restored job", RESTORED, convert.put_restored, convert.get_restored),
    ("change", CHANGE, convert.put_change, convert.get_change),
    ("change response", APPLIED, convert.put_change_response, convert.get_applied),
    ("resize response", APPLIED, convert.put_resize_response, convert.get_applied),
    ("extend response", EXTENDED, convert.put_extend_response, convert.get_applied),
    ("apply response", WHOLLY_APPLIED, convert.put_apply_response, convert.get_apply_response),
    ("stat", STAT, convert.put_stat, convert.get_stat),
]


@pytest.mark.parametrize(("values", "put", "get"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_value_survives_the_wire(
    data: st.DataObject, values: st.SearchStrategy[Any], put: Callable[[Any], Message], get: Callable[[Any], Any]
) -> None:
    value = data.draw(values)
    assert get(over_the_wire(put(value))) == value


@settings(max_examples=30, deadline=None)
@given(changes=st.lists(CHANGE, max_size=4), call=CALL)
def test_an_apply_keeps_its_changes_in_order(changes: list[Change], call: Call) -> None:
    request = over_the_wire(convert.put_apply(changes, convert.put_call(call)))
    assert [convert.get_change(change) for change in request.changes] == changes
    assert convert.get_call(request.call) == call


def test_every_kind_of_change_has_its_field_in_the_proto() -> None:
    assert len(Change.__args__) == len(pb.Change.DESCRIPTOR.oneofs_by_name["change"].fields)


def test_a_now_of_0_is_not_the_absence_of_now() -> None:
    assert convert.get_call(over_the_wire(convert.put_call(Call(now=0)))).now == 0
    assert convert.get_call(over_the_wire(convert.put_call(Call()))).now is None


def test_a_vertex_size_of_0_is_1() -> None:
    assert convert.get_node(pb.NodeSpec(name="n", pools=[pb.Pool(type="gpu", total=4)])).pools == (Pool("gpu", 4, 1),)


def test_a_call_of_its_own_carries_time_and_epoch_and_a_step_does_not() -> None:
    call = convert.put_call(Call(now=5, epoch=2))
    assert convert.put_extend(ExtendJob(1, 9), call).call.now == 5
    assert not convert.put_change(ExtendJob(1, 9)).extend.HasField("call")


def test_an_answer_without_a_verdict_is_not_taken_for_one() -> None:
    with pytest.raises(InternalError, match="verdict 0"):
        convert.get_result(pb.MatchResult(jobid=3))


def test_an_info_without_a_mode_is_not_taken_for_one() -> None:
    with pytest.raises(InternalError, match="mode 0"):
        convert.get_info(pb.JobInfo(jobid=3))


def test_a_change_that_changes_nothing_is_refused() -> None:
    with pytest.raises(InvalidCall, match="names nothing to do"):
        convert.get_change(pb.Change())
