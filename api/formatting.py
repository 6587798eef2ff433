"""Amounts, constraints and node lists, formatted for people.

The graph counts millicores and MiB, a constraint is JSON (RFC 31), and nodes are a hostlist (RFC 29).
Messages, Events and tables show ``4 cpu``, ``2 GiB memory``, ``2 nvidia.com/gpu``,
``disk=ssd, not on node-2`` and ``node-4 (2)`` instead. All text for people is formatted here; data for
programs keeps the other forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluxqueue.api import hostlists, names
from fluxqueue.api.bounds import is_measured_in_bytes
from fluxqueue.api.graphnames import CPU, POD_SLOTS, display_name, is_port

__all__ = [
    "format_constraint",
    "format_graph_amount",
    "format_limits",
    "format_node_set",
    "format_nodes",
    "format_quantity",
    "natural_order",
    "some_of",
]

_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_MEBI = 1 << 20
_NAMED = 5
_DIGITS = 18
"""Of a number at the end of a name, by which names are ordered."""
_LONGEST = 400
_LONGEST_SET = 60
_TAINT = "taint:"


def format_limits(
    counts: Iterable[tuple[str, int | None]], resources: Mapping[str, str | int | float] | None = None
) -> str:
    """Format limits, such as ``2 nodes, 8 cores, 4 nvidia.com/gpu``:
    counts by name, None for no limit, and quantities by resource name.
    """
    return ", ".join(
        f"{most} {name}" for name, most in (*counts, *sorted((resources or {}).items())) if most is not None
    )


def format_quantity(resource: str, amount: float) -> str:
    """Format an amount of a Kubernetes resource, given in its base unit: cores, bytes or items.

    Examples
    --------
    >>> format_quantity("cpu", 0.25), format_quantity("memory", 2 << 30), format_quantity("nvidia.com/gpu", 2)
    ('0.25 cpu', '2 GiB memory', '2 nvidia.com/gpu')
    """
    if is_measured_in_bytes(resource):
        for unit, size in _SIZES:
            if amount >= size:
                return f"{_number(amount / size)} {unit} {resource}"
    return f"{_number(amount)} {resource}"


def format_graph_amount(kind: str, amount: int) -> str:
    """Format an amount of a resource type of the graph, given in millicores, MiB or items.

    Examples
    --------
    >>> format_graph_amount("cpu", 4000), format_graph_amount("memory", 512), format_graph_amount("pods", 1)
    ('4 cpu', '512 MiB memory', '1 pod')
    """
    if kind == POD_SLOTS:
        return "1 pod" if amount == 1 else f"{amount} pods"
    resource = display_name(kind)
    if is_port(kind):
        return resource
    if kind == CPU:
        return format_quantity(resource, amount / 1000)
    return format_quantity(resource, amount * _MEBI if is_measured_in_bytes(resource) else amount)


def format_constraint(constraint: Mapping[str, Any] | None) -> str:
    """Format a constraint on nodes (RFC 31); empty if it allows every node. What is tolerated is no rule
    about nodes, and left out.

    Examples
    --------
    >>> format_constraint({"and": [{"properties": ["disk=ssd"]}, {"not": [{"hostlist": ["node-2"]}]}]})
    'disk=ssd, not on node-2'
    """
    text = _words(constraint) if constraint else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def format_nodes(nodes: str | Sequence[str]) -> str:
    """Format a hostlist, or hosts by rank: each node once, with the number of its pods if there are several.

    Examples
    --------
    >>> format_nodes("node-[4,4,5-6]")
    'node-4 (2), node-[5-6]'
    """
    try:
        hosts = hostlists.decode(nodes) if isinstance(nodes, str) else nodes
    except hostlists.InvalidHostlist:
        return str(nodes)
    pods: dict[str, int] = {}
    for host in hosts:
        if host != names.NO_NODE:
            pods[host] = pods.get(host, 0) + 1
    counts: dict[int, list[str]] = {}
    for host, count in pods.items():
        counts.setdefault(count, []).append(host)
    return ", ".join(_with_count(group, count) for count, group in counts.items())


def format_node_set(nodes: str) -> str:
    """Format a hostlist as a column of a table: each node once, or their number if that is long.

    Examples
    --------
    >>> format_node_set("node-[4,4,5,3-4]")
    'node-[3-5]'
    >>> format_node_set(",".join(f"gpu{number}a" for number in range(50)))
    '50 nodes'
    """
    try:
        hosts = {host for host in hostlists.decode(nodes) if host != names.NO_NODE}
    except hostlists.InvalidHostlist:
        return ""
    text = hostlists.encode(sorted(hosts, key=natural_order))
    return text if len(text) <= _LONGEST_SET else f"{len(hosts)} nodes"


def natural_order(host: str) -> tuple[str, int, str]:
    """Return the sort key of a node, by which ``node-9`` comes before ``node-10``."""
    stem = host.rstrip("0123456789")
    return stem, int(host[len(stem) :][:_DIGITS] or 0), host


def _with_count(group: Sequence[str], count: int) -> str:
    text = hostlists.encode(group)
    if count == 1:
        return text
    return f"{text} ({count})" if len(group) == 1 else f"{text} ({count} each)"


def _number(amount: float) -> str:
    return f"{amount:.0f}" if amount == int(amount) else f"{amount:.4g}"


def _words(value: Any, *, negated: bool = False, inner: bool = False) -> str:
    """Format one term.
    An invalid term is left out, because the matcher refuses it with a message of its own.
    """
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    ((operator, operands),) = value.items()
    if not isinstance(operands, list):
        return ""
    match operator:
        case "and":
            return _joined(operands, " or " if negated else ", ", negated=negated, inner=inner)
        case "or":
            return _joined(operands, ", " if negated else " or ", negated=negated, inner=inner)
        case "not":
            return _words({"and": operands}, negated=not negated, inner=inner)
        case "properties":
            return _parted(
                [_property(str(text), negated=negated) for text in operands],
                " or " if negated else ", ",
                inner=inner,
            )
        case "hostlist":
            return f"{'not ' if negated else ''}on {_listed(operands)}"
        case "ranks":
            return f"{'not ' if negated else ''}of rank {_listed(operands)}"
        case "in":
            values = [{"properties": [f"{key}={value}"]} for key in operands[:1] for value in operands[1:]]
            return _words({"or": values}, negated=negated, inner=inner)
        case "greater" | "less":
            between = " > " if operator == "greater" else " < "
            return f"{'not ' if negated else ''}{between.join(str(each) for each in operands)}"
    return ""


def _joined(operands: Sequence[Any], between: str, *, negated: bool, inner: bool) -> str:
    several = len(operands) > 1
    return _parted(
        [_words(each, negated=negated, inner=several or inner) for each in operands], between, inner=inner
    )


def _parted(parts: Iterable[str], between: str, *, inner: bool) -> str:
    unique = list(dict.fromkeys(part for part in parts if part))
    text = between.join(unique)
    return f"({text})" if inner and len(unique) > 1 and between == " or " else text


def _property(text: str, *, negated: bool) -> str:
    if text.startswith("^"):
        return _property(text[1:], negated=not negated)
    if text.startswith(_TAINT):
        return f"{'without' if negated else 'with'} the taint {text.removeprefix(_TAINT)}"
    if "=" not in text:
        return f"{'without' if negated else 'with'} the label {text}"
    return f"not {text}" if negated else text


def _listed(operands: Sequence[Any]) -> str:
    return some_of([str(each) for each in operands], _NAMED)


def some_of(texts: Sequence[str], most: int) -> str:
    """Return the first texts of many, such as ``a, b and 4 more``."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"
