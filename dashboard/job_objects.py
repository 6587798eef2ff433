"""What a page shows of one job beyond its FluxJob: its object, pods, what they use, and Events, read in the
name of the person.

Each part may be refused or missing without the others. Everything is bounded, because anybody may write long
Events and large objects: how many bytes an answer has here, and how much of it is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson
import yaml

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.names import CONTROLLER_UID_LABEL, JOBID_LABEL
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.cli.pod_metrics import PodUse
from fluxqueue.dashboard.loop_shares import measured
from fluxqueue.dashboard.pod_use import read_pod_use
from fluxqueue.dashboard.viewers import not_in_his_name
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, TooLong
from fluxqueue.kube.kinds import EVENTS, FLUXJOBS, JOBS, MINICLUSTERS, PODS, Kind
from fluxqueue.kube.transport import Api

__all__ = ["JobObjects", "ObjectEvent", "has_pod", "read_objects"]

_KINDS: Final[dict[str, Kind[Any]]] = {"Job": JOBS, "Pod": PODS, "MiniCluster": MINICLUSTERS}
_MOST_PODS: Final = 500
_MOST_POD_BYTES: Final = 8 * 2**20
"""Of a page of pods; of longer ones, fewer are read."""
_MOST_MIB: Final = 4
"""Of any other answer."""
_MOST_EVENTS: Final = 50
_LONGEST_YAML: Final = 100_000
_LARGEST_YAML: Final = 20_000
_MOST_YAML_VALUES: Final = 2_000
"""Bytes, and values, of an object that is still written as YAML: each value takes 10 to 20 microseconds."""
_MOST_YAML_KEPT: Final = 256
_LONGEST_MESSAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event, with its last time as it is written."""

    at: str
    type: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class JobObjects:
    """What could be read; ``problems`` has a sentence for each part that could not.
    Pods and Events that could not are None; ``use`` is None if no pod runs.
    """

    pods: Sequence[Pod] | None = None
    use: PodUse | None = None
    events: Sequence[ObjectEvent] | None = None
    documents: Sequence[tuple[str, str]] = ()
    template: PodSpec | None = None
    problems: Sequence[str] = ()


class _Series(PartialObject, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class _Event(PartialObject, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    first_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None


class _Events(PartialObject, frozen=True):
    items: tuple[_Event, ...] = ()


async def read_objects(api: Api, job: FluxJob) -> JobObjects:
    """Read everything about one job in the name of the person whose client this is."""
    problems: list[str] = []
    (pods, use), events, own, theirs = await asyncio.gather(
        _pods_and_use(api, job, problems),
        _guarded(_events(api, job), "its Events", problems),
        _guarded(
            _document(api, FLUXJOBS, job.metadata.name, job.metadata.namespace), "the FluxJob", problems
        ),
        _guarded(_user_object(api, job), "its object", problems),
    )
    documents = [document for document in (theirs, own) if document is not None]
    return JobObjects(
        pods,
        use,
        events,
        [(title, text) for title, text, _ in documents],
        theirs[2] if theirs is not None else None,
        problems,
    )


async def _guarded(reading: Any, what: str, problems: list[str]) -> Any:
    try:
        return await measured(reading)
    except Forbidden as error:
        why = not_in_his_name(error)
        problems.append(
            f"{what[0].upper()}{what[1:]} cannot be read: {why}." if why else f"You may not read {what}."
        )
    except NotFound:
        problems.append(f"{what[0].upper()}{what[1:]} cannot be found: it may have been deleted.")
    except TooLong:
        problems.append(
            f"{what[0].upper()}{what[1:]} cannot be shown: the API server's answer is too long, "
            f"with more than {_MOST_MIB} MiB."
        )
    except (RecursionError, orjson.JSONEncodeError):
        problems.append(f"{what[0].upper()}{what[1:]} cannot be shown: it is nested too deeply.")
    except (ApiError, msgspec.MsgspecError, orjson.JSONDecodeError) as error:
        problems.append(f"{what[0].upper()}{what[1:]} cannot be read: {str(error)[:_LONGEST_MESSAGE]}")
    return None


async def _pods_and_use(
    api: Api, job: FluxJob, problems: list[str]
) -> tuple[Sequence[Pod] | None, PodUse | None]:
    pods = await _guarded(_pods(api, job), "its pods", problems)
    if pods is None:
        return None, PodUse(unknown="its pods cannot be read")
    return pods, await measured(read_pod_use(api, job.metadata.namespace, pods))


async def _pods(api: Api, job: FluxJob) -> Sequence[Pod]:
    ref, namespace = job.spec.object_ref, job.metadata.namespace
    if ref.kind == "Pod":
        named = f"metadata.name={ref.name}"
        found = await api.page(PODS, namespace, field_selector=named, most_bytes=_MOST_POD_BYTES)
        return [pod for pod in found.items if pod.metadata.uid == ref.uid]
    if ref.kind == "Job":
        selector = f"{CONTROLLER_UID_LABEL}={ref.uid}"
    elif job.status.jobid is not None:
        selector = f"{JOBID_LABEL}={job.status.jobid}"
    else:
        return []
    found = await api.page(
        PODS, namespace, label_selector=selector, limit=_MOST_PODS, most_bytes=_MOST_POD_BYTES
    )
    return found.items


def has_pod(job: FluxJob, pod: Pod) -> bool:
    """True if a pod is one of those that the page of a job shows."""
    ref, meta = job.spec.object_ref, pod.metadata
    if ref.kind == "Pod":
        return meta.uid == ref.uid
    if ref.kind == "Job":
        return bool(ref.uid) and meta.label(CONTROLLER_UID_LABEL) == ref.uid
    return job.status.jobid is not None and meta.label(JOBID_LABEL) == str(job.status.jobid)


async def _answer(api: Api, path: str, query: dict[str, str] | None = None) -> bytes:
    return await api.request("GET", path, query=query, most_bytes=_MOST_MIB * 2**20)


async def _events(api: Api, job: FluxJob) -> Sequence[ObjectEvent]:
    query = {"fieldSelector": f"involvedObject.uid={job.spec.object_ref.uid}", "limit": "500"}
    path = EVENTS.path(job.metadata.namespace)
    found = msgspec.json.decode(await _answer(api, path, query), type=_Events)
    events = [_shown(event) for event in found.items]
    events.sort(key=lambda event: event.at, reverse=True)
    return events[:_MOST_EVENTS]


def _shown(event: _Event) -> ObjectEvent:
    series = event.series
    at = (
        (series.last_observed_time if series else None)
        or event.last_timestamp
        or event.event_time
        or event.first_timestamp
        or ""
    )
    count = (series.count if series else 0) or event.count or 1
    return ObjectEvent(at, event.type, event.reason, event.message[:_LONGEST_MESSAGE], count)


async def _user_object(api: Api, job: FluxJob) -> tuple[str, str, PodSpec | None] | None:
    ref = job.spec.object_ref
    kind = _KINDS.get(ref.kind)
    return await _document(api, kind, ref.name, job.metadata.namespace, ref.uid) if kind is not None else None


async def _document(
    api: Api, kind: Kind[Any], name: str, namespace: str, uid: str = ""
) -> tuple[str, str, PodSpec | None]:
    """Return title and YAML of an object, and its pod spec if it has one."""
    found = orjson.loads(await _answer(api, kind.path(namespace, name)))
    meta = found.get("metadata", {})
    if uid and meta.get("uid") != uid:
        raise NotFound(404, "NotFound", f"{kind.kind} {name} is another one by now")
    meta.pop("managedFields", None)
    text = _written(found)
    if len(text) > _LONGEST_YAML:
        text = f"{text[:_LONGEST_YAML]}\n# ... it is longer\n"
    return f"{kind.kind} {name}", text, _template(kind, found)


def _written(found: dict[str, Any]) -> str:
    """Return an object as YAML; a large one as JSON, which is YAML too,
    because to write YAML takes seconds of everybody's time.
    """
    data = orjson.dumps(found)
    if len(data) > _LARGEST_YAML or _has_more_values(found, _MOST_YAML_VALUES):
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
    return _as_yaml(data)


@lru_cache(_MOST_YAML_KEPT)
def _as_yaml(data: bytes) -> str:
    """Return JSON as YAML, kept because an open page asks again and again."""
    return yaml.safe_dump(orjson.loads(data), sort_keys=False, allow_unicode=True, width=120)


def _has_more_values(found: Any, most: int) -> bool:
    waiting, count = [found], 0
    while waiting and count <= most:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return count > most


def _template(kind: Kind[Any], found: dict[str, Any]) -> PodSpec | None:
    spec = found.get("spec") or {}
    part = spec if kind is PODS else (spec.get("template") or {}).get("spec") if kind is JOBS else None
    try:
        return msgspec.convert(part, PodSpec) if part is not None else None
    except msgspec.ValidationError:
        return None
