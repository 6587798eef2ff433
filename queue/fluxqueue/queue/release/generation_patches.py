"""The patch that releases a Job, as operations that depend on its generation and not on its resourceVersion.

The Job controller writes the status of a new Job some milliseconds after its creation, just when the release is due. A patch with the
resourceVersion that was read before is refused then, although nothing that was matched has changed. Only a change of the spec, or a
deletion, raises the generation, and a JSON patch can test it. So the API server itself applies such a patch to the newest version. A Job
that is released before that status is never shown as suspended, which saves its controller the status and two Events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.jobs import Job

__all__ = ["by_generation"]

Operation = dict[str, Any]


def by_generation(job: Job, patch: Mapping[str, Any]) -> list[Operation] | None:
    """Return a release patch as a JSON patch.

    Parameters
    ----------
    job
        The Job, as read.
    patch
        One of `fluxqueue.queue.release.patches` for it that resumes it.

    Returns
    -------
    list or None
        None if a map is missing in the Job to which labels are added. Such a patch would replace labels that somebody adds meanwhile, so it
        needs the resourceVersion.
    """
    meta, template = job.metadata, job.spec.template
    if not meta.labels or not template.metadata.labels:
        return None
    changed, wanted = patch["metadata"], patch["spec"]["template"]["metadata"]
    gates = template.spec.scheduling_gates
    gate = {"name": names.GATE}
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/generation", "value": meta.generation},
        *_entries("/metadata/labels", meta.labels, changed["labels"]),
        *_entries("/metadata/annotations", meta.annotations, changed["annotations"]),
        {"op": "add", "path": "/spec/suspend", "value": patch["spec"]["suspend"]},
        *_entries("/spec/template/metadata/labels", template.metadata.labels, wanted.get("labels", {})),
        *_entries("/spec/template/metadata/annotations", template.metadata.annotations, wanted["annotations"]),
    ]
    if not template.spec.gated_by(names.GATE):
        at, value = ("/-", gate) if gates else ("", [gate])
        operations.append({"op": "add", "path": f"/spec/template/spec/schedulingGates{at}", "value": value})
    return operations


def _entries(path: str, present: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> Iterator[Operation]:
    """Yield operations that set the wanted entries of a map and remove those that are None."""
    new = {key: value for key, value in wanted.items() if value is not None}
    if new and not present:
        yield {"op": "add", "path": path, "value": new}
        return
    for key, value in wanted.items():
        entry = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if value is not None:
            yield {"op": "add", "path": entry, "value": value}
        elif key in (present or {}):
            yield {"op": "remove", "path": entry}
