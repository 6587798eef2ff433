"""What work cost, as `history`, `report` and the dashboard show it: only if the queue has prices, and rounded
here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

from fluxqueue.cli.exports import Column

__all__ = ["COST", "cost_cells", "cost_text", "cost_titles", "currency_of"]

COST: Final = Column("cost", "number")
"""Of exports; a decimal number that is not rounded."""
_LONGEST: Final = 12
_CENT: Final = Decimal("0.01")


def currency_of(answer: Mapping[str, Any]) -> str:
    """Return the currency of an answer of the queue; empty: it has no prices."""
    return str(answer.get("currency") or "")[:_LONGEST]


def cost_titles(answer: Mapping[str, Any]) -> list[str]:
    """Return the title of the column of costs, with the currency of an answer; none without prices."""
    currency = currency_of(answer)
    return [f"COST-{currency}".upper()] if currency else []


def cost_cells(row: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Return the cost of a row of an answer; no cell without prices."""
    return [cost_text(row)] if currency_of(answer) else []


def cost_text(row: Mapping[str, Any]) -> str:
    """Return the cost of a row, rounded to a hundredth; empty if it has none."""
    try:
        return f"{Decimal(str(row.get('cost'))).quantize(_CENT, ROUND_HALF_UP):f}"
    except InvalidOperation:
        return ""
