"""SparkApplication of the Spark Operator (``sparkoperator.k8s.io/v1beta2``): the driver and the executors
that it states are one gang.

The driver creates its executors once it runs, so they cannot be waited for. Slots for them are matched with
the driver and kept. Their number is ``executor.instances``, or with dynamic allocation ``minExecutors``.
Their size follows from the application as Spark itself computes it: cores, memory, and a part of the memory
on top. Executors of another size, and those beyond the number, are matched one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Container, Pod, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration
from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    GangSource,
    InvalidGang,
    Resource,
    Role,
    SizedObject,
    limited,
    named,
    whole_number,
)

__all__ = ["SPARK_APPLICATIONS"]

_GROUP, _KIND = "sparkoperator.k8s.io", "SparkApplication"
_NAME, _ROLE = "sparkoperator.k8s.io/app-name", "spark-role"
_DRIVER, _EXECUTOR = "driver", "executor"
_LEAST_OVERHEAD_MIB = 384
_UNITS_MIB = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
_MEMORY = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_OVER = frozenset({"COMPLETED", "FAILED", "SUBMISSION_FAILED", "INVALIDATING"})


class _Gpu(PartialObject, frozen=True):
    name: str = ""
    quantity: int = 0


class _Executor(PartialObject, frozen=True):
    instances: int | None = None
    cores: int | None = None
    core_request: str | None = None
    memory: str = "1g"
    memory_overhead: str | None = None
    gpu: _Gpu | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration] | None = None


class _DynamicAllocation(PartialObject, frozen=True):
    enabled: bool = False
    min_executors: int | None = None


class _Spec(PartialObject, frozen=True):
    type: str = ""
    executor: _Executor = _Executor()
    dynamic_allocation: _DynamicAllocation | None = None
    memory_overhead_factor: str | None = None
    node_selector: dict[str, str] | None = None
    suspend: bool | None = None


class _ApplicationState(PartialObject, frozen=True):
    state: str = ""


class _Status(PartialObject, frozen=True):
    application_state: _ApplicationState = _ApplicationState()


class _SparkApplication(SizedObject, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _group_of(pod: Pod, _job: Job | None) -> str | None:
    return named(pod.metadata.label(_NAME)) if pod.metadata.label(_ROLE) in (_DRIVER, _EXECUTOR) else None


def _role_of(pod: Pod) -> str:
    return pod.metadata.label(_ROLE) or _EXECUTOR


def _read(_pods: Sequence[Pod], application: _SparkApplication) -> Gang:
    spec = application.spec
    dynamic = spec.dynamic_allocation
    if dynamic is not None and dynamic.enabled:
        executors = whole_number(
            dynamic.min_executors, "spec.dynamicAllocation.minExecutors", least=0, default=0
        )
    else:
        executors = whole_number(spec.executor.instances, "spec.executor.instances", least=0, default=1)
    roles = [Role(_DRIVER, 1)]
    if executors:
        roles.append(Role(_EXECUTOR, executors, later=PodTemplateSpec(spec=_executor_spec(spec))))
    over = application.status.application_state.state in _OVER
    return Gang(
        limited(roles, None, ""), active=not (over or spec.suspend or application.metadata.deletion_timestamp)
    )


def _executor_spec(spec: _Spec) -> PodSpec:
    """Return the part of an executor's pod that matching depends on."""
    executor = spec.executor
    memory = _mib(executor.memory, "spec.executor.memory")
    if executor.memory_overhead is not None:
        overhead = _mib(executor.memory_overhead, "spec.executor.memoryOverhead")
    else:
        overhead = max(math.floor(memory * _overhead_factor(spec)), _LEAST_OVERHEAD_MIB)
    amounts: dict[str, str | int | float] = {
        "cpu": executor.core_request or str(executor.cores or 1),
        "memory": f"{memory + overhead}Mi",
    }
    devices: dict[str, str | int | float] = (
        {executor.gpu.name: str(executor.gpu.quantity)} if executor.gpu and executor.gpu.name else {}
    )
    resources = ResourceRequirements(requests=amounts | devices, limits=devices or None)
    return PodSpec(
        containers=[Container(name="spark-kubernetes-executor", resources=resources)],
        node_selector={**(spec.node_selector or {}), **(executor.node_selector or {})} or None,
        tolerations=executor.tolerations,
        restart_policy="Never",
    )


def _overhead_factor(spec: _Spec) -> float:
    if spec.memory_overhead_factor is None:
        return 0.4 if spec.type in ("Python", "R") else 0.1
    try:
        factor = float(spec.memory_overhead_factor)
    except ValueError:
        factor = math.nan
    if not 0 <= factor <= 100:
        raise InvalidGang(
            f"spec.memoryOverheadFactor is {spec.memory_overhead_factor!r:.40}: write a number such as '0.1'"
        )
    return factor


def _mib(text: str, path: str) -> int:
    """Return an amount of memory as Spark writes it, in MiB, rounded down; without a unit it is MiB."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise InvalidGang(f"{path} is {text!r:.40}: write an amount such as 4g or 512m")
    whole, fraction, unit = found.groups()
    return math.floor(float(f"{whole}.{fraction or 0}") * _UNITS_MIB[unit.lower() or "m"])


SPARK_APPLICATIONS = GangSource(
    name="sparkapplication",
    api_version=f"{_GROUP}/v1beta2",
    kind=_KIND,
    group_of=_group_of,
    read=_read,
    marks=frozenset({_NAME}),
    role_of=_role_of,
    resource=Resource(_GROUP, "sparkapplications", _KIND, ("v1beta2",), _SparkApplication),
)
