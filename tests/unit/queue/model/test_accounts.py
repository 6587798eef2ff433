"""The tree of accounts: no mistake of one account harms another, and each has a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import make_account

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.queue.model.accounts import MAX_DEPTH, NO_ACCOUNTS, AccountTree, Guarantee, account_tree


def an_account(name: str, created: int = 0, **spec: Any) -> FluxAccount:
    document = make_account(name, **spec)
    document["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{created:02}Z"
    return msgspec.convert(document, FluxAccount)


def tree(*accounts: FluxAccount) -> AccountTree:
    return account_tree(accounts)


def problem(found: AccountTree, name: str) -> tuple[str, str]:
    (only,) = found.problems[name]
    return only.reason, only.message


def test_an_account_has_its_parents_up_to_the_top_as_its_path() -> None:
    found = tree(
        an_account("md", parent="physics"),
        an_account("physics", parent="site"),
        an_account("site"),
        an_account("alone"),
    )
    assert [found.path_of(name) for name in ("md", "site", "alone", "nobody")] == [
        ("md", "physics", "site"),
        ("site",),
        ("alone",),
        (),
    ]
    assert found.problems == {}


def test_only_accounts_with_limits_limit() -> None:
    limits = {"running": 2}
    found = tree(
        an_account("md", parent="physics", limits=limits),
        an_account("physics", parent="site"),
        an_account("site", limits=limits),
    )
    assert [each.name for each in found.limiting("md")] == ["md", "site"]
    assert found.limited
    assert not tree(an_account("plain", limits={})).limited
    assert not NO_ACCOUNTS.limited


def test_a_missing_parent_leaves_the_account_on_top_and_is_named() -> None:
    found = tree(an_account("md", parent="nowhere", limits={"nodes": 3}), an_account("sub", parent="md"))
    reason, message = problem(found, "md")
    assert reason == "ParentMissing"
    assert message == (
        "spec.parent: there is no FluxAccount 'nowhere': create it, or correct spec.parent; "
        "until then this account has no parent"
    )
    assert found.path_of("sub") == ("sub", "md")
    assert [each.nodes for each in found.limiting("sub")] == [3]


def test_a_circle_is_shown_to_each_of_its_accounts_and_ends_at_them() -> None:
    found = tree(
        an_account("a", parent="b"),
        an_account("b", parent="c"),
        an_account("c", parent="a"),
        an_account("below", parent="a"),
    )
    assert [problem(found, name)[0] for name in "abc"] == ["Circle"] * 3
    assert "a > b > c > a is a circle" in problem(found, "a")[1]
    assert [found.path_of(name) for name in ("a", "b", "c", "below")] == [
        ("a",),
        ("b",),
        ("c",),
        ("below", "a"),
    ]
    assert "below" not in found.problems


def test_an_account_may_not_be_its_own_parent() -> None:
    assert problem(tree(an_account("a", parent="a")), "a")[0] == "Circle"


def test_a_tree_that_is_too_deep_is_cut() -> None:
    found = tree(
        an_account("a0"),
        *(an_account(f"a{number}", parent=f"a{number - 1}") for number in range(1, MAX_DEPTH + 1)),
    )
    assert [*found.problems] == [f"a{MAX_DEPTH}"]
    assert problem(found, f"a{MAX_DEPTH}")[0] == "TooDeep"
    assert len(found.path_of(f"a{MAX_DEPTH - 1}")) == MAX_DEPTH
    assert found.path_of(f"a{MAX_DEPTH}") == (f"a{MAX_DEPTH}",)


def test_a_large_circle_ends() -> None:
    accounts = [an_account(f"a{number}", parent=f"a{(number + 1) % 500}") for number in range(500)]
    found = tree(*accounts)
    assert all(found.path_of(f"a{number}") == (f"a{number}",) for number in range(500))
    assert len(found.problems) == 500


def test_a_namespace_of_two_accounts_belongs_to_the_older_one() -> None:
    older, younger = (
        an_account("z", 1, namespaces=["team", "own"]),
        an_account("a", 2, namespaces=["team", "other"]),
    )
    for order in ((older, younger), (younger, older)):
        found = tree(*order)
        assert [found.account_of(name) for name in ("team", "own", "other", "free")] == ["z", "z", "a", ""]
        assert [*found.problems] == ["a"]
    assert problem(found, "a") == (
        "NamespaceTaken",
        (
            "spec.namespaces: namespace 'team' belongs to the account 'z', which is older: "
            "remove it from one of the two"
        ),
    )


def test_of_many_namespaces_that_are_taken_one_is_named_and_the_rest_counted() -> None:
    found = tree(
        an_account("old", 1, namespaces=["a", "b", "c"]), an_account("new", 2, namespaces=["a", "b", "c"])
    )
    assert "which is older (and 2 more)" in problem(found, "new")[1]


@pytest.mark.parametrize(
    ("resource", "quantity", "kind", "amount"),
    [
        ("cpu", 64, "cpu", 64_000),
        ("cpu", "1500m", "cpu", 1_500),
        ("memory", "1Ti", "memory", 1 << 20),
        ("memory", "1.5Mi", "memory", 1),
        ("nvidia.com/gpu", "8", "nvidia.com:gpu", 8),
        ("pods", 0, "pods", 0),
        ("cpu", "9E", "cpu", 1 << 53),
    ],
)
def test_a_limit_is_counted_in_the_units_of_the_graph_and_rounded_down(
    resource: str, quantity: Any, kind: str, amount: int
) -> None:
    found = tree(an_account("a", limits={"resources": {resource: quantity}}))
    assert found.accounts["a"].amounts == {kind: amount}


def test_a_quantity_that_cannot_be_read_limits_nothing_and_is_named() -> None:
    found = tree(an_account("a", limits={"running": 1, "resources": {"cpu": "many", "memory": "1Gi"}}))
    reason, message = problem(found, "a")
    assert (reason, message.startswith("spec.limits.resources.cpu: ")) == ("InvalidQuantity", True)
    assert (found.accounts["a"].running, found.accounts["a"].amounts) == (1, {"memory": 1024})


def test_a_guarantee_is_read_as_limits_are_and_a_wrong_quantity_is_named() -> None:
    found = tree(
        an_account("md", guaranteed={"nodes": 2, "resources": {"cpu": "1500m", "memory": "all"}}),
        an_account("sub", guaranteed={}),
    )
    assert found.accounts["md"].guaranteed == Guarantee(2, {"cpu": 1500})
    assert problem(found, "md")[1].startswith("spec.guaranteed.resources.memory: ")
    assert problem(found, "md")[1].endswith("until then nothing of it is guaranteed")
    assert found.accounts["sub"].guaranteed is None
    assert not found.limited
