"""A blocked gang is checked again when the object that blocked it changes, and only once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import make_pod

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import Change, ChangeKind
from fluxqueue.scheduler_plugin.blocked_gangs import BlockedGangs
from fluxqueue.scheduler_plugin.gangs import GangKey

KEY = GangKey("default", "7", "")
OTHER = GangKey("default", "8", "")


@pytest.fixture
def enqueued() -> list[GangKey]:
    return []


@pytest.fixture
def blocked(enqueued: list[GangKey]) -> BlockedGangs:
    return BlockedGangs(enqueued.append)


def bound_pod(node: str = "n1", **status: Any) -> Pod:
    return msgspec.convert(make_pod("p").on_node(node).with_("status", status).build(), Pod)


def test_a_change_of_a_node_enqueues_the_gangs_that_it_refused_once(
    blocked: BlockedGangs, enqueued: list[GangKey]
) -> None:
    blocked.on_node(KEY, "n1")
    blocked.on_node(KEY, "n1")
    blocked.on_node(OTHER, "n2")
    blocked.node_changed("n1")
    assert enqueued == [KEY]
    blocked.node_changed("n1")
    assert enqueued == [KEY]


def test_a_change_of_a_volume_enqueues_the_gangs_that_wait_for_one_once(
    blocked: BlockedGangs, enqueued: list[GangKey]
) -> None:
    blocked.on_volume(KEY)
    blocked.on_node(OTHER, "n1")
    blocked.volume_changed()
    blocked.volume_changed()
    assert enqueued == [KEY]


@pytest.mark.parametrize(
    ("old", "new", "frees"),
    [
        (bound_pod(), None, True),
        (bound_pod(phase="Running"), bound_pod(phase="Succeeded"), True),
        (bound_pod(phase="Pending"), bound_pod(phase="Running"), False),
        (None, bound_pod(), False),
        (bound_pod("n2"), None, False),
    ],
    ids=["deleted", "ended", "started", "created", "deleted elsewhere"],
)
def test_only_a_pod_that_frees_room_enqueues_gangs(
    blocked: BlockedGangs, enqueued: list[GangKey], old: Pod | None, new: Pod | None, frees: bool
) -> None:
    blocked.on_node(KEY, "n1")
    blocked.pod_changed(Change(ChangeKind.DELETED if new is None else ChangeKind.MODIFIED, old, new))
    assert enqueued == ([KEY] if frees else [])


def test_a_lost_nomination_frees_its_node(blocked: BlockedGangs, enqueued: list[GangKey]) -> None:
    blocked.on_node(KEY, "n1")
    nominated = msgspec.convert(make_pod("p").with_("status.nominatedNodeName", "n1").build(), Pod)
    blocked.pod_changed(Change(ChangeKind.MODIFIED, nominated, msgspec.convert(make_pod("p").build(), Pod)))
    assert enqueued == [KEY]
