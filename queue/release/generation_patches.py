"""The patch that releases a Job, as operations that depend on its generation and not on its resourceVersion.

The Job controller writes the status of a new Job some milliseconds after its creation, just when the release
is due. A patch with the resourceVersion that was read before is refused then, although nothing that was
matched has changed. Only a change of the spec, or a deletion, raises the generation, and a JSON patch can
test it. So the API server itself applies such a patch to the newest version. A Job that is released before
that status is never shown as suspended, which saves its controller the status and two Events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import SchedulingGate

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
        None if a map is missing in the Job to which labels are added. Such a patch would replace labels that
        somebody adds meanwhile, so it needs the resourceVersion.
    """
    meta, template = job.metadata, job.spec.template
    if not meta.labels or not template.metadata.labels:
        return None
    changed, wanted = patch["metadata"], patch["spec"]["template"]["metadata"]
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/generation", "value": meta.generation},
        *_entries("/metadata/labels", meta.labels, changed["labels"]),
        *_entries("/metadata/annotations", meta.annotations, changed["annotations"]),
        *(
            {"op": "add", "path": f"/spec/{field}", "value": patch["spec"][field]}
            for field in ("parallelism", "suspend")
            if field in patch["spec"]
        ),
        *_entries("/spec/template/metadata/labels", template.metadata.labels, wanted.get("labels", {})),
        *_entries(
            "/spec/template/metadata/annotations", template.metadata.annotations, wanted["annotations"]
        ),
    ]
    operations += _gate(
        template.spec.scheduling_gates or [], patch["spec"]["template"]["spec"].get("schedulingGates")
    )
    operations += _affinity(template.spec.affinity, patch["spec"]["template"]["spec"].get("affinity"))
    return operations


def _gate(
    present: Sequence[SchedulingGate], wanted: Sequence[Mapping[str, str]] | None
) -> Iterator[Operation]:
    """Yield the operation that adds our gate to those of others, or removes it;
    none if the patch says nothing about gates.
    """
    path, gate = "/spec/template/spec/schedulingGates", {"name": names.GATE}
    at = next((position for position, each in enumerate(present) if each.name == names.GATE), None)
    if wanted is None:
        return
    if at is not None and "$patch" in wanted[0]:
        yield {"op": "remove", "path": f"{path}/{at}" if len(present) > 1 else path}
    elif at is None and "$patch" not in wanted[0]:
        yield (
            {"op": "add", "path": f"{path}/-", "value": gate}
            if present
            else {"op": "add", "path": path, "value": [gate]}
        )


def _affinity(present: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None) -> Iterator[Operation]:
    """Yield the operation that adds required node affinity to a template that has none."""
    if wanted is None:
        return
    path = "/spec/template/spec/affinity"
    if not present:
        yield {"op": "add", "path": path, "value": wanted}
    elif not present.get("nodeAffinity"):
        yield {"op": "add", "path": f"{path}/nodeAffinity", "value": wanted["nodeAffinity"]}
    else:
        ((key, value),) = wanted["nodeAffinity"].items()
        yield {"op": "add", "path": f"{path}/nodeAffinity/{key}", "value": value}


def _entries(
    path: str, present: Mapping[str, str] | None, wanted: Mapping[str, str | None]
) -> Iterator[Operation]:
    """Yield operations that set the wanted entries of a map and remove those that are None.

    A map that is there but empty is one of annotations that nobody reads (`fluxqueue.api.annotations`): they
    must stay.
    """
    new = {key: value for key, value in wanted.items() if value is not None}
    if new and present is None:
        yield {"op": "add", "path": path, "value": new}
        return
    for key, value in wanted.items():
        entry = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if value is not None:
            yield {"op": "add", "path": entry, "value": value}
        elif key in (present or {}):
            yield {"op": "remove", "path": entry}
