"""Gangs of other projects with hostile values: each is read, or refused with a sentence,
and no other error comes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar, cast

import msgspec
import pytest
from support.builders import Json
from support.hostile import Attack
from support.hostile_gangs import GANG_EXAMPLES, GANG_KINDS, children_of, gang
from support.queue_builders import EPOCH

from fluxqueue.api.jobs import Job
from fluxqueue.api.jobsets import JobSet
from fluxqueue.api.pods import Pod
from fluxqueue.kube.decoding import decode_object
from fluxqueue.queue.model.groups import JOB_SET, GroupKey, gather_jobset, group_of
from fluxqueue.queue.model.sources.gathering import (
    GangPods,
    gather_gang_of_source,
    later_pods_of_source,
    placement_order,
)
from fluxqueue.queue.model.sources.registry import SOURCES, source_of_pod

T = TypeVar("T")
KEPT = ("apiVersion", "kind", "name", "namespace", "metadata")
SERVED = {**GANG_KINDS, "podgroups.scheduling.k8s.io": ("v1alpha2", "PodGroup")}


def decoded(bodies: list[Json], of: type[T]) -> Iterator[T]:
    """Yield those that can be decoded: the caches leave the others out."""
    for body in bodies:
        try:
            yield decode_object(json.dumps(body).encode(), of)
        except msgspec.MsgspecError:
            continue


def damaged_gang(attack: Attack, example: str) -> tuple[list[tuple[str, Json]], list[Json], list[Json]]:
    """Return the objects of a gang with their collections, its Jobs and its pods."""
    objects: list[tuple[str, Json]] = []
    others: dict[str, list[Json]] = {"jobs": [], "pods": []}
    for collection, body in gang(example, "g1"):
        body["metadata"] |= {"namespace": "default", "uid": f"uid-{len(objects)}"}
        harmed = attack._damaged(body, keep=KEPT)
        children: list[tuple[str, Json]] = []
        if collection in SERVED:
            objects.append((collection, harmed))
            children = children_of(body, range(4)) if not collection.startswith("podgroups") else []
        else:
            others[collection].append(harmed)
        for kind, child in children:
            others[kind].append(
                attack._damaged(
                    {**child, "metadata": {**child["metadata"], "namespace": "default"}}, keep=KEPT
                )
            )
    for number, pod in enumerate(others["pods"]):
        pod["metadata"]["uid"] = f"pod-{number}"
    return objects, others["jobs"], others["pods"]


@pytest.mark.parametrize("example", GANG_EXAMPLES)
def test_a_gang_with_hostile_values_is_read_or_refused(example: str) -> None:
    attack = Attack(cast(Any, None), "default", "mallory", seed=20261124)
    for _ in range(60):
        objects, job_bodies, pod_bodies = damaged_gang(attack, example)
        pods, jobs = list(decoded(pod_bodies, Pod)), list(decoded(job_bodies, Job))
        for jobset in decoded(
            [body for collection, body in objects if collection.startswith("jobsets")], JobSet
        ):
            gather_jobset(GroupKey("default", "g1", JOB_SET), pods, jobs, jobset)
        for pod in pods:
            group_of(pod, jobs[0] if jobs else None)
            source_of_pod(pod)
        for source in SOURCES:  # a pod may claim to be of any
            structs = [source.resource.struct] if source.resource is not None else []
            found: list[Any] = [
                each for struct in structs for each in decoded([body for _, body in objects], struct)
            ]
            for owner in found or ([None] if source.resource is None or source.optional else []):
                gathered = GangPods(source, "gang default/g1", pods)
                gather_gang_of_source(gathered, owner, EPOCH - timedelta(hours=1), EPOCH)
                later_pods_of_source(gathered, owner)
                placement_order(gathered, owner)
