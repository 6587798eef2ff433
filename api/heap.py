"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

__all__ = ["give_back"]


def give_back() -> None:
    """Give freed memory back, where the C library can (``malloc_trim`` of glibc).

    Texts of more than 512 bytes come from the C library, which keeps what is freed below anything that is
    still in use.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
