"""The reference of changes: what the leader runs after a change of an object, a row or a part, from the
subscriptions in the code.

Parts subscribe where they are made: ``caches.pods.add_handler(self._pod_changed)``. So no module shows who
hears of a change, and this page does.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_tables import cell, code, table

__all__ = ["Subscription", "changes_page", "subscriptions_in"]

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "cluster",
    "intake",
    "scheduling",
    "release",
    "tracking",
    "requeue",
    "miniclusters",
    "status",
    "leadership",
    "tasks",
)
"""Rooms of the queue, along the way of a Job."""
CALLS = ("add_handler", "subscribe")
_HEAD = """# What runs after a change

Written by `docs/generate.py` from the subscriptions in `queue/`. Each part of the leader subscribes where it
is made. A handler notes what changed, in memory, and the part acts later in its own loop. The rooms stand in
the order in which a Job passes them ([architecture](../architecture.md)).
"""


@dataclass(frozen=True)
class Subscription:
    """One call that subscribes.

    Attributes
    ----------
    source
        What changes, such as ``pods`` or ``ledger``.
    module, part
        Who is told: the module below ``queue``, and its class or function.
    handler
        What is called.
    about
        What the handler does, or else the part: the first paragraph of its docstring.
    """

    source: str
    module: str
    part: str
    handler: str
    about: str


def changes_page() -> str:
    """Return the page."""
    by_source: dict[str, list[Subscription]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / "queue" / room).rglob("*.py")):
            module = "/".join(path.relative_to(ROOT / "queue").with_suffix("").parts)
            for found in subscriptions_in(ast.parse(path.read_text()), module):
                by_source[found.source].append(found)
    return "\n".join([_HEAD, *_tables(by_source)]).rstrip() + "\n"


def _tables(by_source: Mapping[str, Sequence[Subscription]]) -> Iterator[str]:
    for source, those in sorted(by_source.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"## {source}"
        yield ""
        rows = (
            (code(f"{each.module}.py"), code(each.part), code(each.handler), cell(each.about))
            for each in those
        )
        yield from table(("module", "part", "what is called", "what for"), rows)


def subscriptions_in(tree: ast.Module, module: str) -> list[Subscription]:
    """Return the subscriptions of a module, in the order of its lines.

    Parameters
    ----------
    tree, module
        Its code, and its name.
    """
    found: list[Subscription] = []
    for part in tree.body:
        if not isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        methods = {
            each.name: each for each in part.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        loops = {
            node.target.id: node.iter
            for node in ast.walk(part)
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
        }
        calls = [node for node in ast.walk(part) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda node: node.lineno):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in CALLS and call.args):
                continue
            handler = call.args[0].body if isinstance(call.args[0], ast.Lambda) else call.args[0]
            method = methods.get(handler.attr) if isinstance(handler, ast.Attribute) else None
            about = (_first_paragraph(method) if method is not None else "") or _first_paragraph(part)
            called = ast.unparse(handler).removeprefix("self.")
            found += [
                Subscription(source, module, part.name, called, about)
                for source in _sources(call.func.value, loops)
            ]
    return found


def _sources(receiver: ast.expr, loops: Mapping[str, ast.expr]) -> list[str]:
    """Return the last name of what is subscribed to;
    of each element if it is the variable of a loop over a tuple.
    """
    if isinstance(receiver, ast.Name) and isinstance(among := loops.get(receiver.id), ast.Tuple):
        return [name for element in among.elts for name in _sources(element, {})]
    return [ast.unparse(receiver).rpartition(".")[2].removeprefix("_")]


def _first_paragraph(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return (ast.get_docstring(node) or "").split("\n\n")[0]
