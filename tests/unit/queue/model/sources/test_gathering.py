"""How the pods of a gang with roles come together."""

from __future__ import annotations

from collections.abc import Sequence

from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.pods import Pod, PodTemplateSpec
from fluxqueue.queue.model.sources.gang_sources import Gang, GangSource, Role
from fluxqueue.queue.model.sources.gathering import GangPods, later_pods_of_source, placement_order


def source(*roles: Role, active: bool = True) -> GangSource:
    return GangSource(
        name="test",
        api_version="test/v1",
        kind="Test",
        group_of=lambda _pod, _job: "x",
        read=lambda _pods, _owner: Gang(tuple(roles), active=active),
        role_of=lambda pod: pod.metadata.label("role") or "",
    )


def member(name: str, role: str) -> PodBuilder:
    return pod_builder(name, {"role": role})


def running(name: str, role: str, phase: str = "Running") -> PodBuilder:
    return member(name, role).with_("spec.schedulingGates", []).on_node("n1").phase(phase)


def names_of(pods: Sequence[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


HEAD_AND_TWO = source(Role("head", 1), Role("worker", 2))


def test_each_role_needs_its_own_pods() -> None:
    without_head = gather(HEAD_AND_TWO, pods_of(*(member(name, "worker") for name in "abc")))
    assert without_head is not None
    assert (without_head.reason, names_of(without_head.members)) == (Reason.WAITING_FOR_GROUP, ["a", "b"])
    assert "has 2 of 3 pods" in without_head.message
    whole = gather(
        HEAD_AND_TWO,
        pods_of(*(member(name, "worker") for name in "abc"), member("h", "head"), member("s", "strange")),
    )
    assert whole is not None
    assert (whole.reason, whole.size, names_of(whole.members)) == (Reason.NONE, 3, ["h", "a", "b"])
    assert names_of(whole.excess) == ["c", "s"]


def test_a_pod_beyond_what_has_to_start_is_matched_alone() -> None:
    others = pods_of(running("h", "head"), running("a", "worker"), running("b", "worker"))
    assert gather(HEAD_AND_TWO, pods_of(member("c", "worker")), others=others) is None


def test_a_replacement_waits_for_nobody_that_runs_or_succeeded() -> None:
    others = pods_of(
        running("h", "head"), running("a", "worker", "Succeeded"), running("b", "worker", "Failed")
    )
    found = gather(HEAD_AND_TWO, pods_of(member("b2", "worker")), others=others)
    assert found is not None
    assert (found.reason, found.size, names_of(found.members)) == (Reason.NONE, 1, ["b2"])


def test_a_gang_without_roles_is_none() -> None:
    assert gather(source(), pods_of(member("a", ""))) is None


def test_roles_of_one_name_need_the_pods_of_both() -> None:
    """Nothing keeps a RayCluster from having two worker groups of one name."""
    twice = source(Role("head", 1), Role("worker", 2), Role("worker", 1))
    part = gather(twice, pods_of(member("h", "head"), member("a", "worker")))
    assert part is not None
    assert (part.reason, "has 2 of 4 pods" in part.message) == (Reason.WAITING_FOR_GROUP, True)
    whole = gather(twice, pods_of(member("h", "head"), *(member(name, "worker") for name in "abcd")))
    assert whole is not None
    assert (whole.reason, names_of(whole.members), names_of(whole.excess)) == (
        Reason.NONE,
        ["h", "a", "b", "c"],
        ["d"],
    )
    started = pods_of(running("h", "head"), running("a", "worker"), running("b", "worker"))
    rest = gather(twice, pods_of(member("c", "worker")), others=started)
    assert rest is not None
    assert (rest.reason, rest.size) == (Reason.NONE, 1)


def test_a_gang_with_nobody_waiting_is_not_gathered() -> None:
    assert gather(HEAD_AND_TWO, []) is None


def test_pods_in_two_queues_are_refused() -> None:
    found = gather(
        source(Role("", 2)), pods_of(member("a", "").label("fluxqueue/queue", "x"), member("b", ""))
    )
    assert found is not None
    assert (found.reason, found.message) == (
        Reason.INVALID_REQUEST,
        "Test default/x: its pods name different queues, none, x: name one",
    )


def test_slots_are_kept_for_pods_that_come_later_and_no_longer() -> None:
    staged = source(Role("driver", 1), Role("executor", 3, later=PodTemplateSpec()))
    found = gather(staged, pods_of(member("d", "driver")))
    assert found is not None
    assert (found.reason, found.size, [each.pods for each in found.later_pods]) == (Reason.NONE, 4, [3])
    pods = pods_of(running("d", "driver"), running("e0", "executor"), member("e1", "executor"))
    assert [each.pods for each in later_pods_of_source(GangPods(staged, "", pods), None)] == [1]
    over = source(Role("driver", 1), Role("executor", 3, later=PodTemplateSpec()), active=False)
    assert list(later_pods_of_source(GangPods(over, "", pods), None)) == []


def test_the_pods_that_a_gang_needs_get_slots_before_the_others() -> None:
    old = [
        member(f"w{number}", "worker").with_("metadata.creationTimestamp", f"2026-01-01T00:00:0{number}Z")
        for number in range(3)
    ]
    pods = pods_of(*old, member("h", "head").with_("metadata.creationTimestamp", "2026-01-01T00:00:09Z"))
    order = placement_order(GangPods(HEAD_AND_TWO, "", pods), None)
    assert names_of(sorted(pods, key=order)) == ["w0", "w1", "h", "w2"]
