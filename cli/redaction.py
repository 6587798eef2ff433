"""Takes what is or looks like a secret out of texts that leave the site.

What is recognised: private keys, tokens by their form (JSON Web Tokens and those of well-known services),
passwords in addresses, what follows Bearer or Basic, and the value of every key whose name says password,
token, secret or the like. The last takes out too much rather than too little: `secretName: x` loses its value
too.
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["REMOVED", "redacted", "redacted_object"]

REMOVED: Final = "(removed)"

_WORDS: Final = (
    r"passw(?:or)?d|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"authorization|credential|cookie|headers"
)
_KEY: Final = re.compile(rf"(?i){_WORDS}")
_WHOLE: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[baprs]-|sk-)[\w-]{16,}"),
)
_AFTER: Final = (
    re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/@\"']*:[^\s@\"']+(?=@)", re.IGNORECASE),
    re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE),
    re.compile(
        r"([\w.-]*(?:"
        rf"{_WORDS})[\w.-]*\\?[\"']?\s*[:=]\s*)(?:\\\"(?:[^\"\\]|\\[^\"])*\\\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&\"'{{}}\[\]]+)",
        re.IGNORECASE,
    ),
)


def redacted(text: str) -> str:
    """Return a text without what looks like a secret."""
    for pattern in _WHOLE:
        text = pattern.sub(REMOVED, text)
    for pattern in _AFTER:
        text = pattern.sub(rf"\1{REMOVED}", text)
    return text


def redacted_object(value: Any, key: str = "") -> Any:
    """Return a JSON value without what looks like a secret;
    every text below a key that names one is removed.
    """
    if isinstance(value, dict):
        return {
            name: redacted_object(each, key if _KEY.search(key) else str(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [redacted_object(each, key) for each in value]
    if isinstance(value, str):
        return REMOVED if value and _KEY.search(key) else redacted(value)
    return value
