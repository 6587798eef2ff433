from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    GRANTED: _ClassVar[Verdict]
    RESERVED: _ClassVar[Verdict]
    BUSY: _ClassVar[Verdict]
    UNSATISFIABLE: _ClassVar[Verdict]
    INVALID: _ClassVar[Verdict]
VERDICT_UNSPECIFIED: Verdict
GRANTED: Verdict
RESERVED: Verdict
BUSY: Verdict
UNSATISFIABLE: Verdict
INVALID: Verdict

class InitRequest(_message.Message):
    __slots__ = ("policy", "jgf", "nodes", "nodes_given", "call")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    JGF_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_GIVEN_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    policy: str
    jgf: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSpec]
    nodes_given: bool
    call: Call
    def __init__(self, policy: _Optional[str] = ..., jgf: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeSpec, _Mapping]]] = ..., nodes_given: _Optional[bool] = ..., call: _Optional[_Union[Call, _Mapping]] = ...) -> None: ...

class InitResponse(_message.Message):
    __slots__ = ("status", "instance")
    class ResultType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INIT_SUCCESS: _ClassVar[InitResponse.ResultType]
        INIT_ERROR: _ClassVar[InitResponse.ResultType]
        INIT_DENIED: _ClassVar[InitResponse.ResultType]
    INIT_SUCCESS: InitResponse.ResultType
    INIT_ERROR: InitResponse.ResultType
    INIT_DENIED: InitResponse.ResultType
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    status: InitResponse.ResultType
    instance: str
    def __init__(self, status: _Optional[_Union[InitResponse.ResultType, str]] = ..., instance: _Optional[str] = ...) -> None: ...

class MatchRequest(_message.Message):
    __slots__ = ("jobspec", "request", "reservation")
    JOBSPEC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    jobspec: str
    request: str
    reservation: bool
    def __init__(self, jobspec: _Optional[str] = ..., request: _Optional[str] = ..., reservation: _Optional[bool] = ...) -> None: ...

class MatchResponse(_message.Message):
    __slots__ = ("allocation", "jobid", "reserved", "at", "overhead", "status")
    class ResultType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MATCH_SUCCESS: _ClassVar[MatchResponse.ResultType]
        MATCH_ERROR: _ClassVar[MatchResponse.ResultType]
        MATCH_DENIED: _ClassVar[MatchResponse.ResultType]
    MATCH_SUCCESS: MatchResponse.ResultType
    MATCH_ERROR: MatchResponse.ResultType
    MATCH_DENIED: MatchResponse.ResultType
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    JOBID_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    allocation: str
    jobid: int
    reserved: bool
    at: int
    overhead: float
    status: MatchResponse.ResultType
    def __init__(self, allocation: _Optional[str] = ..., jobid: _Optional[int] = ..., reserved: _Optional[bool] = ..., at: _Optional[int] = ..., overhead: _Optional[float] = ..., status: _Optional[_Union[MatchResponse.ResultType, str]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("jobID",)
    JOBID_FIELD_NUMBER: _ClassVar[int]
    jobID: int
    def __init__(self, jobID: _Optional[int] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("jobID", "error", "status")
    class ResultType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CANCEL_SUCCESS: _ClassVar[CancelResponse.ResultType]
        CANCEL_REQUEST_ERROR: _ClassVar[CancelResponse.ResultType]
        CANCEL_ERROR: _ClassVar[CancelResponse.ResultType]
        CANCEL_DENIED: _ClassVar[CancelResponse.ResultType]
    CANCEL_SUCCESS: CancelResponse.ResultType
    CANCEL_REQUEST_ERROR: CancelResponse.ResultType
    CANCEL_ERROR: CancelResponse.ResultType
    CANCEL_DENIED: CancelResponse.ResultType
    JOBID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    jobID: int
    error: int
    status: CancelResponse.ResultType
    def __init__(self, jobID: _Optional[int] = ..., error: _Optional[int] = ..., status: _Optional[_Union[CancelResponse.ResultType, str]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("now", "epoch", "instance")
    NOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    now: int
    epoch: int
    instance: str
    def __init__(self, now: _Optional[int] = ..., epoch: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class NodeSpec(_message.Message):
    __slots__ = ("name", "levels", "pools", "properties", "down")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    name: str
    levels: _containers.RepeatedCompositeFieldContainer[Level]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    properties: _containers.ScalarMap[str, str]
    down: bool
    def __init__(self, name: _Optional[str] = ..., levels: _Optional[_Iterable[_Union[Level, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., properties: _Optional[_Mapping[str, str]] = ..., down: _Optional[bool] = ...) -> None: ...

class Level(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("type", "total", "vertex_size")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    VERTEX_SIZE_FIELD_NUMBER: _ClassVar[int]
    type: str
    total: int
    vertex_size: int
    def __init__(self, type: _Optional[str] = ..., total: _Optional[int] = ..., vertex_size: _Optional[int] = ...) -> None: ...

class NodeShare(_message.Message):
    __slots__ = ("node", "slots", "amounts", "exclusive")
    class SlotsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class AmountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    node: str
    slots: _containers.ScalarMap[str, int]
    amounts: _containers.ScalarMap[str, int]
    exclusive: bool
    def __init__(self, node: _Optional[str] = ..., slots: _Optional[_Mapping[str, int]] = ..., amounts: _Optional[_Mapping[str, int]] = ..., exclusive: _Optional[bool] = ...) -> None: ...

class Shortage(_message.Message):
    __slots__ = ("type", "wanted", "available", "level", "constraint")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    type: str
    wanted: int
    available: int
    level: str
    constraint: str
    def __init__(self, type: _Optional[str] = ..., wanted: _Optional[int] = ..., available: _Optional[int] = ..., level: _Optional[str] = ..., constraint: _Optional[str] = ...) -> None: ...

class MatchResult(_message.Message):
    __slots__ = ("verdict", "jobid", "at", "end", "shares", "reason", "shortages", "allocation", "blocked_by")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    JOBID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SHORTAGES_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    jobid: int
    at: int
    end: int
    shares: _containers.RepeatedCompositeFieldContainer[NodeShare]
    reason: str
    shortages: _containers.RepeatedCompositeFieldContainer[Shortage]
    allocation: str
    blocked_by: str
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., jobid: _Optional[int] = ..., at: _Optional[int] = ..., end: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[NodeShare, _Mapping]]] = ..., reason: _Optional[str] = ..., shortages: _Optional[_Iterable[_Union[Shortage, _Mapping]]] = ..., allocation: _Optional[str] = ..., blocked_by: _Optional[str] = ...) -> None: ...

class MatchBatchRequest(_message.Message):
    __slots__ = ("call", "jobs", "with_allocation", "stop_at_first_failure", "yielding", "trial", "without", "without_parts")
    CALL_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WITH_ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    STOP_AT_FIRST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    YIELDING_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PARTS_FIELD_NUMBER: _ClassVar[int]
    call: Call
    jobs: _containers.RepeatedCompositeFieldContainer[JobRequest]
    with_allocation: bool
    stop_at_first_failure: bool
    yielding: _containers.RepeatedScalarFieldContainer[int]
    trial: bool
    without: _containers.RepeatedScalarFieldContainer[int]
    without_parts: _containers.RepeatedCompositeFieldContainer[CancelPart]
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[JobRequest, _Mapping]]] = ..., with_allocation: _Optional[bool] = ..., stop_at_first_failure: _Optional[bool] = ..., yielding: _Optional[_Iterable[int]] = ..., trial: _Optional[bool] = ..., without: _Optional[_Iterable[int]] = ..., without_parts: _Optional[_Iterable[_Union[CancelPart, _Mapping]]] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("jobid", "jobspec", "reserve", "explain", "exclude", "duration", "improve", "policy", "latest_nodes", "min_slots", "not_before", "waits_since")
    JOBID_FIELD_NUMBER: _ClassVar[int]
    JOBSPEC_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    IMPROVE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LATEST_NODES_FIELD_NUMBER: _ClassVar[int]
    MIN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WAITS_SINCE_FIELD_NUMBER: _ClassVar[int]
    jobid: int
    jobspec: str
    reserve: bool
    explain: bool
    exclude: _containers.RepeatedScalarFieldContainer[str]
    duration: int
    improve: bool
    policy: str
    latest_nodes: bool
    min_slots: int
    not_before: int
    waits_since: int
    def __init__(self, jobid: _Optional[int] = ..., jobspec: _Optional[str] = ..., reserve: _Optional[bool] = ..., explain: _Optional[bool] = ..., exclude: _Optional[_Iterable[str]] = ..., duration: _Optional[int] = ..., improve: _Optional[bool] = ..., policy: _Optional[str] = ..., latest_nodes: _Optional[bool] = ..., min_slots: _Optional[int] = ..., not_before: _Optional[int] = ..., waits_since: _Optional[int] = ...) -> None: ...

class MatchBatchResponse(_message.Message):
    __slots__ = ("results", "instance", "overhead", "displaced", "overhead_of_each")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_FIELD_NUMBER: _ClassVar[int]
    DISPLACED_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_OF_EACH_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[MatchResult]
    instance: str
    overhead: float
    displaced: _containers.RepeatedScalarFieldContainer[int]
    overhead_of_each: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, results: _Optional[_Iterable[_Union[MatchResult, _Mapping]]] = ..., instance: _Optional[str] = ..., overhead: _Optional[float] = ..., displaced: _Optional[_Iterable[int]] = ..., overhead_of_each: _Optional[_Iterable[float]] = ...) -> None: ...

class ReserveAtRequest(_message.Message):
    __slots__ = ("call", "jobid", "jobspec", "start", "nodes", "policy")
    CALL_FIELD_NUMBER: _ClassVar[int]
    JOBID_FIELD_NUMBER: _ClassVar[int]
    JOBSPEC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    call: Call
    jobid: int
    jobspec: str
    start: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    policy: str
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., jobid: _Optional[int] = ..., jobspec: _Optional[str] = ..., start: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., policy: _Optional[str] = ...) -> None: ...

class SatisfyRequest(_message.Message):
    __slots__ = ("call", "jobspec")
    CALL_FIELD_NUMBER: _ClassVar[int]
    JOBSPEC_FIELD_NUMBER: _ClassVar[int]
    call: Call
    jobspec: str
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., jobspec: _Optional[str] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ("call", "jobid")
    CALL_FIELD_NUMBER: _ClassVar[int]
    JOBID_FIELD_NUMBER: _ClassVar[int]
    call: Call
    jobid: int
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., jobid: _Optional[int] = ...) -> None: ...

class JobInfo(_message.Message):
    __slots__ = ("jobid", "mode", "at", "end", "shares")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[JobInfo.Mode]
        ALLOCATED: _ClassVar[JobInfo.Mode]
        RESERVED: _ClassVar[JobInfo.Mode]
        CANCELED: _ClassVar[JobInfo.Mode]
        SYSTEM: _ClassVar[JobInfo.Mode]
        ADVANCE: _ClassVar[JobInfo.Mode]
    MODE_UNSPECIFIED: JobInfo.Mode
    ALLOCATED: JobInfo.Mode
    RESERVED: JobInfo.Mode
    CANCELED: JobInfo.Mode
    SYSTEM: JobInfo.Mode
    ADVANCE: JobInfo.Mode
    JOBID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    jobid: int
    mode: JobInfo.Mode
    at: int
    end: int
    shares: _containers.RepeatedCompositeFieldContainer[NodeShare]
    def __init__(self, jobid: _Optional[int] = ..., mode: _Optional[_Union[JobInfo.Mode, str]] = ..., at: _Optional[int] = ..., end: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[NodeShare, _Mapping]]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("call", "with_shares")
    CALL_FIELD_NUMBER: _ClassVar[int]
    WITH_SHARES_FIELD_NUMBER: _ClassVar[int]
    call: Call
    with_shares: bool
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., with_shares: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("jobs", "instance")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobInfo]
    instance: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobInfo, _Mapping]]] = ..., instance: _Optional[str] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("call", "per_node")
    CALL_FIELD_NUMBER: _ClassVar[int]
    PER_NODE_FIELD_NUMBER: _ClassVar[int]
    call: Call
    per_node: bool
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., per_node: _Optional[bool] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("instance", "policy", "nodes", "nodes_up", "vertices", "total", "free", "node_use", "allocated_jobs", "reserved_jobs", "now", "epoch")
    class TotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class FreeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_UP_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    NODE_USE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_JOBS_FIELD_NUMBER: _ClassVar[int]
    RESERVED_JOBS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    instance: str
    policy: str
    nodes: int
    nodes_up: int
    vertices: int
    total: _containers.ScalarMap[str, int]
    free: _containers.ScalarMap[str, int]
    node_use: _containers.RepeatedCompositeFieldContainer[NodeUse]
    allocated_jobs: int
    reserved_jobs: int
    now: int
    epoch: int
    def __init__(self, instance: _Optional[str] = ..., policy: _Optional[str] = ..., nodes: _Optional[int] = ..., nodes_up: _Optional[int] = ..., vertices: _Optional[int] = ..., total: _Optional[_Mapping[str, int]] = ..., free: _Optional[_Mapping[str, int]] = ..., node_use: _Optional[_Iterable[_Union[NodeUse, _Mapping]]] = ..., allocated_jobs: _Optional[int] = ..., reserved_jobs: _Optional[int] = ..., now: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class NodeUse(_message.Message):
    __slots__ = ("node", "up", "closed", "total", "used", "jobids")
    class TotalEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    JOBIDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    up: bool
    closed: bool
    total: _containers.ScalarMap[str, int]
    used: _containers.ScalarMap[str, int]
    jobids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., up: _Optional[bool] = ..., closed: _Optional[bool] = ..., total: _Optional[_Mapping[str, int]] = ..., used: _Optional[_Mapping[str, int]] = ..., jobids: _Optional[_Iterable[int]] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("call", "changes")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    call: Call
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("cancel_jobs", "cancel_part", "restore_jobs", "resize_system", "extend_job", "set_node_status", "set_properties", "add_nodes", "remove_nodes", "set_advance_reservations")
    CANCEL_JOBS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PART_FIELD_NUMBER: _ClassVar[int]
    RESTORE_JOBS_FIELD_NUMBER: _ClassVar[int]
    RESIZE_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    EXTEND_JOB_FIELD_NUMBER: _ClassVar[int]
    SET_NODE_STATUS_FIELD_NUMBER: _ClassVar[int]
    SET_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ADD_NODES_FIELD_NUMBER: _ClassVar[int]
    REMOVE_NODES_FIELD_NUMBER: _ClassVar[int]
    SET_ADVANCE_RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    cancel_jobs: CancelJobs
    cancel_part: CancelPart
    restore_jobs: RestoreJobs
    resize_system: ResizeSystem
    extend_job: ExtendJob
    set_node_status: SetNodeStatus
    set_properties: SetProperties
    add_nodes: AddNodes
    remove_nodes: RemoveNodes
    set_advance_reservations: SetAdvanceReservations
    def __init__(self, cancel_jobs: _Optional[_Union[CancelJobs, _Mapping]] = ..., cancel_part: _Optional[_Union[CancelPart, _Mapping]] = ..., restore_jobs: _Optional[_Union[RestoreJobs, _Mapping]] = ..., resize_system: _Optional[_Union[ResizeSystem, _Mapping]] = ..., extend_job: _Optional[_Union[ExtendJob, _Mapping]] = ..., set_node_status: _Optional[_Union[SetNodeStatus, _Mapping]] = ..., set_properties: _Optional[_Union[SetProperties, _Mapping]] = ..., add_nodes: _Optional[_Union[AddNodes, _Mapping]] = ..., remove_nodes: _Optional[_Union[RemoveNodes, _Mapping]] = ..., set_advance_reservations: _Optional[_Union[SetAdvanceReservations, _Mapping]] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("applied", "reason", "failed_index", "excess", "displaced", "instance")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAILED_INDEX_FIELD_NUMBER: _ClassVar[int]
    EXCESS_FIELD_NUMBER: _ClassVar[int]
    DISPLACED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    reason: str
    failed_index: int
    excess: _containers.RepeatedCompositeFieldContainer[SystemShare]
    displaced: _containers.RepeatedScalarFieldContainer[int]
    instance: str
    def __init__(self, applied: _Optional[bool] = ..., reason: _Optional[str] = ..., failed_index: _Optional[int] = ..., excess: _Optional[_Iterable[_Union[SystemShare, _Mapping]]] = ..., displaced: _Optional[_Iterable[int]] = ..., instance: _Optional[str] = ...) -> None: ...

class CancelJobs(_message.Message):
    __slots__ = ("jobids",)
    JOBIDS_FIELD_NUMBER: _ClassVar[int]
    jobids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, jobids: _Optional[_Iterable[int]] = ...) -> None: ...

class CancelPart(_message.Message):
    __slots__ = ("jobid", "shares", "paths")
    JOBID_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    jobid: int
    shares: _containers.RepeatedCompositeFieldContainer[NodeShare]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobid: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[NodeShare, _Mapping]]] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreJobs(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[RestoredJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[RestoredJob, _Mapping]]] = ...) -> None: ...

class RestoredJob(_message.Message):
    __slots__ = ("jobid", "at", "end", "shares", "reserved")
    JOBID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    jobid: int
    at: int
    end: int
    shares: _containers.RepeatedCompositeFieldContainer[NodeShare]
    reserved: bool
    def __init__(self, jobid: _Optional[int] = ..., at: _Optional[int] = ..., end: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[NodeShare, _Mapping]]] = ..., reserved: _Optional[bool] = ...) -> None: ...

class ResizeSystem(_message.Message):
    __slots__ = ("shares",)
    SHARES_FIELD_NUMBER: _ClassVar[int]
    shares: _containers.RepeatedCompositeFieldContainer[SystemShare]
    def __init__(self, shares: _Optional[_Iterable[_Union[SystemShare, _Mapping]]] = ...) -> None: ...

class SystemShare(_message.Message):
    __slots__ = ("node", "amounts")
    class AmountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    amounts: _containers.ScalarMap[str, int]
    def __init__(self, node: _Optional[str] = ..., amounts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ExtendJob(_message.Message):
    __slots__ = ("jobid", "end")
    JOBID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    jobid: int
    end: int
    def __init__(self, jobid: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class SetNodeStatus(_message.Message):
    __slots__ = ("up",)
    class UpEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    UP_FIELD_NUMBER: _ClassVar[int]
    up: _containers.ScalarMap[str, bool]
    def __init__(self, up: _Optional[_Mapping[str, bool]] = ...) -> None: ...

class SetProperties(_message.Message):
    __slots__ = ("nodes",)
    class NodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Properties
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Properties, _Mapping]] = ...) -> None: ...
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.MessageMap[str, Properties]
    def __init__(self, nodes: _Optional[_Mapping[str, Properties]] = ...) -> None: ...

class Properties(_message.Message):
    __slots__ = ("properties",)
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AddNodes(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSpec]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeSpec, _Mapping]]] = ...) -> None: ...

class RemoveNodes(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class SetAdvanceReservations(_message.Message):
    __slots__ = ("reservations",)
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    reservations: _containers.RepeatedCompositeFieldContainer[AdvanceReservation]
    def __init__(self, reservations: _Optional[_Iterable[_Union[AdvanceReservation, _Mapping]]] = ...) -> None: ...

class AdvanceReservation(_message.Message):
    __slots__ = ("name", "nodes", "times", "maintenance")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    times: _containers.RepeatedCompositeFieldContainer[Period]
    maintenance: bool
    def __init__(self, name: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., times: _Optional[_Iterable[_Union[Period, _Mapping]]] = ..., maintenance: _Optional[bool] = ...) -> None: ...

class Period(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
