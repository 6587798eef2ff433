"""AppWrapper (``workload.codeflare.dev/v1beta2``): the pods of its components are one gang, unless a
component is one by itself.

Its controller writes the name of the AppWrapper on every pod template of every component. How many pods a
component has is in its ``podSets``: in the spec if the user wrote it, else in the status, where the
controller puts what it found in the wrapped object. A component without pods (a Service, a Secret) has none.

A component that is a gang of its own (a Job, a JobSet, a PyTorchJob, a RayCluster) starts as such, with its
own roles and minimum. Its pods do not count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fluxqueue.api.bounds import max_pods
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod
from fluxqueue.queue.model.sources.gang_sources import (
    ANY_ROLE,
    Gang,
    GangSource,
    InvalidGang,
    Resource,
    Role,
    SizedObject,
    named,
    whole_number,
)

__all__ = ["APP_WRAPPERS"]

_GROUP, _KIND = "workload.codeflare.dev", "AppWrapper"
_LABEL = "workload.codeflare.dev/appwrapper"
_GANGS = frozenset(
    {"Job", "JobSet", "TrainJob", "MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"}
    | {"RayCluster", "RayJob", "RayService", "SparkApplication", "LeaderWorkerSet", "MiniCluster"}
)
"""Kinds of components that start by themselves."""
_OVER = frozenset({"Succeeded", "Failed", "Terminating", "Suspending", "Suspended"})


class _PodSet(PartialObject, frozen=True):
    replicas: int | None = None


class _Template(PartialObject, frozen=True):
    kind: str = ""


class _Component(PartialObject, frozen=True):
    pod_sets: list[_PodSet] | None = None
    template: _Template = _Template()


class _Spec(PartialObject, frozen=True):
    suspend: bool | None = None
    components: list[_Component] | None = None


class _Status(PartialObject, frozen=True):
    phase: str = ""
    component_status: list[_Component] | None = None


class _AppWrapper(SizedObject, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return named(pod.metadata.label(_LABEL))


def _read(_pods: Sequence[Pod], wrapper: _AppWrapper) -> Gang:
    stated, found = wrapper.spec.components or [], wrapper.status.component_status or []
    size = 0
    for number, component in enumerate(stated):
        if component.template.kind in _GANGS:
            continue
        path, sets = f"spec.components[{number}]", component.pod_sets
        if not sets and number < len(found):
            path, sets = f"status.componentStatus[{number}]", found[number].pod_sets
        size += sum(_sizes(sets or (), path))
    if not size:
        raise InvalidGang(
            "neither spec.components nor status.componentStatus says how many pods it has: "
            "write podSets with replicas"
        )
    if size > max_pods():
        raise InvalidGang(f"it asks for {size} pods: at most {max_pods()} start as one, so make it smaller")
    over = wrapper.status.phase in _OVER
    return Gang(
        (Role(ANY_ROLE, size),),
        active=not (over or wrapper.spec.suspend or wrapper.metadata.deletion_timestamp),
    )


def _sizes(sets: Iterable[_PodSet], path: str) -> list[int]:
    return [
        whole_number(each.replicas, f"{path}.podSets[{number}].replicas", least=0, default=1)
        for number, each in enumerate(sets)
    ]


APP_WRAPPERS = GangSource(
    name="appwrapper",
    api_version=f"{_GROUP}/v1beta2",
    kind=_KIND,
    group_of=_group_of,
    read=_read,
    marks=frozenset({_LABEL}),
    resource=Resource(_GROUP, "appwrappers", _KIND, ("v1beta2",), _AppWrapper),
)
