"""Costs as tables show them: a hundredth, and nothing where there are no prices."""

from __future__ import annotations

import pytest

from fluxqueue.cli.costs import cost_cells, cost_text, cost_titles


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        ("0.005", "0.01"),
        ("0.0049", "0.00"),
        ("1234567.895", "1234567.90"),
        ("0", "0.00"),
        (None, ""),
        ("x", ""),
    ],
)
def test_a_cost_is_rounded_to_a_hundredth(cost: str | None, shown: str) -> None:
    assert cost_text({"cost": cost}) == shown


def test_without_prices_there_is_no_column() -> None:
    assert (cost_titles({}), cost_cells({"cost": "1"}, {"currency": None})) == ([], [])
    assert (cost_titles({"currency": "eur"}), cost_cells({}, {"currency": "eur"})) == (["COST-EUR"], [""])
