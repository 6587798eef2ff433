"""Moldable Jobs as people write them: with how few pods a Job may start.

``fluxqueue/min-pods`` is for Indexed Jobs whose pods run together (parallelism is completions). It hands the
parallelism of the Job over to the queue, which sets it between that number and the completions. The
completions stay what the user asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fluxqueue.api import names
from fluxqueue.api.durations import FURTHEST_PLAN_S

__all__ = ["JobSize", "min_pods_problem", "molded_duration", "read_min_pods"]

_FORM = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class JobSize:
    """What decides whether a Job can be moldable.

    Attributes
    ----------
    indexed
        Its pods have completion indexes.
    completions, parallelism
        As its spec has them.
    cluster
        It is a Flux cluster, whose brokers know their number.
    slices
        It asks for slices below a level of the topology.
    """

    indexed: bool
    completions: int | None
    parallelism: int | None
    cluster: bool = False
    slices: bool = False

    @property
    def together(self) -> bool:
        """True for an Indexed Job all of whose pods run at once."""
        return (
            self.indexed
            and self.completions is not None
            and self.completions == (1 if self.parallelism is None else self.parallelism)
        )


def read_min_pods(text: str) -> int | None:
    """Return the number of an annotation ``fluxqueue/min-pods``; None if it is none."""
    return int(text) if _FORM.fullmatch(text) else None


def min_pods_problem(text: str, size: JobSize) -> str:
    """Return why a Job cannot have this ``fluxqueue/min-pods``, with the remedy; empty if it can."""
    where = f"annotation {names.MIN_PODS_ANNOTATION}"
    if size.cluster:
        return f"{where} is not for Flux clusters, whose brokers know their number: leave it out"
    if not size.together:
        return (
            f"{where} is for Indexed Jobs whose pods run together: set completionMode: Indexed, "
            "parallelism the same as completions"
        )
    if size.slices:
        return (
            f"{where} and {names.TOPOLOGY_SLICE_ANNOTATION} cannot both hold, "
            "because fewer pods form no whole slices: leave one out"
        )
    number = read_min_pods(text)
    if number is None or not 1 <= number <= (size.completions or 1):
        return (
            f"{where}: {text!r:.40} is not a number of its pods: "
            f"write a whole number from 1 to {size.completions}"
        )
    return ""


def molded_duration(duration_s: int, size: int, slots: int) -> int:
    """Return how many seconds work takes that is started with some of its slots or pods: the same work,
    divided among fewer.

    It is a hundred years at most, unless it was stated to be longer.
    """
    return min(-(-duration_s * size // slots), max(duration_s, FURTHEST_PLAN_S))
