"""Which placed pods a selector selects, and what pods with very many rules cost everybody else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fluxqueue.api.pods import PodSpec
from fluxqueue.queue.noderules import placed_pods
from fluxqueue.queue.noderules.placed_pods import PlacedPod, PlacedPods
from fluxqueue.queue.noderules.pod_rules import Term, repelling_terms, selector_of

HOST = "kubernetes.io/hostname"
SELECTORS: list[Mapping[str, Any]] = [
    {},
    {"matchLabels": {"app": "a"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b", "a"]}]},
    {
        "matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": ["a"]},
            {"key": "tier", "operator": "In", "values": ["x"]},
        ]
    },
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
]


def repels(number: int, namespace: str, *terms: Mapping[str, Any]) -> PlacedPod:
    """A pod that keeps others off its node."""
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOST, **term} for term in terms
            ]
        }
    }
    spec = msgspec.convert({"containers": [{"name": "a"}], "affinity": affinity}, PodSpec)
    return PlacedPod(
        f"{namespace}-{number}", namespace, {}, f"n{number}", repels=repelling_terms(spec, namespace, {})
    )


def exists(key: str) -> Mapping[str, Any]:
    return {
        "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
        "namespaceSelector": {},
    }


def one_of(*values: str) -> Mapping[str, Any]:
    return {
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]},
        "namespaceSelector": {},
    }


def found(pods: PlacedPods, **labels: str) -> list[Term]:
    return [term for term, _ in pods.repelling("ada", {}, labels)]


@pytest.mark.parametrize("seed", range(20))
def test_the_selected_pods_are_those_that_a_look_at_each_would_select(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed_pods, "_MOST_LABELS", 1)
    chance, pods, there = random.Random(seed), PlacedPods(), dict[str, PlacedPod]()
    for _ in range(200):
        uid = f"p{chance.randrange(60)}"
        if chance.random() < 0.3:
            pods.drop(uid)
            there.pop(uid, None)
        else:
            labels = {
                key: chance.choice("abxy")
                for key in chance.sample(["app", "tier", "note"], chance.randrange(4))
            }
            there[uid] = PlacedPod(
                uid, chance.choice(["one", "two", "many", "many", "many", "many"]), labels, "n1"
            )
            pods.put(there[uid])
        selector = selector_of(chance.choice(SELECTORS))
        namespaces = chance.choice([None, ("one",), ("one", "two", "one"), ("many",), ("none",), ()])
        wanted = {
            uid
            for uid, pod in there.items()
            if selector.matches(pod.labels) and (namespaces is None or pod.namespace in namespaces)
        }
        selected = [pod.uid for pod in pods.selected(selector, namespaces)]
        assert len(selected) == len(wanted)
        assert {*selected} == wanted
    assert len(pods._by_label) <= 1


def test_pods_with_very_many_rules_are_few_for_the_pods_of_everybody_else() -> None:
    pods, all_of_them = PlacedPods(64), PlacedPods()
    for number in range(500):
        for index in (pods, all_of_them):
            index.put(repels(number, "evil", *(exists(f"k{number}-{term}") for term in range(16))))
            index.put(
                repels(number + 500, "evil", *(one_of("web", f"v{number}-{term}") for term in range(16)))
            )
    pods.put(repels(1, "good", exists("app")))
    assert len([*pods.terms_about({"app": "web"}.items())]) <= 64 + 64 + 1
    assert len(found(pods, app="web")) == 65, "those of another namespace are kept"
    assert len(found(all_of_them, app="web")) == 8_000, "a scheduler has to know all"
    for number in range(1_000):
        pods.drop(f"evil-{number}")
    pods.drop("good-1")
    assert (found(pods, app="web"), pods.any_repel, pods._alike, pods._kept_for) == ([], False, {}, {})
    pods.put(repels(1, "evil", exists("app")))
    assert len(found(pods, app="web")) == 1


def test_pods_keep_others_off_by_what_each_says_of_itself_however_many_there_are() -> None:
    """A thousand Deployments whose pods stay off their own kind are told apart by the value of a label."""
    pods = PlacedPods(64)
    for number in range(1_000):
        pods.put(repels(number, "ada", {"labelSelector": {"matchLabels": {"app": f"a{number}"}}}))
    assert all(len(found(pods, app=f"a{number}")) == 1 for number in range(1_000))


@pytest.mark.parametrize("seed", range(20))
def test_counts_that_follow_changes_are_those_of_a_new_index(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed_pods, "_MOST_COUNTS", 3)
    monkeypatch.setattr(placed_pods, "_MOST_CHANGES", 5)
    chance, pods, there = random.Random(seed), PlacedPods(), dict[str, PlacedPod]()
    teams = {"one": "x", "two": "y"}
    by_labels = [selector_of(None), selector_of({}), selector_of({"matchLabels": {"team": "x"}})]
    terms = [
        Term(HOST, selector_of(selector), namespaces, by_label)
        for selector in SELECTORS
        for namespaces in ((), ("one",))
        for by_label in by_labels
    ]
    asked = [tuple(chance.sample(terms, chance.randint(1, 2))) for _ in range(4)]

    def labels_of(namespace: str) -> Mapping[str, str]:
        return {"team": teams[namespace]}

    for _ in range(300):
        uid = f"p{chance.randrange(20)}"
        if chance.random() < 0.05:
            if chance.random() < 0.5:  # the namespace is deleted with all of its pods
                for each in [each for each in there.values() if each.namespace == "two"]:
                    pods.drop(each.uid)
                    del there[each.uid]
            teams["two"] = chance.choice("xy")
            pods.forget_counts("two")
        elif chance.random() < 0.3:
            pods.drop(uid)
            there.pop(uid, None)
        else:
            labels = {
                key: chance.choice("abxy") for key in chance.sample(["app", "tier"], chance.randrange(3))
            }
            there[uid] = PlacedPod(
                uid, chance.choice(["one", "two"]), labels, f"n{chance.randrange(3)}", chance.random() < 0.3
            )
            pods.put(there[uid])
        both, deleting = chance.choice(asked), chance.random() < 0.5
        wanted = Counter(
            pod.node
            for pod in there.values()
            if (deleting or not pod.deleting)
            and all(term.selects(pod.namespace, labels_of(pod.namespace), pod.labels) for term in both)
        )
        assert pods.counted(both, labels_of, deleting=deleting) == wanted


@pytest.mark.parametrize(("before", "after"), [("x", ""), ("", "x")])
def test_pods_that_left_a_namespace_before_its_labels_changed_count_no_more(before: str, after: str) -> None:
    team = before
    term = Term(HOST, selector_of({}), (), selector_of({"matchLabels": {"team": "x"}}))

    def labels_of(_namespace: str) -> Mapping[str, str]:
        return {"team": team}

    pods = PlacedPods()
    pods.put(PlacedPod("a", "short-lived", {}, "n1"))
    pods.counted((term,), labels_of)
    pods.drop("a")
    team = after
    pods.forget_counts("short-lived")
    assert pods.counted((term,), labels_of) == {}


def test_who_asks_again_has_only_those_counted_that_came_or_went() -> None:
    term = Term(HOST, selector_of({}), (), selector_of({}))

    def asked_again(count: int) -> int:
        pods, looks = PlacedPods(), 0

        def labels_of(_namespace: str) -> Mapping[str, str]:
            nonlocal looks
            looks += 1
            return {}

        for number in range(count):
            pods.put(PlacedPod(f"p{number}", "ada", {}, "n1"))
        assert pods.counted((term,), labels_of) == {"n1": count}
        looks = 0
        pods.put(PlacedPod("new", "ada", {}, "n2"))
        pods.drop("p0")
        assert pods.counted((term,), labels_of) == {"n1": count - 1, "n2": 1}
        return looks

    assert (asked_again(50), asked_again(2_000)) == (2, 2)
