"""`kubectl fluxqueue jobs`: the selected FluxJobs, once or as a watch,
in the output formats of ``kubectl get`` and by templates.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.api_client import ApiClient
from fluxqueue.cli.custom_columns import CustomColumn, cell
from fluxqueue.cli.fitting import fitted, line_width, without_empty
from fluxqueue.cli.job_changes import job_changes
from fluxqueue.cli.job_fields import Template, sorted_jobs
from fluxqueue.cli.job_selection import WorkloadSelection, is_called, labelled_uids
from fluxqueue.cli.listing import Listed, list_jobs, print_none, rendered
from fluxqueue.cli.managed_namespaces import why_nothing_waits
from fluxqueue.cli.queue_names import require_queue
from fluxqueue.cli.remedies import not_found
from fluxqueue.cli.submitted_by import SELF, own_name
from fluxqueue.cli.tables import columns, printable, wants_colour

__all__ = ["JobsQuery", "jobs", "selected_jobs"]

_DOCUMENTS = ("json", "yaml", "name")


@dataclass(frozen=True)
class JobsQuery:
    """The options of ``kubectl fluxqueue jobs``.

    Attributes
    ----------
    selection
        Which FluxJobs.
    output
        ``wide``, ``json``, ``yaml``, ``name``, or empty for the table.
    columns, template
        Columns by paths, or a line by fields, instead of the table.
    sort
        Fields, each with true if the largest comes first.
    titles, watch
        Show the titles; go on with a line for each change.
    """

    selection: WorkloadSelection = field(default_factory=WorkloadSelection)
    output: str = ""
    columns: tuple[CustomColumn, ...] = ()
    template: Template | None = None
    sort: tuple[tuple[str, bool], ...] = ()
    titles: bool = True
    watch: bool = False

    @property
    def wide(self) -> bool:
        """True for ``-o wide``."""
        return self.output == "wide"

    @property
    def namespaces(self) -> bool:
        """True if the namespaces are shown."""
        return self.selection.namespace is None

    @property
    def raw(self) -> bool:
        """True if the objects are printed as the server sent them, or columns of them."""
        return self.output in _DOCUMENTS or bool(self.columns)


def selected_jobs(
    client: ApiClient, selection: WorkloadSelection, *, raw: bool = False
) -> tuple[list[Listed], str]:
    """Return the selected FluxJobs and the version of the list.

    Parameters
    ----------
    client, selection
        The API server, and which FluxJobs.
    raw
        Keep them also as the server sent them.

    Raises
    ------
    ClusterError
        A name does not exist, or the server refuses.
    """
    selection = _with_name(client, selection)
    listed, version = list_jobs(client, selection.namespace, raw=raw)
    has_labels = (
        labelled_uids(client, selection.namespace, selection.selector) if selection.selector else None
    )
    if selection.queue and not any(item.job.spec.queue == selection.queue for item in listed):
        require_queue(client, selection.queue)
    chosen = [
        item for item in listed if selection.takes(item.job) and (has_labels is None or has_labels(item.job))
    ]
    for name in selection.names:
        if not any(is_called(item.job, name) for item in chosen):
            raise not_found(f"{names.FLUXJOBS}.{names.GROUP}", name)
    return chosen, version


def jobs(client: ApiClient, query: JobsQuery, out: TextIO, now: Callable[[], datetime]) -> int:
    """Print the selected FluxJobs; with ``watch``, also their changes until interrupted.

    Raises
    ------
    ClusterError
        A name does not exist, or the server refuses.
    """
    query = dataclasses.replace(query, selection=_with_name(client, query.selection))
    chosen, version = selected_jobs(client, query.selection, raw=query.raw)
    _print(client, chosen, query, out, now())
    if not query.watch:
        if not chosen and query.output not in _DOCUMENTS:
            _say_none(client, query.selection.namespace)
        return 0
    out.flush()
    _follow(client, query, version, chosen, out, now)
    return 0


def _with_name(client: ApiClient, selection: WorkloadSelection) -> WorkloadSelection:
    """Return the selection with the name of who asks, where it is the own work that is asked for."""
    return dataclasses.replace(selection, user=own_name(client)) if selection.user == SELF else selection


def _say_none(client: ApiClient, namespace: str | None) -> None:
    print_none(namespace)
    if namespace is not None and (why := why_nothing_waits(client, namespace)):
        print(printable(why), file=sys.stderr)


class _Labels:
    """Whether FluxJobs have the labels of a selection; asked again for one that was not there before."""

    def __init__(self, client: ApiClient, selection: WorkloadSelection, known: Sequence[Listed]) -> None:
        self._client = client
        self._selection = selection
        self._with = {item.job.metadata.uid for item in known}
        self._without: set[str] = set()

    def has(self, job: FluxJob) -> bool:
        uid = job.metadata.uid
        if not self._selection.selector or uid in self._with:
            return True
        if uid in self._without:
            return False
        has_labels = labelled_uids(self._client, self._selection.namespace, self._selection.selector)(job)
        (self._with if has_labels else self._without).add(uid)
        return has_labels


def _follow(
    client: ApiClient,
    query: JobsQuery,
    version: str,
    chosen: Sequence[Listed],
    out: TextIO,
    now: Callable[[], datetime],
) -> None:
    """Print a line for each change, until interrupted."""
    later = dataclasses.replace(query, titles=False)
    widths = _widths(chosen, query, now())
    shown = {item.job.metadata.uid: item.job.metadata.resource_version for item in chosen}
    with client.again() as asked:
        labels = _Labels(asked, query.selection, chosen)
        for kind, changed in job_changes(client, query.selection.namespace, version):
            meta = changed.job.metadata
            if (
                kind == "DELETED"
                or not query.selection.takes(changed.job)
                or shown.get(meta.uid) == meta.resource_version
            ):
                continue
            if not labels.has(changed.job):
                continue
            shown[meta.uid] = meta.resource_version
            if query.raw or query.template is not None:
                _print(client, [changed], later, out, now())
            else:
                cells = rows.row(changed.job, now(), wide=query.wide, namespaces=query.namespaces)
                out.write(
                    columns(None, [cells], rows.CELL_STYLES if wants_colour(out) else None, least=widths)
                )
            out.flush()


def _widths(chosen: Sequence[Listed], query: JobsQuery, now: datetime) -> list[int]:
    lines = [
        rows.headers(wide=query.wide, namespaces=query.namespaces),
        *(rows.row(item.job, now, wide=query.wide, namespaces=query.namespaces) for item in chosen),
    ]
    return [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]


def _print(client: ApiClient, chosen: Sequence[Listed], query: JobsQuery, out: TextIO, now: datetime) -> None:
    if query.output in _DOCUMENTS:
        raw = {item.job.metadata.uid: item.raw for item in chosen}
        ordered = (
            [raw[job.metadata.uid] for job in sorted_jobs([item.job for item in chosen], query.sort, now)]
            if query.sort
            else [*raw.values()]
        )
        alone = (len(query.selection.names) == 1 and len(ordered) == 1) or query.watch
        out.write(rendered(ordered, query.output, names.FLUXJOBS, alone=alone))
        return
    if not chosen:
        return
    ordered_jobs = sorted_jobs([item.job for item in chosen], query.sort, now)
    if query.template is not None:
        lines = [query.template.titles()] if query.titles else []
        lines += [query.template.line(job, now) for job in ordered_jobs]
        out.write("".join(f"{line}\n" for line in lines))
    elif query.columns:
        documents = {item.job.metadata.uid: msgspec.json.decode(item.raw) for item in chosen}
        cells = [
            [cell(documents[job.metadata.uid], column.path) for column in query.columns]
            for job in ordered_jobs
        ]
        out.write(columns([column.title for column in query.columns] if query.titles else None, cells))
    else:
        out.write(_table(ordered_jobs, query, out, now))


def _table(ordered: Sequence[FluxJob], query: JobsQuery, out: TextIO, now: datetime) -> str:
    """Return the table; one that goes on as a watch, or has no titles, keeps its empty columns."""
    titles = rows.headers(wide=query.wide, namespaces=query.namespaces)
    cells = [rows.row(job, now, wide=query.wide, namespaces=query.namespaces) for job in ordered]
    if query.titles and not query.watch:
        titles, cells = without_empty(titles, cells)
    if not query.wide and not query.watch:
        titles, cells = fitted(titles, cells, line_width(out), rows.NARROWING)
    return columns(titles if query.titles else None, cells, rows.CELL_STYLES if wants_colour(out) else None)
