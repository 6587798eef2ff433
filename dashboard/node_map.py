"""The nodes as a map: grouped by the levels of the topology, with what is used of each and by which work.

Work that the person does not see is counted, without a name: how full a node is tells nothing of whose work
it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from fluxqueue.api.fluxjobs import LIVE
from fluxqueue.api.formatting import format_quantity, natural_order
from fluxqueue.api.graphnames import CPU, display_name, is_gpu, resource_name, resource_type
from fluxqueue.api.nodes import Node
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity
from fluxqueue.dashboard.access import Visible
from fluxqueue.dashboard.job_rows import JobRow

__all__ = ["Cell", "Group", "NodeMap", "Part", "Use", "node_map", "resource_title"]

MEMORY: Final = "memory"
_TITLES: Final = {CPU: "Cores", MEMORY: "Memory", "nvidia.com:gpu": "GPUs", "amd.com:gpu": "GPUs (AMD)"}
_MEBI: Final = Decimal(1 << 20)
_LONGEST_WHY: Final = 200
_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: the uid of its job, empty for work that is not seen,
    and where it begins and how wide it is, in percent.
    """

    job: str
    at: float
    width: float


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one resource is used: by work that the person sees, by other work of the queue, and how
    much there is.

    ``takers`` has the uid and the amount of each job that he sees.
    """

    name: str
    seen: int
    others: int
    total: int
    takers: tuple[tuple[str, int], ...] = ()

    @property
    def title(self) -> str:
        """What people call it."""
        return resource_title(self.name)

    @property
    def text(self) -> str:
        """In words, such as ``6 of 8 cpu``."""
        used = _amount(self.name, self.seen + self.others)
        return f"{used.removesuffix(f' {display_name(self.name)}')} of {_amount(self.name, self.total)}"

    @property
    def figures(self) -> str:
        """The same below its title, in one unit: ``660 of 1,024``, ``495 of 1,024 GiB``."""
        scale, unit = {CPU: (1_000, ""), MEMORY: (1 << 10, " GiB")}.get(self.name, (1, ""))
        used, total = (amount / scale for amount in (self.seen + self.others, self.total))
        return f"{_figure(used)} of {_figure(total)}{unit}"

    @property
    def parts(self) -> list[Part]:
        """What takes how much of it, from left to right; never more than there is."""
        parts: list[Part] = []
        at = 0.0
        for job, amount in (*self.takers, ("", self.others)):
            width = min(100.0 - at, 100.0 * amount / self.total) if self.total else 0.0
            if width > 0:
                parts.append(Part(job, round(at, 2), round(width, 2)))
            at += width
        return parts


@dataclass(frozen=True, slots=True)
class Cell:
    """One node.

    Attributes
    ----------
    name, state
        ``ready``, ``cordoned`` or ``down``.
    rows
        The work on it that the person sees, the largest first.
    others
        How many other jobs are on it.
    uses
        By resource: cpu, memory, GPUs, others.
    why
        Why it takes no work, as far as something says so; empty if it does, or nothing says it.
    """

    name: str
    state: str
    rows: tuple[JobRow, ...] = ()
    others: int = 0
    uses: tuple[Use, ...] = ()
    why: str = ""

    @property
    def free(self) -> bool:
        """True if it is ready and has no work."""
        return self.state == "ready" and not self.rows and not self.others

    @property
    def percent(self) -> int:
        """How much is used of its first resource, which is the cores."""
        use = self.uses[0] if self.uses else None
        return min(100, round(100 * (use.seen + use.others) / use.total)) if use is not None else 0

    @property
    def words(self) -> str:
        """All of it in one line, for who cannot see the colours."""
        work = [f"{row.title} ({row.namespace})" for row in self.rows[:5]]
        if len(self.rows) > 5:
            work.append(f"{len(self.rows) - 5} more")
        if self.others:
            work.append(f"{self.others} other {'job' if self.others == 1 else 'jobs'}")
        state = f"{self.state} ({self.why})" if self.why else self.state
        uses = ", ".join(use.text for use in self.uses)
        return f"{self.name}, {state}: {', '.join(work) or 'no work'}; {uses}"


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes below one vertex of the lowest level; ``path`` names it from the top down."""

    path: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class NodeMap:
    """All groups, the sums of each resource, and how many nodes have each state."""

    groups: tuple[Group, ...]
    totals: tuple[Use, ...]
    states: Mapping[str, int]


@dataclass(slots=True)
class _Load:
    rows: list[tuple[Mapping[str, int], JobRow]] = field(default_factory=list)
    others: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)


def resource_title(kind: str) -> str:
    """Return what people call a resource type of the graph."""
    return _TITLES.get(kind) or display_name(kind)


def node_map(
    nodes: Iterable[Node],
    rows: Iterable[JobRow],
    visible: Visible,
    levels: Sequence[str],
    maintained: Mapping[str, str] = _NOTHING,
    usual: Collection[str] = (),
) -> NodeMap:
    """Return the map.

    Parameters
    ----------
    nodes, rows
        All nodes, and all rows, also those that the person does not see.
    visible
        What he sees.
    levels
        Node labels from the top of the topology down.
    maintained
        Names of nodes of which a maintenance has begun, with its name.
    usual
        Keys of taints that nodes have which take work: they are not why others take none.
    """
    loads: dict[str, _Load] = {}
    for row in rows:
        if row.state in LIVE:
            _add(loads, row, seen=visible.shows(row.namespace))
    groups: dict[tuple[str, ...], list[Cell]] = {}
    totals: dict[str, Use] = {}
    for node in sorted(nodes, key=lambda each: natural_order(each.metadata.name)):
        name = node.metadata.name
        cell = _cell(node, loads.get(name, _Load()), maintained.get(name, ""), usual)
        path = tuple(label for level in levels if (label := node.metadata.label(level)))
        groups.setdefault(path, []).append(cell)
        for use in cell.uses:
            so_far = totals.get(use.name, Use(use.name, 0, 0, 0))
            totals[use.name] = Use(
                use.name, so_far.seen + use.seen, so_far.others + use.others, so_far.total + use.total
            )
    ordered = sorted(groups.items(), key=lambda each: [natural_order(part) for part in each[0]])
    states = Counter(cell.state for _, cells in ordered for cell in cells)
    return NodeMap(
        tuple(Group(path, tuple(cells)) for path, cells in ordered), tuple(totals.values()), states
    )


def _add(loads: dict[str, _Load], row: JobRow, *, seen: bool) -> None:
    for host, use in row.shares.items():
        load = loads.setdefault(host, _Load())
        (load.seen if seen else load.unseen).update(use.amounts)
        if seen:
            load.rows.append((use.amounts, row))
        else:
            load.others += 1


def _why(node: Node, state: str, maintenance: str, usual: Collection[str]) -> str:
    """Return why a node takes no work: its maintenance, what its kubelet says, its own taints."""
    said = [f"FluxReservation {maintenance}"] if maintenance else []
    if state == "down":
        ready = (each for each in node.status.conditions or () if each.type == "Ready")
        said += [": ".join(filter(None, (each.reason, each.message))) for each in ready]
    own = (taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/"))
    said += [
        f"taint {taint.key}{f'={taint.value}' if taint.value else ''}"
        for taint in own
        if taint.key not in usual
    ]
    return ", ".join(filter(None, said))[:_LONGEST_WHY]


def _cell(node: Node, load: _Load, maintenance: str, usual: Collection[str]) -> Cell:
    state = "down" if not node.status.ready else "cordoned" if node.spec.unschedulable else "ready"
    placed = sorted(load.rows, key=lambda each: (-each[0].get(CPU, 0), each[1].namespace, each[1].title))
    uses = []
    for name, quantity in (node.status.allocatable or {}).items():
        if name not in ("cpu", MEMORY) and not is_gpu(name):
            continue
        kind = resource_type(name)
        takers = tuple((row.uid, amounts[kind]) for amounts, row in placed if amounts.get(kind))
        uses.append(Use(kind, load.seen[kind], load.unseen[kind], _units(name, quantity), takers))
    uses.sort(key=lambda use: (use.name != CPU, use.name != MEMORY, use.name))
    return Cell(
        node.metadata.name,
        state,
        tuple(row for _, row in placed),
        load.others,
        tuple(use for use in uses if use.total),
        _why(node, state, maintenance, usual) if state != "ready" else "",
    )


def _units(name: str, quantity: str | float) -> int:
    """Return an allocatable amount in the graph's units."""
    try:
        amount = parse_quantity(quantity)
    except InvalidQuantity:
        return 0
    return int(amount * 1000 if name == "cpu" else amount / _MEBI if name == MEMORY else amount)


def _figure(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 or amount == int(amount) else f"{amount:.3g}"


def _amount(kind: str, amount: int) -> str:
    name = resource_name(kind)
    return format_quantity(
        name, amount / 1000 if kind == CPU else amount * (1 << 20) if kind == MEMORY else amount
    )
