"""Flavors: several sets of nodes in an order, of which a job uses one.

They are an extension of the jobspec (``attributes.system.flavors``): a list of maps with ``name``, ``wait``
and ``labels``. A job runs on nodes of one flavor, all of which have its labels, and none of which it may use
before it has waited so many seconds. Since when it waits is said with each request
(`fluxqueue.fluxion.messages.JobMatchRequest`), so requests that are alike stay one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fluxqueue.fluxion.documents import Document

__all__ = ["Flavor", "InvalidFlavors", "admitting_any", "read_flavors"]

_MOST_FLAVORS = 64
_MOST_LABELS = 64
_KEYS = {"name", "wait", "labels"}
_LONGEST_WAIT_S = (1 << 32) - 1


class InvalidFlavors(ValueError):
    """The value is not a list of flavors; the message names the key."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A set of nodes.

    Attributes
    ----------
    name
        For people.
    wait_s
        How long a job has waited, in seconds, when it may use them.
    labels
        Properties that each of them has.
    """

    name: str
    wait_s: int
    labels: tuple[str, ...]

    @property
    def constraint(self) -> dict[str, Document]:
        """Which nodes are of this flavor, as a constraint."""
        return {"properties": [*self.labels]}

    def opens_at(self, waits_since: int) -> int:
        """Return from when on a job may use them that waits since then; 0 without a wait, whatever the clocks
        say.
        """
        return waits_since + self.wait_s if self.wait_s else 0


def read_flavors(value: Document) -> tuple[Flavor, ...]:
    """Read flavors; `InvalidFlavors` says what is wrong with them.

    Parameters
    ----------
    value
        The document at ``attributes.system.flavors``; None: there are none.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MOST_FLAVORS:
        raise InvalidFlavors(f"flavors: a list of at most {_MOST_FLAVORS} is needed")
    return tuple(_flavor(each, f"flavors[{number}]") for number, each in enumerate(value))


def _flavor(value: Document, where: str) -> Flavor:
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise InvalidFlavors(f"{where}: a map of name, wait and labels is needed")
    name, wait_s, labels = value["name"], value["wait"], value["labels"]
    if not isinstance(name, str):
        raise InvalidFlavors(f"{where}.name: text is needed")
    if isinstance(wait_s, bool) or not isinstance(wait_s, int) or not 0 <= wait_s <= _LONGEST_WAIT_S:
        raise InvalidFlavors(f"{where}.wait: a whole number from 0 to {_LONGEST_WAIT_S} is needed")
    if not isinstance(labels, list) or not 0 < len(labels) <= _MOST_LABELS:
        raise InvalidFlavors(f"{where}.labels: a list of 1 to {_MOST_LABELS} is needed")
    if not all(isinstance(label, str) for label in labels):
        raise InvalidFlavors(f"{where}.labels: text is needed")
    return Flavor(name, wait_s, tuple(map(str, labels)))


def admitting_any(constraints: Document, flavors: Sequence[Flavor]) -> Document:
    """Return a constraint that also keeps to the nodes of any of these flavors."""
    if not flavors:
        return constraints
    parts: list[Document] = [each.constraint for each in flavors]
    any_of: Document = {"or": parts} if len(parts) > 1 else parts[0]
    return {"and": [constraints, any_of]} if constraints else any_of
