"""`fluxqueue fluxion graph`: print, check or make the file of a resource graph.

``show`` and ``check`` read JGF, ``from-nodes`` reads the output of ``kubectl get nodes -o json``; ``-`` is
standard input. Results go to standard output, an error to standard error in one sentence.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.graph.files import UnreadableGraph, check_jgf, read_tree, tree_lines, write_jgf
from fluxqueue.fluxion.graph.nodes import NodeRules, graph_node

__all__ = ["run"]

_FAILED = 1


class _NodeList(msgspec.Struct):
    """A List, or a single Node."""

    kind: str = ""
    items: list[Node] | None = None


class _Failure(Exception):
    """The command failed; the message is for the user."""


def run(arguments: argparse.Namespace) -> int:
    """Carry out one action; return 0, or 1 with a sentence on standard error."""
    try:
        match arguments.action:
            case "show":
                return _show(_read(arguments.file), arguments.all)
            case "check":
                return _check(_read(arguments.file))
            case _:
                return _from_nodes(
                    _read(arguments.file), NodeRules(_levels(arguments.levels), arguments.cpu_vertex)
                )
    except (_Failure, UnreadableGraph) as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return _FAILED


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise _Failure(f"cannot be read: {error.strerror}") from None


def _show(text: bytes, everything: bool) -> int:
    for line in tree_lines(read_tree(text), everything):
        print(line)
    return 0


def _check(text: bytes) -> int:
    problems = check_jgf(text)
    for problem in problems:
        print(f"{'error' if problem.fatal else 'note'}: {problem.sentence}")
    if any(problem.fatal for problem in problems):
        return _FAILED
    print("the graph loads")
    return 0


def _levels(text: str) -> tuple[tuple[str, str], ...]:
    levels = []
    for part in text.split(",") if text else ():
        kind, equals, label = part.partition("=")
        if not (kind and equals and label):
            raise _Failure(
                f"--levels {part!r}: write TYPE=LABEL, for example zone=topology.kubernetes.io/zone"
            )
        levels.append((kind, label))
    return tuple(levels)


def _from_nodes(text: bytes, rules: NodeRules) -> int:
    made = [graph_node(node, rules) for node in _nodes(text)]
    for node in made:
        if node.reason:
            print(f"note: {node.reason}", file=sys.stderr)
    print(write_jgf([node.spec for node in made]))
    return 0


def _nodes(text: bytes) -> Sequence[Node]:
    try:
        nodes = msgspec.json.decode(text, type=_NodeList)
        if nodes.kind == "Node":
            return [msgspec.json.decode(text, type=Node)]
    except msgspec.MsgspecError as error:
        raise _Failure(f"not a list of nodes as kubectl prints it with -o json: {error}") from None
    if nodes.items is None:
        raise _Failure("not a list of nodes as kubectl prints it with -o json: items is missing")
    return nodes.items
