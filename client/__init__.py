"""The Python client: submit work to the queue, wait for it, edit it,
and run functions on the cluster (docs/client.md).
"""

from __future__ import annotations

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.client.async_client import AsyncClient
from fluxqueue.client.async_workloads import AsyncWorkload
from fluxqueue.client.builders import Job, MiniCluster, Pod, PodGroup
from fluxqueue.client.errors import (
    CallNotLoaded,
    CallTooLarge,
    ExecutorBroken,
    FluxQueueError,
    FluxRefused,
    InvalidWork,
    LogsUnavailable,
    NameTaken,
    NoCluster,
    NoSuchWork,
    NotInstalled,
    NotManaged,
    NotPermitted,
    NotPossible,
    OutcomeUnknown,
    Refused,
    RemoteError,
    ResultUnreadable,
    SubmissionFailed,
    WaitTimeout,
    WorkCancelled,
    WorkerDied,
    WorkFailed,
    WorkGone,
)
from fluxqueue.client.executor import FluxQueueExecutor, FluxQueueFuture
from fluxqueue.client.explanations import Explanation
from fluxqueue.client.flux_executor import FluxExecutor, FluxFuture
from fluxqueue.client.flux_instances import AsyncFlux, AsyncFluxTask, FluxNodes, FluxOptions, FluxTaskStatus
from fluxqueue.client.handles import Handle
from fluxqueue.client.histories import HistoryListing, PastWork
from fluxqueue.client.listings import JobListing, ListedJob, ListedQueue, QueueListing
from fluxqueue.client.nodes import ListedNode, NodeListing
from fluxqueue.client.podlogs import LogLine
from fluxqueue.client.progress import Progress
from fluxqueue.client.statuses import WorkStatus
from fluxqueue.client.sync_client import Client, Workload
from fluxqueue.client.sync_flux import Flux, FluxTask
from fluxqueue.client.task_manifests import TaskPods
from fluxqueue.client.terms import Terms, ended, failed, ok, started

__all__ = [
    "AsyncClient",
    "AsyncFlux",
    "AsyncFluxTask",
    "AsyncWorkload",
    "CallNotLoaded",
    "CallTooLarge",
    "Client",
    "ExecutorBroken",
    "Explanation",
    "Flux",
    "FluxExecutor",
    "FluxFuture",
    "FluxNodes",
    "FluxOptions",
    "FluxQueueError",
    "FluxQueueExecutor",
    "FluxQueueFuture",
    "FluxRefused",
    "FluxTask",
    "FluxTaskStatus",
    "Handle",
    "HistoryListing",
    "InvalidWork",
    "Job",
    "JobListing",
    "ListedJob",
    "ListedNode",
    "ListedQueue",
    "LogLine",
    "LogsUnavailable",
    "MiniCluster",
    "NameTaken",
    "NoCluster",
    "NoSuchWork",
    "NodeListing",
    "NotInstalled",
    "NotManaged",
    "NotPermitted",
    "NotPossible",
    "OutcomeUnknown",
    "PastWork",
    "Pod",
    "PodGroup",
    "Progress",
    "QueueListing",
    "Reason",
    "Refused",
    "RemoteError",
    "ResultUnreadable",
    "State",
    "SubmissionFailed",
    "TaskPods",
    "Terms",
    "WaitTimeout",
    "WorkCancelled",
    "WorkFailed",
    "WorkGone",
    "WorkStatus",
    "WorkerDied",
    "Workload",
    "ended",
    "failed",
    "ok",
    "started",
]
