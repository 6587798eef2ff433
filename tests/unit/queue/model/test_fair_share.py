"""Fair share: the place of each account in the Fair Tree, and its factor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_account

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.queue.model.accounts import AccountTree, account_tree
from fluxqueue.queue.model.fair_share import fair_shares, user_factor, user_shares


def a_tree(**accounts: dict[str, Any]) -> AccountTree:
    return account_tree(
        msgspec.convert(make_account(name, **spec), FluxAccount) for name, spec in accounts.items()
    )


def factors(tree: AccountTree, **uses: float) -> dict[str, float | None]:
    return {name: each.factor for name, each in fair_shares(tree, uses).items()}


def test_who_used_less_than_its_share_comes_first() -> None:
    tree = a_tree(a={"shares": 1}, b={"shares": 3})
    assert factors(tree, a=100, b=299) == {"a": 0.5, "b": 1.0}
    assert factors(tree, a=100, b=301) == {"a": 1.0, "b": 0.5}


def test_accounts_that_are_equal_have_the_same_factor() -> None:
    tree = a_tree(a={}, b={}, c={"shares": 2})
    assert factors(tree) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert factors(tree, a=5, b=5, c=10) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert factors(tree, a=5, b=5, c=11) == {"a": 1.0, "b": 1.0, "c": 0.333333}


def test_zero_shares_come_last_even_without_use() -> None:
    assert factors(a_tree(a={"shares": 0}, b={}), b=1_000) == {"a": 0.5, "b": 1.0}


def test_all_below_a_better_account_come_before_all_below_a_worse_one() -> None:
    tree = a_tree(
        good={},
        bad={},
        heavy={"parent": "good"},
        light={"parent": "good"},
        idle={"parent": "bad"},
        busy={"parent": "bad"},
    )
    found = factors(tree, heavy=90, light=5, idle=0, busy=100)
    assert found == {"good": None, "bad": None, "light": 1.0, "heavy": 0.75, "idle": 0.5, "busy": 0.25}


def test_the_accounts_below_equal_ones_are_sorted_together() -> None:
    tree = a_tree(
        one={}, two={}, a={"parent": "one"}, b={"parent": "one"}, c={"parent": "two"}, d={"parent": "two"}
    )
    assert factors(tree, a=10, b=90, c=20, d=80) == {
        "one": None,
        "two": None,
        "a": 1.0,
        "c": 0.75,
        "d": 0.5,
        "b": 0.25,
    }


def test_the_own_work_of_a_parent_is_one_more_account_below_it_with_one_share() -> None:
    tree = a_tree(site={"namespaces": ["ops"]}, team={"parent": "site", "shares": 3})
    assert factors(tree, site=10, team=29) == {"site": 0.5, "team": 1.0}
    assert factors(tree, site=10, team=31) == {"site": 1.0, "team": 0.5}


def test_a_fair_share_has_its_figures() -> None:
    tree = a_tree(site={}, a={"parent": "site", "shares": 1}, b={"parent": "site", "shares": 3})
    found = fair_shares(tree, {"a": 100, "b": 100, "gone": 5})
    assert (found["site"].share, found["site"].use, found["site"].factor) == (1.0, 200, None)
    assert (found["a"].share, found["a"].level) == (0.25, 0.5)
    assert (found["b"].share, found["b"].level) == (0.75, 1.5)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 9), st.floats(0, 1e12)), min_size=1)
)
def test_the_factors_are_places_from_one_down(accounts: dict[str, tuple[int, float]]) -> None:
    tree = a_tree(**{name: {"shares": shares} for name, (shares, _) in accounts.items()})
    found = [
        each or 0 for each in factors(tree, **{name: use for name, (_, use) in accounts.items()}).values()
    ]
    assert max(found) == 1.0
    assert min(found) >= 1 / len(accounts) - 1e-6


def test_users_of_an_account_divide_its_place_and_who_used_nothing_has_the_factor_of_the_account() -> None:
    account = fair_shares(a_tree(a={}, b={}), {"a": 10, "b": 20})["a"]
    found = user_shares(account, {"alice": 30, "bob": 10, "carol": 0, "dave": 10})
    assert found == {"bob": (10, 0.875), "dave": (10, 0.875), "alice": (30, 0.625)}
    assert [user_factor(replace(account, users=found), user) for user in ("alice", "carol", "new")] == [
        0.625,
        1.0,
        1.0,
    ]
    assert user_factor(None, "alice") == 0.0


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=6), st.lists(st.floats(0, 1e9), max_size=40))
def test_all_users_of_an_account_come_before_the_accounts_that_follow(
    used: list[float], of_users: list[float]
) -> None:
    tree = a_tree(**{f"a{number}": {} for number in range(len(used))})
    shares = fair_shares(tree, {f"a{number}": use for number, use in enumerate(used)})
    users = {f"u{number}": use for number, use in enumerate(of_users)}
    for account in shares.values():
        factors_there = {user: share.factor for user, share in user_shares(account, users).items()}
        following = max(
            (each.factor or 0 for each in shares.values() if (each.factor or 0) < (account.factor or 0)),
            default=0.0,
        )
        assert all(following < factor < (account.factor or 0) for factor in factors_there.values())
        ranked = sorted(factors_there, key=lambda user: users[user])
        assert [factors_there[user] for user in ranked] == sorted(factors_there.values(), reverse=True)
