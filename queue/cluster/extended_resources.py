"""Resources of nodes that devices stand for: a pod asks for them by name, and the scheduler of the cluster
makes the claim (KEP-5004).

A DeviceClass may name an extended resource (``spec.extendedResourceName``), and each class has an implicit
one, ``deviceclass.resource.kubernetes.io/NAME``. On a node whose kubelet reports none of it, a pod that
requests the resource gets devices of that class. A node with a device plugin of the same name serves it as
before. So each node has one of the two, never their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from fluxqueue.api.devices import DeviceClass
from fluxqueue.api.graphnames import resource_name, resource_type
from fluxqueue.api.nodes import Node
from fluxqueue.api.quantities import InvalidQuantity, parse_quantity

__all__ = ["NO_EXTENDED_RESOURCES", "ExtendedResources", "classes_by_resource"]

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the class that stands for each resource;
    of several that name one resource the newest, then the first by name.
    """
    found: dict[str, str] = {}
    ordered = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    for each in sorted(ordered, key=lambda each: each.metadata.creation_timestamp or ""):
        found[IMPLICIT_PREFIX + each.metadata.name] = each.metadata.name
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found


class ExtendedResources:
    """The resources that classes of devices stand for.

    Parameters
    ----------
    classes
        Returns all classes.
    find_node
        Returns a node by its name, or None.

    Attributes
    ----------
    types
        Their vertex types. The object is another one after each change.
    """

    def __init__(
        self, classes: Callable[[], Collection[DeviceClass]], find_node: Callable[[str], Node | None]
    ) -> None:
        self._list = classes
        self._find_node = find_node
        self._classes: dict[str, str] = {}
        self._marks: tuple[str, ...] = ()
        self.types: frozenset[str] = frozenset()

    def __contains__(self, resource: object) -> bool:
        """True for the name of a resource that devices may stand for."""
        return resource in self._classes

    def refresh(self, _change: Any = None) -> None:
        """Read the classes again."""
        classes = classes_by_resource(self._list())
        if classes != self._classes:
            self._classes = classes
            self.types = frozenset(map(resource_type, classes))
            explicit = sorted(resource_type(name) for name in classes if not name.startswith(IMPLICIT_PREFIX))
            self._marks = (
                (resource_type(IMPLICIT_PREFIX), *(f'"{kind}"' for kind in explicit)) if classes else ()
            )

    def may_be_in(self, jobspec: str) -> bool:
        """True if a jobspec may request one of them: a look at its text, since most request none."""
        return any(mark in jobspec for mark in self._marks)

    def class_of(self, kind: str) -> str:
        """Return the class that stands for a vertex type; empty if none does."""
        return self._classes.get(resource_name(kind), "") if kind in self.types else ""

    def is_reported(self, node: str, kind: str) -> bool:
        """True if the kubelet of a node reports some of a resource, so that devices do not count there."""
        found = self._find_node(node)
        amount = (found.status.allocatable or {}).get(resource_name(kind)) if found is not None else None
        try:
            return amount is not None and parse_quantity(amount) > 0
        except InvalidQuantity:
            return False

    def served(self, node: str, kinds: Collection[str]) -> list[str]:
        """Return which of these vertex types devices stand for on a node."""
        return [kind for kind in self.types.intersection(kinds) if not self.is_reported(node, kind)]


NO_EXTENDED_RESOURCES: Final = ExtendedResources(tuple, lambda _name: None)
