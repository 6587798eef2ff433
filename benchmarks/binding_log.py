"""When Bindings arrived at the API server and when they were answered, from its audit log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from fluxqueue.local.audit_log import read_audit_log

__all__ = ["binding_times"]


def binding_times(log: Path) -> dict[str, tuple[datetime, datetime]]:
    """Return when the Binding of each pod arrived and when it was answered,
    by namespace and name of the pod.
    """
    times = {}
    for event in read_audit_log(log, containing=b'"binding"'):
        target = event.object_ref
        if target is not None and target.subresource == "binding" and event.code == 201:
            times[f"{target.namespace}/{target.name}"] = (
                event.request_received_timestamp,
                event.stage_timestamp,
            )
    return times
