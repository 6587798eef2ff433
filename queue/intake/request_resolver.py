"""What a workload requests of the cluster: the jobspec of all its pods, under one set of rules about nodes.

A workload is matched as one request. So all its pods must have the same rules about nodes and about other
pods, and volumes that the same nodes can reach. A request that cannot be expressed in that way is a problem,
and its jobspec is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.graphnames import resource_type
from fluxqueue.api.hostports import pod_needs
from fluxqueue.api.objectsizes import LONGEST_RULES, MOST_OF_SPEC, is_cut
from fluxqueue.api.poddefaults import with_defaults
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.api.requests import InvalidRequest
from fluxqueue.api.storedjson import plain
from fluxqueue.api.topology import InvalidTopology, TopologyRequest, topology_of, within_domain
from fluxqueue.queue.cluster.context import ClusterContext, QueueDefaults
from fluxqueue.queue.intake.min_pods_resolver import min_pods_of
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.submission import PodTemplate, Submission
from fluxqueue.queue.model.constraints import InexpressibleConstraint, constraint_of, label_rules, tolerance
from fluxqueue.queue.model.jobspecs import (
    PlacementRules,
    ServicesPod,
    SizedPods,
    jobspec_of,
    shape_of,
    slot_resources,
)
from fluxqueue.queue.model.sources.native_groups import GroupClaims
from fluxqueue.queue.noderules.device_requests import DeviceNeeds, device_needs
from fluxqueue.queue.noderules.pod_rules import PodRules, labels_told_apart, rules_of, rules_of_all
from fluxqueue.queue.noderules.volumes import NO_VOLUMES, VolumeNeeds, shared_claims, volume_needs

__all__ = ["ResourceRequest", "resolve_request"]

Constraint = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A jobspec, and the digest of all that matching depends on;
    both empty if there is no request that can be matched.
    """

    jobspec: str = ""
    shape: str = ""


def resolve_request(
    submission: Submission,
    queue: QueueDefaults,
    duration_s: int | None,
    cluster: ClusterContext,
    reservation: str = "",
) -> Resolved[ResourceRequest]:
    """Return what a workload requests.

    Parameters
    ----------
    submission
        The object.
    queue
        What its queue decides.
    duration_s
        Expected wall time in seconds; None: without an end.
    cluster
        Storage and defaults.
    reservation
        The FluxReservation that it is for; empty: none.
    """
    try:
        jobspec, waits = _jobspec(submission, queue, duration_s, cluster, reservation)
    except (InvalidRequest, InexpressibleConstraint, InvalidTopology) as error:
        return Resolved(ResourceRequest(), (Problem(Reason.INVALID_REQUEST, f"{submission.title}: {error}"),))
    problems = (Problem(Reason.WAITING_FOR_VOLUMES, f"{submission.title}: {waits}"),) if waits else ()
    return Resolved(ResourceRequest(jobspec, shape_of(jobspec)), problems)


def _complete_templates(submission: Submission, cluster: ClusterContext) -> list[PodTemplate]:
    return [
        each if each.complete else replace(each, spec=_with_defaults(each.spec, cluster))
        for each in submission.templates
    ]


def _rules_of(templates: Sequence[PodTemplate], namespace: str) -> PodRules:
    found = ((each, labels) for each in templates for labels in _labels_that_count(each, namespace))
    return rules_of_all([rules_of(each.spec, namespace, labels) for each, labels in found])


def _jobspec(
    submission: Submission,
    queue: QueueDefaults,
    duration_s: int | None,
    cluster: ClusterContext,
    reservation: str,
) -> tuple[str, str]:
    """Return the jobspec, and why it has to wait for a volume (empty if it need not).

    Raises
    ------
    InvalidRequest, InexpressibleConstraint, InvalidTopology
        The request cannot be matched.
    """
    namespace = submission.meta.namespace
    templates = _complete_templates(submission, cluster)
    constraint = _common_constraint(templates, queue)
    rules = _rules_of(templates, namespace)
    volumes = _common_volumes(templates, namespace, cluster)
    devices = _common_devices(templates, namespace, cluster, submission.group_claims)
    alone = sum(each.count for each in templates) == 1 or rules.keeps_apart(cluster.namespace_labels)
    shared = {} if alone else shared_claims(volumes)
    devices_shared = _shared_devices(devices, templates)
    claimed_once = sum((Counter(each) for each in devices_shared.values()), Counter[str]())
    services, services_volumes = None, NO_VOLUMES
    if submission.services is not None:
        spec = _with_defaults(submission.services.spec, cluster)
        constraint = _also(constraint, constraint_of(spec, queue.node_selector))
        services_volumes = volume_needs(spec, namespace, cluster.storage)
        apart = _keeps_off(rules, submission.services, cluster)
        services = ServicesPod({**pod_needs(spec), **services_volumes.without(shared)}, apart)
    pods = [
        SizedPods(
            {**pod_needs(each.spec), **attached.without(shared), **own.without(devices_shared)}, each.count
        )
        for each, attached, own in zip(templates, volumes, devices, strict=True)
    ]
    topology = _topology(submission, queue, cluster)
    sliced = topology.slice_size > 0
    of_storage = (*volumes[0].rules, *services_volumes.rules)
    jobspec = jobspec_of(
        f"{namespace}/{submission.meta.name}",
        pods,
        duration_s=duration_s,
        placement=PlacementRules(
            _all_of(constraint, _beside(submission), *of_storage, *devices[0].rules),
            _one_per_node(rules, pods, cluster),
            msgspec.to_builtins(rules) if rules.any else None,
            topology,
            reservation,
            Counter(shared.values()) + claimed_once,
            bool(devices_shared) and cluster.devices.of_one_node(map(resource_type, claimed_once)),
            queue.flavors,
        ),
        services=services,
        extra_requests=submission.extra_requests,
        min_pods=min_pods_of(submission, queue, duration_s, slices=sliced, pod_rules=rules.any),
    )
    return jobspec, next((each.waits for each in (*volumes, services_volumes) if each.waits), "")


def _labels_that_count(template: PodTemplate, namespace: str) -> Sequence[Mapping[str, str]]:
    """Return the labels of its pods; those of one if the pods state no rules about others,
    for which labels do not matter.
    """
    stated = template.spec.affinity or template.spec.topology_spread_constraints
    return (
        labels_told_apart(rules_of(template.spec, namespace, template.labels[0]), template.labels)
        if stated
        else template.labels[:1]
    )


def _topology(submission: Submission, queue: QueueDefaults, cluster: ClusterContext) -> TopologyRequest:
    """Return what the submission asks of the topology.
    What is left of a Job of which some pods have completed may form no whole slices.
    """
    if submission.topology is not None:
        return submission.topology
    request = topology_of(submission.annotations, queue.topology, cluster.levels)
    if submission.domain:
        request = within_domain(request, submission.domain, cluster.levels)
    return (
        replace(request, optional_slices=True) if submission.partly_done and request.slice_size else request
    )


def _beside(submission: Submission) -> Constraint | None:
    """Return the constraint on nodes next to other pods of the same work."""
    return {"properties": [*submission.beside]} if submission.beside else None


def _with_defaults(spec: PodSpec, cluster: ClusterContext) -> PodSpec:
    """Return a template's spec with what admission will add to its pods."""
    name = spec.runtime_class_name
    if name and name not in cluster.runtime_classes:
        raise InvalidRequest(
            f"runtimeClassName: there is no RuntimeClass {name!r}: its pods would be refused; "
            "make it or name another"
        )
    return with_defaults(spec, cluster.limit_ranges, cluster.runtime_classes[name] if name else None)


def _common_constraint(templates: Sequence[PodTemplate], queue: QueueDefaults) -> Constraint | None:
    """Return the constraint on nodes that all pods have; of taints, only those that all of them tolerate."""
    for each in templates:
        _check_length(each.spec)
    rules = [label_rules(each.spec, queue.node_selector) for each in templates]
    if any(each != rules[0] for each in rules):
        raise InexpressibleConstraint(
            "its pods may run on different nodes (nodeSelector, affinity): "
            "one group has one set of rules, so give all its pods the same"
        )
    return _all_of(rules[0], tolerance(each.spec for each in templates))


def _check_length(spec: PodSpec) -> None:
    if is_cut(spec):
        raise InexpressibleConstraint(
            "what is read of its spec (containers, resources, ports, volumes, tolerations, rules about "
            f"nodes) comes to more than {MOST_OF_SPEC} bytes: make it smaller"
        )
    rules = [
        part
        for part in (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
        if part
    ]
    if rules and (size := len(msgspec.json.encode(rules, enc_hook=plain))) > LONGEST_RULES:
        raise InexpressibleConstraint(
            f"its nodeSelector, affinity, tolerations and topologySpreadConstraints come to {size} bytes, "
            f"the most is {LONGEST_RULES}: label the nodes it may use, and name that label"
        )


def _common_volumes(
    templates: Sequence[PodTemplate], namespace: str, cluster: ClusterContext
) -> list[VolumeNeeds]:
    """Return what the volumes of a pod of each template need."""
    needs = [volume_needs(each.spec, namespace, cluster.storage) for each in templates]
    if any(each.rules != needs[0].rules for each in needs):
        raise InexpressibleConstraint(
            "the volumes of its pods can be reached from different nodes: "
            "one group has one set of rules, so use volumes of one place"
        )
    if found := _used_by_several([own.for_one_pod for own in needs], templates):
        shared, users = found
        raise InvalidRequest(
            f"spec.volumes: PersistentVolumeClaim {namespace}/{shared} is ReadWriteOncePod, so one pod of "
            f"all can use it, and {users} pods are to start together: give each a claim of its own, "
            "or another access mode"
        )
    return needs


def _common_devices(
    templates: Sequence[PodTemplate], namespace: str, cluster: ClusterContext, group_claims: GroupClaims
) -> list[DeviceNeeds]:
    """Return what the claims of devices of a pod of each template need."""
    needs = [
        device_needs(
            each.spec,
            namespace,
            cluster.devices,
            group_claims or cluster.claims_of_group(namespace, each.spec),
        )
        for each in templates
    ]
    if any(each.rules != needs[0].rules for each in needs):
        raise InexpressibleConstraint(
            "the allocated devices of its pods can be reached from different nodes: "
            "one group has one set of rules, so use "
            "devices of one place, or a ResourceClaimTemplate"
        )
    of_all = _shared_devices(needs, templates)
    if found := _used_by_several([own.shared.keys() - of_all.keys() for own in needs], templates):
        shared, users = found
        raise InvalidRequest(
            f"spec.resourceClaims: {users} pods that start together share ResourceClaim "
            f"{namespace}/{shared}, which has no devices yet, and others of them do not: have all share it, "
            "give each a claim of its own (resourceClaimTemplateName), or have one pod start first"
        )
    return needs


def _shared_devices(
    needs: Sequence[DeviceNeeds], templates: Sequence[PodTemplate]
) -> Mapping[str, Mapping[str, int]]:
    """Return the claims without devices that all of several pods share:
    the first of them that is bound decides where the devices are.
    """
    if sum(each.count for each in templates) == 1:
        return {}
    return {
        claim: counts
        for claim, counts in needs[0].shared.items()
        if all(claim in each.shared for each in needs)
    }


def _used_by_several(
    claims: Sequence[Collection[str]], templates: Sequence[PodTemplate]
) -> tuple[str, int] | None:
    """Return the first claim that more than one pod would use, and how many;
    ``claims`` are those of a pod of each template.
    """
    users: Counter[str] = Counter()
    for own, each in zip(claims, templates, strict=True):
        for name in own:
            users[name] += each.count
    return next(((name, count) for name, count in users.items() if count > 1), None)


def _one_per_node(rules: PodRules, pods: Sequence[SizedPods], cluster: ClusterContext) -> bool:
    """True if the request is for one node per pod.
    Pods of different sizes that keep apart are placed by rules about each other.
    """
    sizes = {tuple(sorted(slot_resources(each.requests).items())) for each in pods}
    return (
        sum(each.pods for each in pods) > 1
        and len(sizes) == 1
        and rules.keeps_apart(cluster.namespace_labels)
    )


def _keeps_off(rules: PodRules, services: Pod, cluster: ClusterContext) -> bool:
    """True if the services pod of a MiniCluster may not share a node with its brokers."""
    if (
        rules.ties_itself(cluster.namespace_labels)
        or rules_of(services.spec, rules.namespace, services.metadata.labels or {}).any
    ):
        raise InexpressibleConstraint(
            "a MiniCluster with services takes no required rules about its own pods, "
            "except one broker per node "
            "(podAntiAffinity by kubernetes.io/hostname): prefer the other rules of spec.affinity and "
            "spec.topologySpreadConstraints only"
        )
    return rules.repels(services.metadata.labels or {}, names.HOSTNAME_LABEL, cluster.namespace_labels)


def _also(constraint: Constraint | None, other: Constraint | None) -> Constraint | None:
    """Return a constraint that holds on nodes where both pods may run: one request has one set of rules."""
    return (
        constraint if other in (None, constraint) else {"and": [each for each in (constraint, other) if each]}
    )


def _all_of(*constraints: Constraint | None) -> Constraint | None:
    """Return one constraint that holds where all of these hold."""
    present = [each for each in constraints if each]
    return {"and": present} if len(present) > 1 else (present[0] if present else None)
