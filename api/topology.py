"""What an object asks of the topology of the cluster: which level its pods lie below, groups of them, and how
they share nodes.

Levels are vertex types of the graph above nodes, and ``node`` itself. Each is named by a node label. An
object names a level by its name or by its label, so that Kueue's annotations, whose values are labels, mean
the same. The annotations of the object count before those of its pod template, ours before Kueue's, and all
of them before the defaults of its queue. ``none`` ends a default. A default never makes an object invalid by
what the object says itself: it yields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fluxqueue.api import names
from fluxqueue.api.bounds import max_pods
from fluxqueue.api.texts import did_you_mean

__all__ = [
    "ANYWHERE",
    "DEFAULT_LEVELS",
    "NODE_LEVEL",
    "InvalidTopology",
    "TopologyLevel",
    "TopologyRequest",
    "UnknownLevel",
    "levels_of",
    "levels_problem",
    "read_slice",
    "topology_of",
    "unreadable_topology",
    "within_domain",
]

NODE_LEVEL = "node"
NONE = "none"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SLICE = re.compile(r"(\d{1,7})@(\S{1,316})")
_MOST_LEVELS = 16
_OWN = "annotation"
_REQUIRED = (names.REQUIRED_TOPOLOGY_ANNOTATION, names.KUEUE_REQUIRED_TOPOLOGY_ANNOTATION)
_PREFERRED = (names.PREFERRED_TOPOLOGY_ANNOTATION, names.KUEUE_PREFERRED_TOPOLOGY_ANNOTATION)
_RESERVED = frozenset(
    {
        "cluster",
        NODE_LEVEL,
        "slot",
        "xor-slot",
        "core",
        "socket",
        "gpu",
        "cpu",
        "memory",
        "pods",
        "ssd",
        "storage",
        "ephemeral-storage",
        NONE,
    }
)

TopologyLevel = tuple[str, str]
"""Name of a level, and the node label that names its vertices."""

DEFAULT_LEVELS: tuple[TopologyLevel, ...] = (
    ("zone", names.ZONE_LABEL),
    ("block", "topology.kubernetes.io/block"),
    ("rack", "topology.kubernetes.io/rack"),
)
"""From the top down."""


class InvalidTopology(ValueError):
    """A request about the topology cannot be read; the message names the key and the remedy."""


class UnknownLevel(InvalidTopology):
    """It names a level that is none of the levels that were given."""


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a workload asks of the topology. Levels are names; empty and 0 ask for nothing.

    Attributes
    ----------
    required
        All pods lie below one vertex of this level.
    preferred
        All pods lie below one vertex of this level if possible, else below one of the next level up, and so
        on.
    slice_level, slice_size
        Each group of so many pods, in the order of ranks, lies below one vertex of this level.
    exclusive
        No other workload shares a node with it.
    pods_per_node
        Most of its pods on one node.
    optional_slices
        True if pods that cannot be divided into slices prefer their level instead.
    together
        Label of nodes that has one value on the nodes of all pods; it need not be that of a level.
    """

    required: str = ""
    preferred: str = ""
    slice_level: str = ""
    slice_size: int = 0
    exclusive: bool = False
    pods_per_node: int = 0
    optional_slices: bool = False
    together: str = ""


ANYWHERE = TopologyRequest()


def levels_problem(levels: Sequence[TopologyLevel]) -> str:
    """Return what is wrong with the configured levels; empty if nothing is."""
    if len(levels) > _MOST_LEVELS:
        return f"{len(levels)} levels are too many: at most {_MOST_LEVELS}"
    for name, label in levels:
        if not _NAME.fullmatch(name) or name in _RESERVED:
            return (
                f"{name!r} is no name of a level: use lower-case letters, digits and dashes, and none of "
                f"{', '.join(sorted(_RESERVED))}"
            )
        if not label:
            return f"level {name!r} has no label: name the node label whose value names the {name} of a node"
    if len({name for name, _ in levels}) < len(levels) or len({label for _, label in levels}) < len(levels):
        return "two levels have the same name or the same label: each level needs its own"
    return ""


def levels_of(texts: Sequence[str]) -> tuple[TopologyLevel, ...]:
    """Read levels as the options of programs name them, from the top down: each
    ``rack=topology.kubernetes.io/rack``.

    Raises
    ------
    InvalidTopology
        These cannot be the levels of an installation.
    """
    levels = tuple((name, label) for name, _, label in (text.partition("=") for text in texts))
    if problem := levels_problem(levels):
        raise InvalidTopology(problem)
    return levels


def topology_of(
    annotations: Sequence[Mapping[str, str] | None],
    defaults: Mapping[str, str],
    levels: Sequence[TopologyLevel],
) -> TopologyRequest:
    """Return what an object asks of the topology.

    Parameters
    ----------
    annotations
        Of the object and of its pod template; the first count first.
    defaults
        Of its queue, by the key of our annotation.
    levels
        The levels of this installation, from the top down.

    Raises
    ------
    InvalidTopology
        A value cannot be read, names an unknown level, or contradicts another one.
    """
    reader = _Reader(annotations, defaults, levels)
    if not reader.any:
        return ANYWHERE
    request = reader.with_slice(TopologyRequest(reader.level(*_REQUIRED), reader.level(*_PREFERRED)))
    request = replace(
        request,
        exclusive=reader.truth(names.EXCLUSIVE_ANNOTATION),
        pods_per_node=reader.number(names.PODS_PER_NODE_ANNOTATION),
    )
    return reader.in_order(request)


def within_domain(request: TopologyRequest, label: str, levels: Sequence[TopologyLevel]) -> TopologyRequest:
    """Return the request with all its pods in one domain of a node label: below one vertex, if that is the
    label of a level.

    Parameters
    ----------
    request
        What the object asks otherwise.
    label
        The key.
    levels
        The levels of this installation, from the top down.
    """
    level = next(
        (name for name, each in levels if each == label), NODE_LEVEL if label == names.HOSTNAME_LABEL else ""
    )
    if not level or request != ANYWHERE:
        return replace(request, together=label)
    return replace(request, required=level)


def unreadable_topology(
    *annotations: Mapping[str, str] | None, levels: Sequence[TopologyLevel] = ()
) -> Iterator[str]:
    """Yield a sentence for each annotation that cannot be read, or names no level, whatever the defaults of
    its queue are.

    Parameters
    ----------
    annotations
        Of an object and of its pod template.
    levels
        The levels of this installation, from the top down; none if they are not known.
    """
    reader = _Reader(annotations, {}, levels)
    if not reader.any:
        return
    checks: tuple[Callable[[], object], ...] = (
        reader.own_slice,
        partial(reader.truth, names.EXCLUSIVE_ANNOTATION),
        partial(reader.number, names.PODS_PER_NODE_ANNOTATION),
        partial(reader.number, names.KUEUE_SLICE_SIZE_ANNOTATION),
        *(
            (partial(reader.level, *_REQUIRED), partial(reader.level, *_PREFERRED), reader.slice_level)
            if levels
            else ()
        ),
    )
    for check in checks:
        try:
            check()
        except InvalidTopology as error:
            yield str(error)


def read_slice(text: str) -> tuple[int, str]:
    """Read ``8@rack``: the pods of a slice, and the level.

    Raises
    ------
    InvalidTopology
        It is something else.
    """
    read = _SLICE.fullmatch(text.strip())
    if read is None or not 1 <= int(read[1]) <= max_pods():
        raise InvalidTopology(f"{text!r:.80} is no slice: write pods@level, such as 8@rack")
    return int(read[1]), read[2]


class _Reader:
    """Reads the values that are set, each with where it is set."""

    def __init__(
        self,
        annotations: Sequence[Mapping[str, str] | None],
        defaults: Mapping[str, str],
        levels: Sequence[TopologyLevel],
    ) -> None:
        self._own = [each for each in annotations if each]
        self._defaults = defaults
        self._by_label = {names.HOSTNAME_LABEL: NODE_LEVEL, **{label: name for name, label in levels}}
        self._order = [NODE_LEVEL, *(name for name, _ in reversed(levels))]

    @property
    def any(self) -> bool:
        """True if anything is set."""
        return bool(self._defaults) or any(key in each for each in self._own for key in names.TOPOLOGY_KEYS)

    def _value(self, *keys: str) -> tuple[str, str]:
        """Return the first value of these keys and where it is; two empty strings if there is none."""
        for key in keys:
            for each in self._own:
                if (text := each.get(key, "").strip()) != "":
                    return ("", "") if text == NONE else (text, f"{_OWN} {key}")
        text = self._defaults.get(keys[0], "").strip()
        return ("", "") if text in ("", NONE) else (text, f"the default of its queue for {keys[0]}")

    def level(self, *keys: str) -> str:
        """Return the name of a level; empty if none is named."""
        text, where = self._value(*keys)
        return self._named(text, where) if text else ""

    def _named(self, text: str, where: str) -> str:
        name = self._by_label.get(text, text)
        if name not in self._order:
            known = ", ".join(reversed(self._order))
            meant = did_you_mean(text, [*self._order, *self._by_label])
            raise UnknownLevel(
                f"{where}: {text!r:.80} is no level of this cluster: {meant}use one of {known}, "
                "or the node label of one"
            )
        return name

    def with_slice(self, request: TopologyRequest) -> TopologyRequest:
        """Return the request with its slices."""
        size, level, where = self.own_slice()
        optional = bool(size) and not where.startswith(_OWN)
        if size and not (optional and self._value(names.KUEUE_SLICE_LEVEL_ANNOTATION)[0]):
            return replace(
                request, slice_level=self._named(level, where), slice_size=size, optional_slices=optional
            )
        level, where = self._value(names.KUEUE_SLICE_LEVEL_ANNOTATION)
        size = self.number(names.KUEUE_SLICE_SIZE_ANNOTATION)
        if bool(level) != bool(size):
            keys = (names.KUEUE_SLICE_LEVEL_ANNOTATION, names.KUEUE_SLICE_SIZE_ANNOTATION)
            raise InvalidTopology(f"annotation {keys[bool(size)]} is set without {keys[not size]}: set both")
        return replace(request, slice_level=self._named(level, where), slice_size=size) if size else request

    def own_slice(self) -> tuple[int, str, str]:
        """Return the slices in our words: size (0: none), level and where they are set."""
        text, where = self._value(names.TOPOLOGY_SLICE_ANNOTATION)
        if not text:
            return 0, "", ""
        try:
            return *read_slice(text), where
        except InvalidTopology as error:
            raise InvalidTopology(f"{where}: {error}") from None

    def slice_level(self) -> str:
        """Return the level of its slices, in our words or Kueue's;
        empty if none is named, or if the slices cannot be read.
        """
        try:
            _, level, where = self.own_slice()
        except InvalidTopology:
            return ""
        return self._named(level, where) if level else self.level(names.KUEUE_SLICE_LEVEL_ANNOTATION)

    def number(self, key: str) -> int:
        """Return a number of pods; 0 if none is set."""
        text, where = self._value(key)
        if not text:
            return 0
        if not text.isdecimal() or len(text) > 7 or not 1 <= int(text) <= max_pods():
            raise InvalidTopology(
                f"{where}: {text!r:.80} is no number of pods: write a whole number from 1 to {max_pods()}"
            )
        return int(text)

    def truth(self, key: str) -> bool:
        """Return True if a key is set to true."""
        text, where = self._value(key)
        if text not in ("", "true", "false"):
            raise InvalidTopology(f'{where}: {text!r:.80} is neither "true" nor "false"')
        return text == "true"

    def in_order(self, request: TopologyRequest) -> TopologyRequest:
        """Return the request without the defaults that contradict what the object says; refuse other
        contradictions.

        What all pods below a required default do anyway need not be asked for.
        """
        required_by_default = bool(request.required) and self._is_default(_REQUIRED)
        preferred_by_default = bool(request.preferred) and self._is_default(_PREFERRED)
        required, preferred, slices = request.required, request.preferred, request.slice_level
        if self._above(preferred, required):
            if required_by_default is preferred_by_default:
                raise InvalidTopology(_not_below("preferred", preferred, required))
            request = replace(request, preferred="")
        if self._above(slices, required):
            if required_by_default is request.optional_slices:
                raise InvalidTopology(_not_below("slice's", slices, required))
            return replace(request, slice_level="", slice_size=0, optional_slices=False)
        if self._above(slices, request.preferred):
            if preferred_by_default is request.optional_slices:
                raise InvalidTopology(
                    f"the level of its slices, {slices}, is above the preferred level {preferred}: "
                    "name one at or below it"
                )
            if preferred_by_default:
                return replace(request, preferred="")
            return replace(request, slice_level="", slice_size=0, optional_slices=False)
        return request

    def _is_default(self, keys: tuple[str, str]) -> bool:
        return not self._value(*keys)[1].startswith(_OWN)

    def _above(self, level: str, other: str) -> bool:
        return bool(level and other) and self._order.index(level) > self._order.index(other)


def _not_below(what: str, level: str, required: str) -> str:
    return (
        f"its {what} level {level} is above the required level {required}: "
        f"name a level at or below {required}"
    )
