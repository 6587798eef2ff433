"""Which node a pod is to be bound to, read from the pod alone.

There are two schemes. The queue writes annotations: the allocation, the list of nodes of which this pod has
one entry, and the size of the gang. The Go fluxqueue wrote a label: names of nodes joined by ``__``, of which
a pod has the entry of its completion index. If a pod has both, the annotations count.

A pod without a completion index has the first entry of a label, as in the Go project: all pods of a group
without indexes (NonIndexed Jobs) go to its first node there. Here the checks refuse the second pod while the
first one fills the node. Which other entry would be right is not known. The queue never writes such a list
for such a pod.

A pod that nobody may bind (it has a scheduling gate, is being deleted or has ended) is no error. There is
nothing to do for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fluxqueue.api import hostlists, names
from fluxqueue.api.pods import Pod

__all__ = ["InvalidAssignment", "NodeAssignment", "assignment_of", "written_assignment"]

_GO_SEPARATOR: Final = "__"
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INDEX: Final = re.compile(r"[0-9]{1,9}")
_GANG_SIZE: Final = re.compile(r"[1-9][0-9]{0,5}")
_MOST_QUOTED: Final = 60


class InvalidAssignment(ValueError):
    """The node of a pod cannot be read; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """The node to which a pod is to be bound.

    Attributes
    ----------
    node
        Name of the node.
    allocation
        Fluxion job id from the annotation; empty for the scheme of the Go project.
    gang_size
        How many pods of this allocation are bound together or not at all; 1 if the pod is bound alone.
    """

    node: str
    allocation: str = ""
    gang_size: int = 1


def assignment_of(pod: Pod) -> NodeAssignment | None:
    """Return the node to which a pod is to be bound.

    Returns
    -------
    NodeAssignment or None
        None if there is nothing to do: the pod belongs to another scheduler, is bound, has ended, is being
        deleted, has gates, or has no node yet.

    Raises
    ------
    InvalidAssignment
        An annotation or the label cannot be read, or names no node for this pod.
    """
    spec = pod.spec
    if (
        spec.scheduler_name != names.SCHEDULER_NAME
        or spec.node_name
        or spec.scheduling_gates
        or not pod.active
    ):
        return None
    return written_assignment(pod)


def written_assignment(pod: Pod) -> NodeAssignment | None:
    """Read the node that is written on a pod, whatever scheduler binds it and whatever its state is.

    Returns
    -------
    NodeAssignment or None
        None if no node is written on it.

    Raises
    ------
    InvalidAssignment
        As `assignment_of`.
    """
    meta = pod.metadata
    if (allocation := meta.annotation(names.ALLOCATION_ANNOTATION)) is not None:
        return NodeAssignment(_listed(pod, allocation), allocation, _gang_size(pod))
    if (label := meta.label(names.GO_NODES_LABEL)) is not None:
        return NodeAssignment(_of_go_list(pod, label))
    return None


def _listed(pod: Pod, allocation: str) -> str:
    key = names.NODES_ANNOTATION
    text = pod.metadata.annotation(key)
    if not allocation or not text:
        raise InvalidAssignment(
            f"the pod carries the allocation {_quoted(allocation)}, but its annotation {key} names no node: "
            "delete the pod, so that its owner creates it again and the queue finds a node for it"
        )
    try:
        found = hostlists.parse(text)
    except hostlists.InvalidHostlist as error:
        raise InvalidAssignment(
            f"annotation {key} cannot be read ({error}): only the queue writes it, so delete the pod"
        ) from None
    index = 0 if len(found) == 1 else _index(pod)
    if index is None:
        raise InvalidAssignment(
            f"annotation {key} names {len(found)} nodes, and the pod has no completion index to choose one: "
            "delete the pod"
        )
    return _node_name(found[index] if index < len(found) else None, f"annotation {key}", index, len(found))


def _of_go_list(pod: Pod, label: str) -> str:
    entries = label.split(_GO_SEPARATOR)
    index = _index(pod) or 0
    return _node_name(
        entries[index] if index < len(entries) else None, f"label {names.GO_NODES_LABEL}", index, len(entries)
    )


def _index(pod: Pod) -> int | None:
    """Return which entry of a list belongs to the pod; None if it has no completion index."""
    key = names.JOB_INDEX_LABEL
    text = pod.metadata.label(key)
    if text is None:
        text = pod.metadata.annotation(names.COMPLETION_INDEX_ANNOTATION)
    if text is None:
        return None
    if not _INDEX.fullmatch(text):
        raise InvalidAssignment(
            f"{key} is {_quoted(text)}, which is no completion index: let the Job controller write it"
        )
    return int(text)


def _gang_size(pod: Pod) -> int:
    key = names.GANG_SIZE_ANNOTATION
    text = pod.metadata.annotation(key)
    if text is None:
        return 1
    if not _GANG_SIZE.fullmatch(text):
        raise InvalidAssignment(
            f"annotation {key} is {_quoted(text)}, which is no number of pods: only the queue writes it, "
            "so delete the pod"
        )
    return int(text)


def _node_name(entry: str | None, where: str, index: int, size: int) -> str:
    if entry is None:
        raise InvalidAssignment(
            f"{where} names {size} {'node' if size == 1 else 'nodes'} and the pod has the completion index "
            f"{index}, so there is none for it: name {index + 1} nodes, "
            f"or lower the completions of its Job to {size}"
        )
    if not entry:
        raise InvalidAssignment(
            f"{where} has an empty entry for the completion index {index}: name a node there"
        )
    if entry == names.NO_NODE or len(entry) > hostlists.MAX_HOST_LENGTH or not _NODE_NAME.fullmatch(entry):
        raise InvalidAssignment(
            f"{where} names {_quoted(entry)} for the completion index {index}, which is no node: "
            "name one there"
        )
    return entry


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}...")
