"""The FluxReservation that a workload is for: its annotation ``fluxqueue/reservation``, and whether it may
use that one.

Work that names a reservation is matched on its nodes and within its times only. Work that may not use it is
not matched at all: to run it elsewhere would not be what its owner asked for.
"""

from __future__ import annotations

import re

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.cluster.context import ClusterContext
from fluxqueue.queue.intake.problems import Problem, Resolved
from fluxqueue.queue.intake.submission import Submission

__all__ = ["resolve_reservation"]

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def resolve_reservation(submission: Submission, queue: str, cluster: ClusterContext) -> Resolved[str]:
    """Return the name of the reservation that a workload is for (empty: none), and why it may not use it."""
    name = submission.meta.annotation(names.RESERVATION_ANNOTATION) or ""
    if not name:
        return Resolved("")
    where = f"{submission.title}: annotation {names.RESERVATION_ANNOTATION}"
    if not _NAME.fullmatch(name):
        message = f"{where}: {name[:80]!r} is no name of a FluxReservation: correct or remove it"
        return Resolved("", (Problem(Reason.INVALID_REQUEST, message),))
    plan = cluster.reservations.get(name)
    if plan is None:
        message = f"{where}: there is no FluxReservation {name!r}: have it created, or remove the annotation"
        return Resolved(name, (Problem(Reason.RESERVATION_NOT_ALLOWED, message),))
    if refusal := plan.refusal(submission.meta.namespace, queue):
        return Resolved(
            name,
            (Problem(Reason.RESERVATION_NOT_ALLOWED, f"{where}: the FluxReservation {name!r} {refusal}"),),
        )
    return Resolved(name)
