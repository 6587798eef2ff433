from collections.abc import Callable

import pytest

from fluxqueue.api.metadata import ObjectMeta, OwnerReference
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache, PassingCache


def pod(
    name: str,
    version: int = 1,
    *,
    uid: str = "",
    node: str | None = None,
    owner: str = "",
    namespace: str = "a",
) -> Pod:
    owners = [OwnerReference(uid=owner)] if owner else None
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid or f"uid-{name}",
        resource_version=str(version),
        owner_references=owners,
    )
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


class Told:
    def __init__(self, store: ObjectCache[Pod]) -> None:
        self.changes: list[Change[Pod]] = []
        store.add_handler(self.changes.append)

    def take(self) -> list[tuple[str, str, str]]:
        message = [
            (change.kind.value, change.obj.metadata.name, change.obj.metadata.uid) for change in self.changes
        ]
        self.changes.clear()
        return message


def by_node(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def test_an_object_is_added_modified_and_deleted_once_each() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    told = Told(store)
    store.apply(pod("x"))
    store.apply(pod("x", 2, node="n1"))
    store.remove(pod("x", 3))
    assert told.take() == [("ADDED", "x", "uid-x"), ("MODIFIED", "x", "uid-x"), ("DELETED", "x", "uid-x")]
    assert len(store) == 0


def test_a_handler_is_told_in_parts_of_what_is_there_and_of_each_change_once() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    for number in range(1_000):
        store.apply(pod(f"p{number}"))
    told: list[Change[Pod]] = []
    parts = store.adding_handler(told.append)
    next(parts)
    first = len(told)
    assert 0 < first <= 200
    store.remove(pod("p0"))
    store.apply(pod("p1", 2))
    store.remove(pod("p997"))
    store.apply(pod("p998", 2))
    store.apply(pod("p999", uid="another"))
    store.apply(pod("new"))
    seen = [(change.kind.value, change.obj.metadata.name) for change in told[first:]]
    assert seen == [
        ("DELETED", "p0"),
        ("MODIFIED", "p1"),
        ("ADDED", "p998"),
        ("ADDED", "p999"),
        ("ADDED", "new"),
    ]
    assert sum(1 for _ in parts) < 6
    added = [change.obj for change in told if change.kind is ChangeKind.ADDED]
    assert len(added) == len({each.metadata.uid for each in added}) == 1_000
    store.apply(pod("p2", 2))
    assert told[-1].kind is ChangeKind.MODIFIED


def test_an_index_has_each_of_one_or_several_objects_until_it_goes() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.add_index("node", by_node)
    for name in ("x", "y", "z"):
        store.apply(pod(name, node="n1"))
        store.apply(pod(f"{name}-alone", node=f"of-{name}"))
    for gone in ("y", "x", "z"):
        names = {each.metadata.name for each in store.by_index("node", "n1")}
        assert gone in names
        assert [each.metadata.name for each in store.by_index("node", f"of-{gone}")] == [f"{gone}-alone"]
        store.remove(pod(gone, 2))
        store.remove(pod(f"{gone}-alone", 2))
        assert {each.metadata.name for each in store.by_index("node", "n1")} == names - {gone}
    assert store._indexes == {"node": {}}


def test_a_state_that_is_already_known_is_no_change() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.apply(pod("x"))
    told = Told(store)
    told.take()
    store.apply(pod("x"))
    assert told.take() == []


def test_a_change_shows_the_state_before_and_after() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    told = Told(store)
    store.apply(pod("x"))
    store.apply(pod("x", 2, node="n1"))
    change = told.changes[-1]
    assert change.kind is ChangeKind.MODIFIED
    assert change.old is not None
    assert change.new is not None
    assert (change.old.spec.node_name, change.new.spec.node_name) == (None, "n1")


def test_a_deletion_shows_the_last_state_even_if_it_was_never_stored() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    told = Told(store)
    store.apply(pod("x"))
    store.remove(pod("x", 5, node="n7"))
    assert told.changes[-1].new is None
    assert told.changes[-1].obj.spec.node_name == "n7"


def test_a_name_that_comes_back_with_another_uid_is_another_object() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    told = Told(store)
    store.apply(pod("x", uid="old"))
    store.apply(pod("x", 9, uid="new"))
    assert told.take() == [("ADDED", "x", "old"), ("DELETED", "x", "old"), ("ADDED", "x", "new")]
    assert store.get_by_uid("old") is None
    assert store.get_by_uid("new") is store.get("a", "x")


def test_the_late_deletion_of_a_predecessor_leaves_the_new_object_alone() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.apply(pod("x", uid="new"))
    store.remove(pod("x", uid="old"))
    assert store.get_by_uid("new") is not None


def test_a_relist_tells_exactly_the_difference() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    for name in ("same", "changed", "gone", "recreated"):
        store.apply(pod(name))
    told = Told(store)
    told.take()
    store.replace([pod("same"), pod("changed", 2), pod("recreated", 3, uid="other"), pod("fresh")])
    assert sorted(told.take()) == sorted(
        [
            ("DELETED", "gone", "uid-gone"),
            ("DELETED", "recreated", "uid-recreated"),
            ("ADDED", "recreated", "other"),
            ("MODIFIED", "changed", "uid-changed"),
            ("ADDED", "fresh", "uid-fresh"),
        ]
    )
    assert {obj.metadata.name for obj in store.list()} == {"same", "changed", "recreated", "fresh"}


def test_indexes_follow_their_objects() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.apply(pod("early", node="n1"))
    store.add_index("node", by_node)
    store.add_index("owner", lambda pod: [owner.uid for owner in pod.metadata.owner_references or ()])
    store.apply(pod("x", owner="job"))
    assert [p.metadata.name for p in store.by_index("node", "n1")] == ["early"]
    store.apply(pod("x", 2, node="n1", owner="job"))
    assert {p.metadata.name for p in store.by_index("node", "n1")} == {"early", "x"}
    store.apply(pod("x", 3, node="n2", owner="job"))
    assert [p.metadata.name for p in store.by_index("node", "n2")] == ["x"]
    assert [p.spec.node_name for p in store.by_index("owner", "job")] == ["n2"]
    store.remove(pod("x", 4))
    assert store.by_index("node", "n2") == store.by_index("owner", "job") == []


def test_an_index_that_does_not_exist_is_an_error_and_not_an_empty_answer() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.add_index("node", by_node)
    with pytest.raises(KeyError):
        store.by_index("nodes", "n1")
    with pytest.raises(ValueError, match="already"):
        store.add_index("node", by_node)


def test_lists_can_be_of_one_namespace() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.apply(pod("x", namespace="a"))
    store.apply(pod("y", namespace="b"))
    assert [p.metadata.name for p in store.list("b")] == ["y"]
    assert len(store.list()) == 2


def test_a_handler_that_is_added_late_gets_the_present_objects() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.apply(pod("x"))
    assert Told(store).take() == [("ADDED", "x", "uid-x")]


def test_a_handler_that_fails_stops_neither_the_store_nor_the_others() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.add_handler(_failing())
    told = Told(store)
    store.apply(pod("x"))
    assert told.take() == [("ADDED", "x", "uid-x")]


def _failing() -> Callable[[Change[Pod]], None]:
    def fail(change: Change[Pod]) -> None:
        raise RuntimeError(change.kind)

    return fail


def test_an_object_whose_index_cannot_be_computed_is_kept_and_the_others_are_indexed() -> None:
    def fails_at_x(pod: Pod) -> list[str]:
        if pod.metadata.name == "x":
            raise ValueError("odd")
        return ["all"]

    store: ObjectCache[Pod] = ObjectCache()
    store.add_index("some", fails_at_x)
    for each in (pod("x"), pod("y"), pod("x", 2)):
        store.apply(each)
    assert [each.metadata.name for each in store.by_index("some", "all")] == ["y"]
    store.remove(pod("x", 2))
    assert [each.metadata.name for each in store.list()] == ["y"]


def test_other_work_may_go_on_between_the_parts_of_a_long_relist() -> None:
    store: ObjectCache[Pod] = ObjectCache()
    store.replace(pod(f"old{number}") for number in range(1_000))
    told = Told(store)
    told.take()
    longest = 0
    for _ in store.replacing(pod(f"new{number}") for number in range(1_000)):
        longest = max(longest, len(told.take()))
    assert 0 < longest <= 200
    assert {each.metadata.name for each in store.list()} == {f"new{number}" for number in range(1_000)}


def test_a_cache_that_keeps_nothing_passes_what_a_watch_shows_and_no_list() -> None:
    passed: list[str] = []
    cache: PassingCache[Pod] = PassingCache()
    cache.add_handler(lambda change: passed.append(f"{change.kind} {change.obj.metadata.name}"))
    cache.replace([pod("a")])
    for version in (1, 2):
        cache.apply(pod("b", version))
    cache.remove(pod("b"))
    assert (passed, len(cache), cache.get("a", "b")) == (["ADDED b", "ADDED b"], 0, None)
