"""Kubernetes quantities, parsed to exact numbers.

A quantity is text (``100m``, ``1.5``, ``16Gi``, ``1e3``). Requests are rounded up and capacities are rounded
down to the units of the graph, so that rounding never makes a request smaller or a node larger than it is.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

__all__ = ["InvalidQuantity", "parse_quantity"]

_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?P<suffix>[eE][+-]?[0-9]{1,3}|Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?)"
)
_SHORT = 32
_SCALE = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


class InvalidQuantity(ValueError):
    """The text is not a Kubernetes quantity, or is negative."""


def parse_quantity(text: str | int | float) -> Decimal:
    """Parse a quantity to its base unit (cores, bytes, items).

    Parameters
    ----------
    text
        As in a manifest: ``100m``, ``1.5``, ``16Gi``, ``1e3``, or a plain number.

    Returns
    -------
    Decimal
        Exact, never negative.

    Raises
    ------
    InvalidQuantity
        With the text and examples of accepted ones.
    """
    written = str(text)
    return _parse_short(written) if len(written) <= _SHORT else _parse(written)


def _parse(text: str) -> Decimal:
    form = _FORM.fullmatch(text)
    if not form:
        raise InvalidQuantity(f"{text!r:.40} is not a quantity: write 2, 500m, 1.5, 16Gi or 1e3")
    suffix = form["suffix"]
    if suffix not in _SCALE:
        value = Decimal(form["number"]).scaleb(int(suffix[1:]))
    else:
        value = Decimal(form["number"]) * _SCALE[suffix]
    if value < 0:
        raise InvalidQuantity(f"{text!r:.40} is negative: a request or capacity is 0 or more")
    return value


_parse_short: Final = lru_cache(maxsize=4096)(_parse)
"""Cached, because the pods of a cluster use few different quantities."""
