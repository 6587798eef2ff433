"""The texts that programs may show to people, as their code has them: literals of several words, without
docstrings.

What is put into an f-string is ``{}``. Keys of logs have no spaces, so they are none of these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["jargon_in", "texts_in"]

_JARGON = re.compile(
    r"\b(slots?|vertex|vertices|matched|matcher|matching|rematched|jobspecs?|intake|ledger|gangs?|hostlists?|epochs?|sweeps?|remnants?)\b",
    re.IGNORECASE,
)
_FEWEST_SPACES = 2


def texts_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal of three words and more in a module."""
    tree = ast.parse(path.read_text())
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
    for node in ast.walk(tree):
        text = _text(node)
        if text is not None and node not in left_out and text.count(" ") >= _FEWEST_SPACES:
            yield getattr(node, "lineno", 0), text


def jargon_in(text: str) -> str | None:
    """Return the first word that only who knows the code understands;
    what is written as code, such as ``gangs.resources``, is none.
    """
    found = _JARGON.search(re.sub(r"[\w.-]*\w[._]\w[\w.-]*|--[\w-]+", "", text))
    return found[0] if found else None


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None
