"""Which candidates the budgets of disruption allow together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.queue.model.victim_views import BudgetShare
from fluxqueue.queue.scheduling.policies.disruption_budgets import allowed_together


def share(name: str, pods: int, allowed: int) -> BudgetShare:
    return BudgetShare("default", name, pods, allowed)


def test_each_budget_allows_as_many_in_order_as_it_says_and_a_gang_only_as_a_whole() -> None:
    shares = {
        "gang": [share("web", 3, 2)],
        "one": [share("web", 1, 2)],
        "two": [share("web", 1, 2)],
        "three": [share("web", 1, 2)],
        "job": [],
    }
    assert list(allowed_together(shares, shares.__getitem__)) == ["one", "two", "job"]


def test_work_that_two_budgets_select_needs_both() -> None:
    shares = {"a": [share("web", 1, 1), share("all", 1, 0)], "b": [share("web", 1, 1)]}
    assert list(allowed_together(shares, shares.__getitem__)) == ["b"]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("xyz"))),
    st.dictionaries(st.sampled_from("xyz"), st.integers(-1, 5)),
)
def test_no_budget_is_used_beyond_what_it_allows(
    pods: list[tuple[int, str]], allowed: dict[str, int]
) -> None:
    shares = [share(name, count, allowed.get(name, 0)) for count, name in pods]
    taken = list(allowed_together(range(len(shares)), lambda number: [shares[number]]))
    for name in "xyz":
        used = sum(shares[number].pods for number in taken if shares[number].name == name)
        assert used <= max(allowed.get(name, 0), 0)
        left = [each for number, each in enumerate(shares) if each.name == name and number not in taken]
        assert all(each.pods > 0 for each in left)
