"""Labels of selectors that no object can carry, so that the selector never matches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["bad_labels"]

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DOMAIN = 253


def bad_labels(field: str, labels: Mapping[str, str], consequence: str) -> Iterator[str]:
    """Yield a sentence for each label that no object can carry; ``consequence`` says what follows from it."""
    for key, value in labels.items():
        if not _is_label_key(key):
            yield f"{field}: {key!r} is no key of a label, {consequence}: correct or remove it"
        elif value and not _NAME.fullmatch(value):
            yield f"{field}: {value!r} is no value of the label {key}, {consequence}: correct or remove it"


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    if slash and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None
