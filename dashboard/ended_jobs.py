"""Work whose FluxJob is gone: its address, and a FluxJob as the history has it.

A FluxJob goes with its Job or pod. The address of its page has the time of its end as well, so the record is
found by a question about one second, in the name of the person, and by the name that the FluxJob had.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any, Final

import msgspec

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef, fluxjob_name, fluxjob_names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli.costs import cost_text, currency_of
from fluxqueue.cli.efficiency import Fact, facts_of_row
from fluxqueue.cli.tables import instant
from fluxqueue.dashboard.questions import NoAnswer
from fluxqueue.dashboard.rendering import ENDED_PARAMETER, job_link, utc
from fluxqueue.dashboard.site import Asked, NoSuchPage, Site
from fluxqueue.dashboard.viewers import NoApi

__all__ = ["ended_job", "ended_link"]

_MOST: Final = "1000"


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``/history``, as far as a FluxJob has it."""

    uid: str
    kind: str
    name: str
    namespace: str
    state: str
    finished_at: str
    api_version: str = ""
    queue: str = ""
    user: str | None = None
    account: str | None = None
    priority: int = 0
    pods: int = 0
    duration_s: int | None = None
    outcome: str | None = None
    reason: str | None = None
    message: str | None = None
    submitted_at: str | None = None
    promised_at: str | None = None
    allocated_at: str | None = None
    started_at: str | None = None
    requeues: int = 0
    jobid: int | None = None
    hosts: str | None = None
    cost: str | None = None
    cores: float | None = None
    run_s: float | None = None


def ended_link(row: Mapping[str, Any]) -> str:
    """Return the address of the page of a row of the history; empty if it has none."""
    record = _record(row)
    if record is None:
        return ""
    return job_link(record.namespace, fluxjob_name(record.kind, record.name, record.uid), record.finished_at)


async def ended_job(site: Site, asked: Asked) -> tuple[FluxJob, list[tuple[str, str]], list[Fact]]:
    """Return the FluxJob of an address as the history has it, what else that knows (who submitted it, and its
    cost), and what it used of what it asked for.

    Raises
    ------
    NoSuchPage
        The address has no end, or the person cannot read a record of it.
    """
    namespace, name, ended = (
        asked.path["namespace"],
        asked.path["name"],
        instant(asked.parameters.get(ENDED_PARAMETER)),
    )
    nothing = f"There is no FluxJob {namespace}/{name} that you may see"
    if ended is None:
        raise NoSuchPage(f"{nothing}.")
    second = ended.astimezone(UTC).replace(microsecond=0)
    times = {"since": utc(second), "until": utc(second + timedelta(seconds=1))}
    try:
        answer = await site.questions.history(
            site.door.api(asked.viewer),
            asked.viewer.session.key,
            "/history",
            {"namespace": namespace, **times, "limit": _MOST},
        )
    except (NoAnswer, NoApi) as error:
        raise NoSuchPage(f"{nothing}, and the history cannot be read: {error}.") from None
    rows = answer.get("jobs")
    for row in rows if isinstance(rows, list) else ():
        record = _record(row)
        if (
            record is not None
            and record.namespace == namespace
            and name in fluxjob_names(record.kind, record.name, record.uid)
        ):
            cost, currency = cost_text({"cost": record.cost}), currency_of(answer)
            facts = [("Submitted by", record.user or ""), ("Cost", f"{cost} {currency}" if cost else "")]
            used = facts_of_row(msgspec.structs.asdict(record))
            return _fluxjob(record, name), [fact for fact in facts if fact[1]], used
    raise NoSuchPage(f"{nothing}, and the history has no such work that ended then.")


def _record(row: object) -> _Record | None:
    try:
        return msgspec.convert(row, _Record)
    except msgspec.ValidationError:
        return None


def _fluxjob(record: _Record, name: str) -> FluxJob:
    return FluxJob(
        metadata=ObjectMeta(name=name, namespace=record.namespace, uid=record.uid),
        spec=FluxJobSpec(
            object_ref=ObjectRef(
                api_version=record.api_version, kind=record.kind, name=record.name, uid=record.uid
            ),
            queue=record.queue,
            priority=record.priority,
            pods=record.pods,
            duration_seconds=record.duration_s or 0,
        ),
        status=FluxJobStatus(
            state=record.state,
            reason=record.reason or "",
            message=record.message or "",
            account=record.account or "",
            outcome=record.outcome or "",
            submitted_at=record.submitted_at,
            eta_first=record.promised_at,
            allocated_at=record.allocated_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
            requeues=record.requeues,
            jobid=record.jobid,
            nodes=record.hosts or "",
        ),
    )
