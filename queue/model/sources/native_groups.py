"""Kubernetes' own gangs: PodGroup of the Workload API, and the Workload that Kubernetes 1.35 had before it.

* From Kubernetes 1.36 on a pod names a PodGroup (``spec.schedulingGroup.podGroupName``), which has the
  policy: ``gang`` with ``minCount``, or ``basic``, which is no gang (KEP-4671, KEP-5832). All its pods may
  have to run in one domain of a node label (KEP-5732), and may share claims of devices (KEP-5729). One that
  is part of a CompositePodGroup may start with others (`fluxqueue.queue.model.sources.composite_groups`).
* In 1.35 a pod names a Workload, one of its pod groups, and optionally one replica of that
  (``spec.workloadRef``).

Both are off by default: the fields are on pods only where the feature gate ``GenericWorkload`` is on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import PartialObject
from fluxqueue.api.pods import Pod, PodResourceClaim, SchedulingConstraints, TopologyConstraint
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

__all__ = [
    "NATIVE_POD_GROUPS",
    "NATIVE_WORKLOADS",
    "NO_GROUP_CLAIMS",
    "GroupClaims",
    "claims_of_group",
    "domain_of",
    "domain_of_group",
    "in_domain",
    "least_of_group",
    "parent_of_group",
]

_GROUP = "scheduling.k8s.io"

GroupClaims = Mapping[PodResourceClaim, str]
"""Claims of a PodGroup as its pods name them, and the name of the claim that was made from a template (empty:
none, or none yet)."""
NO_GROUP_CLAIMS: Final[GroupClaims] = {}


class _GangPolicy(PartialObject, frozen=True):
    min_count: int | None = None


class _Policy(PartialObject, frozen=True):
    gang: _GangPolicy | None = None


class _PodGroupSpec(PartialObject, frozen=True):
    parent_composite_pod_group_name: str | None = None
    scheduling_policy: _Policy = _Policy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[PodResourceClaim] | None = None


class _MadeClaim(PartialObject, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class _PodGroupStatus(PartialObject, frozen=True):
    resource_claim_statuses: list[_MadeClaim] | None = None


class _PodGroup(SizedObject, frozen=True):
    spec: _PodGroupSpec = _PodGroupSpec()
    status: _PodGroupStatus = _PodGroupStatus()


class _WorkloadGroup(PartialObject, frozen=True):
    name: str = ""
    policy: _Policy = _Policy()


class _WorkloadSpec(PartialObject, frozen=True):
    pod_groups: list[_WorkloadGroup] | None = None


class _Workload(SizedObject, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()


def _gang(policy: _Policy, path: str, domain: str = "") -> Gang:
    """Return the gang of a policy.
    The first pod of a group that is none decides about the domain, if it must have one.
    """
    if policy.gang is None:
        return Gang((Role(ANY_ROLE, 1),), domain=domain) if domain else Gang(())
    return Gang(
        (Role(ANY_ROLE, whole_number(policy.gang.min_count, f"{path}.gang.minCount")),), domain=domain
    )


def domain_of(constraints: SchedulingConstraints | None, path: str) -> str:
    """Return the label of nodes by which all pods of a group must be in one domain; empty if there is none.

    Raises
    ------
    InvalidGang
        There are several.
    """
    topology = (constraints.topology or []) if constraints is not None else []
    if len(topology) > 1:
        raise InvalidGang(
            f"{path}.topology has {len(topology)} constraints: one is read, so remove the others"
        )
    return topology[0].key if topology else ""


def claims_of_group(group: _PodGroup) -> GroupClaims:
    """Return the claims of a PodGroup, which all its pods share that name the same,
    with the name of what was made from a template.
    """
    made = {each.name: each.resource_claim_name or "" for each in group.status.resource_claim_statuses or ()}
    return {
        each: "" if each.resource_claim_name else made.get(each.name, "")
        for each in group.spec.resource_claims or ()
    }


def parent_of_group(group: Any) -> str:
    """Return the CompositePodGroup that a PodGroup, or a CompositePodGroup, is a part of; empty: of none."""
    return group.spec.parent_composite_pod_group_name or ""


def least_of_group(group: _PodGroup) -> int:
    """Return how many pods of a PodGroup must start together; a group that is no gang begins with one.

    Raises
    ------
    InvalidGang
        Its number is missing or outside the limits.
    """
    gang = group.spec.scheduling_policy.gang
    return whole_number(gang.min_count, "spec.schedulingPolicy.gang.minCount") if gang is not None else 1


def in_domain(group: _PodGroup, label: str) -> _PodGroup:
    """Return a PodGroup as it starts by itself, in one domain of a node label; empty: on any nodes."""
    constraints = SchedulingConstraints([TopologyConstraint(label)]) if label else None
    spec = msgspec.structs.replace(
        group.spec, parent_composite_pod_group_name=None, scheduling_constraints=constraints
    )
    return msgspec.structs.replace(group, spec=spec)


def _pod_group_of(pod: Pod, _job: Job | None) -> str | None:
    group = pod.spec.scheduling_group
    return named(group.pod_group_name) if group is not None else None


def domain_of_group(group: _PodGroup) -> str:
    """Return the label of nodes by which all pods of a PodGroup must be in one domain;
    empty if there is none.

    Raises
    ------
    InvalidGang
        There are several, or it is part of a CompositePodGroup, whose groups may have to start together.
    """
    if parent := parent_of_group(group):
        raise InvalidGang(
            f"spec.parentCompositePodGroupName: CompositePodGroup {parent:.253} is not read for Jobs, which "
            "start by themselves: create the PodGroup without it"
        )
    return domain_of(group.spec.scheduling_constraints, "spec.schedulingConstraints")


def _read_pod_group(_pods: Sequence[Pod], group: _PodGroup) -> Gang:
    return _gang(group.spec.scheduling_policy, "spec.schedulingPolicy", domain_of_group(group))


def _workload_group_of(pod: Pod, _job: Job | None) -> str | None:
    ref = pod.spec.workload_ref
    if ref is None or not ref.name or not ref.pod_group:
        return None
    # No part may contain the sign between them, so that no two groups have one name.
    return named(":".join(part for part in (ref.name, ref.pod_group, ref.pod_group_replica_key) if part))


def _workload_name(pod: Pod) -> str | None:
    return named(pod.spec.workload_ref.name) if pod.spec.workload_ref is not None else None


def _read_workload(pods: Sequence[Pod], workload: _Workload) -> Gang:
    wanted = next((pod.spec.workload_ref.pod_group for pod in pods if pod.spec.workload_ref is not None), "")
    for number, group in enumerate(workload.spec.pod_groups or ()):
        if group.name == wanted:
            return _gang(group.policy, f"spec.podGroups[{number}].policy")
    raise InvalidGang(
        f"Workload {workload.metadata.name} has no pod group {wanted:.63}: correct "
        "spec.workloadRef.podGroup of the pods"
    )


NATIVE_POD_GROUPS = GangSource(
    name="kubernetes",
    api_version=f"{_GROUP}/v1alpha2",
    kind="PodGroup",
    group_of=_pod_group_of,
    read=_read_pod_group,
    resource=Resource(_GROUP, "podgroups", "PodGroup", ("v1", "v1beta1", "v1alpha3", "v1alpha2"), _PodGroup),
)

NATIVE_WORKLOADS = GangSource(
    name="kubernetes-1.35",
    api_version=f"{_GROUP}/v1alpha1",
    kind="Workload",
    group_of=_workload_group_of,
    read=_read_workload,
    resource=Resource(_GROUP, "workloads", "Workload", ("v1alpha1",), _Workload),
    object_of=_workload_name,
)
