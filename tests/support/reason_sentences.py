"""The sentences that the queue gives with reasons, as its code has them.

A sentence is the text of an f-string or literal that is passed with a member of `Reason` in one call, or is
the value of a variable that is. What is put into it is ``{}``. What is over a limit (`OverLimit`) has the
reason of the limit, of a queue or an account. A variable that gets several sentences in a function is taken
for each of them, so a few pairs are found that are never shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from fluxqueue.api.fluxjobs import Reason

__all__ = ["sentences_in"]


def sentences_in(folder: Path) -> set[tuple[Reason, str]]:
    """Return the reasons and sentences in the code below a folder."""
    return {
        found for path in sorted(folder.rglob("*.py")) for found in _of_module(ast.parse(path.read_text()))
    }


def _of_module(tree: ast.Module) -> Iterator[tuple[Reason, str]]:
    for function in (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ):
        texts = _texts_by_name(function)
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            for reason in [
                *_of_limit(call),
                *(reason for each in arguments if (reason := _reason(each)) is not None),
            ]:
                yield from ((reason, text) for each in arguments for text in _texts(each, texts))


def _texts_by_name(function: ast.AST) -> dict[str, set[str]]:
    """Return the texts that a function assigns to variables."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, set()).update(_texts(node.value, {}))
    return found


def _reason(node: ast.expr) -> Reason | None:
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    return Reason[node.attr] if named and isinstance(node, ast.Attribute) and node.attr != "NONE" else None


def _of_limit(call: ast.Call) -> list[Reason]:
    return [Reason.QUEUE_LIMIT] if isinstance(call.func, ast.Name) and call.func.id == "OverLimit" else []


def _texts(node: ast.expr, known: dict[str, set[str]]) -> set[str]:
    if isinstance(node, ast.Name):
        return known.get(node.id, set())
    if isinstance(node, ast.JoinedStr):
        return {"".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value} if " " in node.value else set()
    return set()
