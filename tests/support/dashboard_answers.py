"""An answer of the dashboard, whoever asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Answer"]

_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


@dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def csrf(self) -> str:
        """The secret of its forms."""
        found = _CSRF.search(self.text)
        assert found, self.text[:2_000]
        return found[1]
