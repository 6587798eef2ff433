from typing import Any

import msgspec
from support.builders import make_node, make_reservation

from fluxqueue.api.fluxreservations import FluxReservation
from fluxqueue.api.nodes import Node
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.queue.cluster.reservations import ClusterReservations, node_view, view_changed


def reservation(name: str, version: str = "1", state: str | None = None, **spec: Any) -> FluxReservation:
    body = make_reservation(name, **{"start": "2026-12-01T09:00:00", "nodes": ["n1"], **spec})
    body["metadata"]["resourceVersion"] = version
    if state is not None:
        body["status"] = {"state": state}
    return msgspec.convert(body, FluxReservation)


def test_plans_follow_the_objects_and_are_new_only_if_a_spec_changed() -> None:
    cache: ObjectCache[FluxReservation] = ObjectCache()
    reservations = ClusterReservations(cache)
    cache.replace([reservation("a"), reservation("b")])
    before = reservations.plans
    assert sorted(before) == ["a", "b"]
    cache.replace([reservation("a", "2", "Active"), reservation("b")])
    assert reservations.plans is before
    cache.replace([reservation("a", "3", nodes=["n2"])])
    assert {name: plan.names for name, plan in reservations.plans.items()} == {"a": ("n2",)}


def test_a_node_is_up_unless_it_is_not_ready_or_others_cordoned_it() -> None:
    def up(builder: Any) -> bool:
        return node_view(msgspec.convert(builder.build(), Node)).up

    assert up(make_node("n"))
    assert not up(make_node("n").with_("status.conditions", []))
    assert not up(make_node("n").cordoned())
    assert up(make_node("n").cordoned().annotation("fluxqueue/maintenance", "power"))


def test_a_heartbeat_of_a_node_changes_no_choice() -> None:
    def change(builder: Any) -> bool:
        old, new = (msgspec.convert(each.build(), Node) for each in (make_node("n"), builder))
        return view_changed(Change(ChangeKind.MODIFIED, old, new))

    assert not change(make_node("n").with_("metadata.resourceVersion", "9"))
    assert change(make_node("n").cordoned())
