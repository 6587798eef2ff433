"""A MiniCluster sets no key that only the queue writes, and none that takes its pods out of the queue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import make_minicluster

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.kube.decoding import decode
from fluxqueue.minicluster.rules import find_problems

PLACES = [
    "spec.jobLabels",
    "spec.pod.labels",
    "spec.pod.annotations",
    "spec.podTemplate.metadata.labels",
    "spec.podTemplate.metadata.annotations",
]
RESERVED = [
    *names.ALLOCATION_KEYS,
    names.SERVICES_OF_LABEL,
    names.EXEMPT_ANNOTATION,
    names.SUSPENDED_BY_ANNOTATION,
    names.SUBMITTED_BY_ANNOTATION,
]


def errors(place: str, key: str, value: str) -> tuple[str, ...]:
    """Return what is wrong with a MiniCluster that sets a key."""
    made = make_minicluster("flux")
    *path, last = place.split(".")
    parent: Any = made
    for part in path:
        parent = parent.setdefault(part, {})
    parent[last] = {key: value}
    return find_problems(decode(msgspec.json.encode(made), MiniCluster, "get")).errors


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", RESERVED)
def test_what_belongs_to_the_queue_is_refused_with_its_field(place: str, key: str) -> None:
    assert f"{place}: {key} is written by fluxqueue only: remove it" in errors(place, key, "1")


@pytest.mark.parametrize("place", PLACES)
def test_what_takes_its_pods_out_of_the_queue_is_refused(place: str) -> None:
    assert any(sentence.startswith(f"{place}: ") for sentence in errors(place, names.MANAGED_LABEL, "false"))
    assert any(
        sentence.startswith(f"{place}: ") for sentence in errors(place, names.KUEUE_QUEUE_LABEL, "theirs")
    )
    assert errors(place, "team", "theirs") == ()
