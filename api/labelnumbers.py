"""Numbers in the values of labels, as Kubernetes compares them (``Gt`` and ``Lt`` of a required node
affinity).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["label_number"]

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_INT64: Final = range(-(2**63), 2**63)


def label_number(text: str | None) -> int | None:
    """Return the 64-bit number that a text is, as Go's ``strconv.ParseInt`` reads it in base 10;
    None if it is none.
    """
    if text is None or not _INTEGER.fullmatch(text) or (number := int(text)) not in _INT64:
        return None
    return number
