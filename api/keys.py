"""Labels and annotations with our prefix that nobody reads: misspelled, or written in the wrong one of the
two places.

Kubernetes accepts any key. So ``fluxqueue/durration: 2h``, or a duration among the labels, would be stored,
and the work would be planned with the default without a word.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from fluxqueue.api import names

__all__ = ["unread_keys"]

_PREFIX: Final = "fluxqueue/"
_SHOWN: Final = 80
_MOST_COMPARED: Final = 100
"""Keys of an object that are compared with ours: each costs, and nobody reads more sentences."""


def _constants(suffix: str) -> frozenset[str]:
    return frozenset(
        text for name, text in vars(names).items() if name.endswith(suffix) and isinstance(text, str)
    )


_LABELS: Final = _constants("_LABEL")
_ANNOTATIONS: Final = _constants("_ANNOTATION") | {names.SCHEDULER_LABEL}
"""The queue writes the scheduler of a released template as an annotation."""

_WRITTEN_BY_PEOPLE: Final = (
    names.MANAGED_LABEL,
    names.QUEUE_LABEL,
    names.POD_GROUP_LABEL,
    names.SCHEDULER_LABEL,
    names.DURATION_ANNOTATION,
    names.PRIORITY_ANNOTATION,
    names.POD_GROUP_SIZE_ANNOTATION,
    names.GANG_ANNOTATION,
    *names.START_ANNOTATIONS,
    names.CHECKPOINTED_ANNOTATION,
    names.RESERVATION_ANNOTATION,
    names.REPLACE_ANNOTATION,
    names.MIN_PODS_ANNOTATION,
    names.MINICLUSTER_ANNOTATION,
    names.MINICLUSTER_MODE_ANNOTATION,
    names.MINICLUSTER_TASKS_ANNOTATION,
    names.MINICLUSTER_VIEW_ANNOTATION,
    names.REQUIRED_TOPOLOGY_ANNOTATION,
    names.PREFERRED_TOPOLOGY_ANNOTATION,
    names.TOPOLOGY_SLICE_ANNOTATION,
    names.EXCLUSIVE_ANNOTATION,
    names.PODS_PER_NODE_ANNOTATION,
)
_VALUES: Final = {
    names.MANAGED_LABEL: ("true", "false"),
    names.GANG_ANNOTATION: ("true", "false"),
    names.REPLACE_ANNOTATION: ("pod",),
}
"""Keys of a few values, of which any other would be taken for none."""
_WORDS: Final = {each.removeprefix(_PREFIX): each for each in _WRITTEN_BY_PEOPLE}
_CLOSE_PREFIX: Final = 0.85
_OTHER_WORDS: Final = {
    "time": names.DURATION_ANNOTATION,
    "walltime": names.DURATION_ANNOTATION,
    "timelimit": names.DURATION_ANNOTATION,
    "time-limit": names.DURATION_ANNOTATION,
    "max-time": names.DURATION_ANNOTATION,
    "runtime": names.DURATION_ANNOTATION,
    "prio": names.PRIORITY_ANNOTATION,
    "pod-group-name": names.POD_GROUP_LABEL,
    "start-after": names.BEGIN_ANNOTATION,
    "partition": names.QUEUE_LABEL,
    "queue-name": names.QUEUE_LABEL,
    "depends-on": names.AFTER_ANNOTATION,
    "dependency": names.AFTER_ANNOTATION,
    "topology": names.REQUIRED_TOPOLOGY_ANNOTATION,
}
"""What other systems call it."""


def unread_keys(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Iterator[str]:
    """Yield a sentence for each key with our prefix that has no effect where it stands or as it is, with what
    may be meant.

    Of the keys that nobody knows only the first hundred are looked at.
    """
    compared = 0
    for kind, given, known, elsewhere, other in (
        ("label", labels, _LABELS, _ANNOTATIONS, "an annotation"),
        ("annotation", annotations, _ANNOTATIONS, _LABELS, "a label"),
    ):
        for key, value in (given or {}).items():
            if key in known:
                if value not in (few := _VALUES.get(key, (value,))):
                    yield (
                        f"{kind} {key}: {value[:_SHOWN]!r} has no effect: write {' or '.join(map(repr, few))}"
                    )
                continue
            if key.startswith("flux"):
                compared += 1
            if compared > _MOST_COMPARED:
                return
            if not key.startswith(_PREFIX):
                if (meant := _meant_by_prefix(key)) is not None:
                    yield f"{kind} {key[:_SHOWN]} is unknown and has no effect: did you mean {meant}?"
            elif key in elsewhere:
                yield f"{kind} {key} has no effect: it is {other}"
            else:
                yield f"{kind} {key[:_SHOWN]} is unknown and has no effect: {_meant(key)}"


def _meant_by_prefix(key: str) -> str | None:
    """Return the key that is meant by one whose prefix is nearly ours, such as ``fluxqueue.io/queue``;
    None for keys of others.
    """
    prefix, _, word = key.partition("/")
    if not prefix.startswith("flux") or not word:
        return None
    name = prefix.partition(".")[0].replace("-", "")[:_SHOWN]
    return (
        _closest(word) if difflib.SequenceMatcher(None, name, _PREFIX[:-1]).ratio() >= _CLOSE_PREFIX else None
    )


def _meant(key: str) -> str:
    meant = _closest(key.removeprefix(_PREFIX))
    return (
        f"did you mean {meant}?"
        if meant is not None
        else "remove it, or correct it (docs/reference/objects.md has those that are read)"
    )


def _closest(word: str) -> str | None:
    word = word[:_SHOWN].lower().replace("_", "-")
    if (known := _OTHER_WORDS.get(word)) is not None:
        return known
    close = difflib.get_close_matches(word, _WORDS, n=1, cutoff=0.7)
    return _WORDS[close[0]] if close else None
