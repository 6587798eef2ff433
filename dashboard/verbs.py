"""The verbs: hold, release, cancel, prioritize, move; small patches of a FluxJob's spec, sent in the name of
the person.

They are those of `kubectl fluxqueue`, with its rules and its words (`fluxqueue.cli.fluxjob_edits`). The API
server decides whether the person may, and the queue carries them out. The patch has the uid of the FluxJob
that the page showed, so it meets no other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import ENDED, FluxJob, State
from fluxqueue.api.typedvalues import queue_problem
from fluxqueue.cli.fluxjob_edits import ended_by
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.dashboard.viewers import not_in_his_name
from fluxqueue.kube.errors import ApiError, Conflict, Forbidden, NotFound
from fluxqueue.kube.kinds import FLUXJOBS
from fluxqueue.kube.queue_names import known_queues
from fluxqueue.kube.transport import Api

__all__ = [
    "VERBS",
    "Refused",
    "Verb",
    "carry_out",
    "consequences",
    "objection",
    "read_change",
    "require_queue",
]

VERBS: Final = ("hold", "release", "prioritize", "move", "cancel")
_LIVE: Final = {State.ALLOCATED: "is being started", State.RUNNING: "runs", State.DRAINING: "is stopping"}
_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1
_LONGEST_QUEUE: Final = 253
_MANAGER: Final = "fluxqueue-dashboard"

log: Final = structlog.get_logger(__name__)


class Refused(Exception):
    """A verb is not carried out; the message says why and what helps."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with its values: the patch of the spec, and the words for what was done."""

    name: str
    spec: Mapping[str, Any]
    done: str


def read_change(name: str, form: Mapping[str, object]) -> Verb:
    """Read a verb from a form.

    Raises
    ------
    Refused
        There is no such verb, or its value cannot be read.
    """
    match name:
        case "hold":
            return Verb(name, {"hold": True}, "is held")
        case "release":
            return Verb(name, {"hold": False}, "is released")
        case "cancel":
            return Verb(name, {"cancel": True}, "is being cancelled")
        case "prioritize":
            priority = _priority(str(form.get("priority", "")))
            return Verb(name, {"priority": priority}, f"has priority {priority}")
        case "move":
            queue = str(form.get("queue", "")).strip()
            if not queue or len(queue) > _LONGEST_QUEUE:
                raise Refused("move: name the queue")
            return Verb(name, {"queue": queue}, f"is moved to the queue {queue}")
    raise Refused(f"there is no verb {name[:40]!r}: choose one of {', '.join(VERBS)}")


def objection(name: str, job: FluxJob) -> str:
    """Return why a verb is not possible for a job; empty if it is."""
    state = state_of(job)
    if state in ENDED:
        return "it has ended"
    if name == "cancel":
        if job.spec.cancel:
            return "it is being cancelled"
        end = ended_by(job)
        return f"a pod that runs cannot be stopped without deleting it: {end} ends it" if end else ""
    if state != State.PENDING:
        return (
            f"it {_LIVE.get(State(state), 'does not wait') if state in list(State) else 'does not wait'}: "
            "only what waits can be changed"
        )
    if name == "hold" and job.spec.hold:
        return "it is held"
    if name == "release" and not job.spec.hold:
        return "it is not held"
    return ""


def consequences(job: FluxJob, behind: int = 0) -> dict[str, str]:
    """Return what each verb does to a job, for who is about to use it; ``behind`` others wait for it to start
    or to end.
    """
    pods = "its pod is" if job.spec.pods == 1 else f"its {job.spec.pods} pods are"
    runs = state_of(job) in _LIVE
    others = f" {behind} {'other' if behind == 1 else 'others'} may start earlier." if behind else ""
    return {
        "hold": f"It does not start until it is released.{others}",
        "release": "It may start as soon as nodes are free.",
        "prioritize": "What has a higher priority starts first; others may start later.",
        "move": "The limits and the policy of the other queue count; it keeps its submit time there.",
        "cancel": f"It ends now: {pods} stopped, and what it has done so far may be lost.{others}"
        if runs
        else f"It leaves the queue and never starts.{others}",
    }


async def carry_out(api: Api, job: FluxJob, verb: Verb) -> str:
    """Send a verb in the name of the person whose client this is; returns a sentence.

    Raises
    ------
    Refused
        The verb is not possible, the person may not, or the API server does not answer.
    """
    title = object_name(job) or job.metadata.name
    if why := objection(verb.name, job):
        raise Refused(f"{title}: {why}")
    if (queue := verb.spec.get("queue")) is not None:
        await require_queue(api, title, str(queue))
    meta = job.metadata
    body = {"metadata": {"uid": meta.uid}, "spec": dict(verb.spec)}
    try:
        await api.patch(FLUXJOBS, meta.name, body, namespace=meta.namespace, field_manager=_MANAGER)
    except Forbidden as error:
        if why := not_in_his_name(error):
            raise Refused(f"{title}: {why}") from None
        raise Refused(
            f"{title}: you may not {verb.name} work in the namespace {meta.namespace}; "
            "the role edit there lets you (patch fluxjobs)"
        ) from None
    except (NotFound, Conflict):
        raise Refused(f"{title} is gone, or is another one by now: look at the queue again") from None
    except ApiError as error:
        raise Refused(f"{title}: {error.message}") from None
    log.info("verb.sent", verb=verb.name, namespace=meta.namespace, name=meta.name)
    return f"{title} {verb.done}."


async def require_queue(api: Api, title: str, queue: str) -> None:
    """Refuse a queue that does not exist; who may not read queues learns it from the reason of the work."""
    try:
        known = await known_queues(api) if queue != names.DEFAULT_QUEUE else None
    except ApiError:
        return
    if (problem := queue_problem(queue, known)) is not None:
        raise Refused(f"{title}: {problem}")


def _priority(text: str) -> int:
    try:
        priority = int(text)
    except ValueError:
        priority = _HIGHEST + 1
    if not _LOWEST <= priority <= _HIGHEST:
        raise Refused(f"prioritize: {text[:20]!r} is not a priority: write a whole number such as 100 or -5")
    return priority
