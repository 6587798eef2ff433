"""What a pod's status says, computed from the states of its containers: phase, conditions and container
statuses.

The rules of the phase are those of the kubelet (``getPhase`` of pkg/kubelet/kubelet_pods.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fluxqueue.local.kubelet.restarts import restarts_after
from fluxqueue.local.kubelet.specs import Container, PodObject

__all__ = [
    "ContainerRecord",
    "Ended",
    "Running",
    "Waiting",
    "format_time",
    "former_end",
    "former_state",
    "pod_phase",
    "pod_status",
]

_REPLACE = {"$patch": "replace"}
"""In a list of a strategic merge patch: what was there before goes."""


@dataclass(frozen=True)
class Waiting:
    """It does not run yet, or not at present."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """It runs."""

    since: datetime


@dataclass(frozen=True)
class Ended:
    """It has ended."""

    exit_code: int
    reason: str
    since: datetime
    until: datetime
    message: str = ""
    container_id: str = ""


def former_state(pod: PodObject, container: str) -> Mapping[str, Any]:
    """Return the state of a container that a former agent has run; empty if none has."""
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    state = next((each.state or {} for each in statuses if each.name == container), {})
    return state if state.keys() & {"running", "terminated"} else {}


def former_end(state: Mapping[str, Any], now: datetime) -> Ended:
    """Return the end of a container of a former agent, from its last state:
    one that is known stays, since it may not change.
    """
    known = state.get("terminated")
    if known is None:
        return Ended(137, "ContainerStatusUnknown", now, now, "its end was not seen")
    since, until = (
        datetime.fromisoformat(known[name]) if known.get(name) else now
        for name in ("startedAt", "finishedAt")
    )
    return Ended(
        int(known["exitCode"]),
        known.get("reason", ""),
        since,
        until,
        known.get("message", ""),
        known.get("containerID", ""),
    )


@dataclass
class ContainerRecord:
    """What is known of a container.

    Attributes
    ----------
    state, last
        Its state, and the end before the present run.
    started, ready
        Results of its startup and readiness probes.
    restarts
        How often it was started again.
    final
        True if it does not start again.
    """

    container: Container
    state: Waiting | Running | Ended = field(default_factory=lambda: Waiting("PodInitializing"))
    last: Ended | None = None
    started: bool = False
    ready: bool = False
    restarts: int = 0
    container_id: str = ""
    final: bool = False


def format_time(moment: datetime) -> str:
    """Return a time as the API server writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_phase(
    pod: PodObject, init: Sequence[ContainerRecord], main: Sequence[ContainerRecord], *, over: bool
) -> str:
    """Return the phase; ``over`` says that nothing of the pod starts again."""
    regular = [each for each in init if each.container.restart_policy != "Always"]
    for each in regular:
        ended = _last_end(each)
        if (
            ended is not None
            and ended.exit_code != 0
            and not restarts_after(each.container, pod.spec.restart_policy, ended.exit_code)
        ):
            return "Failed"
    ends = [_last_end(each) for each in main]
    running = any(isinstance(each.state, Running) for each in main)
    if over and not running:
        return (
            "Succeeded" if ends and all(end is not None and end.exit_code == 0 for end in ends) else "Failed"
        )
    if any(not (isinstance(each.state, Ended) and each.state.exit_code == 0) for each in regular):
        return "Pending"
    if any(end is None and not isinstance(each.state, Running) for each, end in zip(main, ends, strict=True)):
        return "Pending"
    if running or any(_comes_again(pod, each, end) for each, end in zip(main, ends, strict=True)):
        return "Running"
    return "Succeeded" if all(end is not None and end.exit_code == 0 for end in ends) else "Failed"


def _comes_again(pod: PodObject, record: ContainerRecord, end: Ended | None) -> bool:
    return end is not None and restarts_after(record.container, pod.spec.restart_policy, end.exit_code)


def _last_end(record: ContainerRecord) -> Ended | None:
    if isinstance(record.state, Ended):
        return record.state
    return record.last if isinstance(record.state, Waiting) else None


def pod_status(
    pod: PodObject,
    init: Sequence[ContainerRecord],
    main: Sequence[ContainerRecord],
    *,
    pod_ip: str,
    host_ip: str,
    started: datetime,
    over: bool,
    before: Mapping[str, tuple[bool, str]],
    now: datetime,
) -> dict[str, Any]:
    """Return the status of a pod, for a strategic merge patch.

    Parameters
    ----------
    pod, init, main
        The pod and the records of its containers.
    pod_ip, host_ip, started
        Its address, that of its node, and when it arrived there.
    over
        True if nothing of it starts again.
    before
        The conditions that were written last, with the times of their last changes.
    now
        The time of what changes.
    """
    phase = pod_phase(pod, init, main, over=over)
    ended = phase in ("Succeeded", "Failed")
    initialized = all(_passed(each) for each in init)
    ready = (
        not ended
        and bool(main)
        and all(
            each.ready for each in (*main, *(one for one in init if one.container.restart_policy == "Always"))
        )
    )
    held = {each.type for each in pod.status.conditions or () if each.status == "True"}
    gates = all(gate.condition_type in held for gate in pod.spec.readiness_gates or ())
    values = {
        "PodReadyToStartContainers": not ended,
        "Initialized": initialized,
        "ContainersReady": ready,
        "Ready": ready and gates,
    }
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [_condition(*each, reason, before, now) for each in values.items()],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}, _REPLACE],
        "startTime": format_time(started),
        "containerStatuses": [_container_status(each) for each in main],
    }
    if pod_ip:
        status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}, _REPLACE]}
    if init:
        status["initContainerStatuses"] = [_container_status(each) for each in init]
    return status


def _condition(
    kind: str, value: bool, reason: str | None, before: Mapping[str, tuple[bool, str]], now: datetime
) -> dict[str, Any]:
    was = before.get(kind)
    waits_for = "ContainersNotInitialized" if kind == "Initialized" else "ContainersNotReady"
    return {
        "type": kind,
        "status": str(value),
        "lastTransitionTime": was[1] if was is not None and was[0] == value else format_time(now),
        "reason": None if value else reason or waits_for,
        "message": None,
    }


def _passed(record: ContainerRecord) -> bool:
    if record.container.restart_policy == "Always":
        return record.started or isinstance(record.state, Ended)
    return isinstance(record.state, Ended) and record.state.exit_code == 0


def _container_status(record: ContainerRecord) -> dict[str, Any]:
    return {
        "name": record.container.name,
        "image": record.container.image,
        "imageID": "",
        "ready": record.ready,
        "started": record.started,
        "restartCount": record.restarts,
        "containerID": record.container_id or None,
        "state": _state(record.state),
        "lastState": {"terminated": _terminated(record.last)} if record.last is not None else {},
    }


def _state(state: Waiting | Running | Ended) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {
            "waiting": {
                "reason": state.reason,
                **({"message": state.message[:1024]} if state.message else {}),
            }
        }
    if isinstance(state, Running):
        return {"running": {"startedAt": format_time(state.since)}}
    return {"terminated": _terminated(state)}


def _terminated(ended: Ended) -> dict[str, Any]:
    result: dict[str, Any] = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": format_time(ended.since),
        "finishedAt": format_time(ended.until),
    }
    if ended.message:
        result["message"] = ended.message
    if ended.container_id:
        result["containerID"] = ended.container_id
    return result
