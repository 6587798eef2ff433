"""Lists of FluxJobs, FluxQueues and FluxReservations, once or as a watch, in the output formats of ``kubectl get``.

FluxJobs are decoded here, because their table shows more than printer columns can (`fluxqueue.cli.jobs`). The others are shown in the
printer columns of their CRD, as the server renders them, so new columns appear without a change here. JSON and YAML output is the server's
object, with all its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.cli import jobs as rows
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError, NoSuchResource
from fluxqueue.cli.tables import columns, wants_colour

__all__ = ["JobsQuery", "Listed", "collection", "is_called", "jobs", "list_accounts", "list_jobs", "list_queues", "objects"]

_PAGE = "500"
_GONE = 410
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True)
class Listed:
    """A FluxJob, decoded and as the server sent it."""

    job: FluxJob
    raw: bytes


@dataclass(frozen=True)
class JobsQuery:
    """The options of ``kubectl fluxqueue jobs``; ``namespace`` None means all namespaces."""

    namespace: str | None = "default"
    names: tuple[str, ...] = ()
    selector: str = ""
    queue: str = ""
    states: frozenset[str] = frozenset()
    output: str = ""
    titles: bool = True
    watch: bool = False

    def takes(self, job: FluxJob) -> bool:
        """True if a FluxJob is selected."""
        named = not self.names or any(is_called(job, name) for name in self.names)
        return named and rows.Selection(self.queue, self.states).takes(job)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw] = []
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ErrorStatus(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Column(msgspec.Struct):
    name: str
    priority: int = 0


class _Row(msgspec.Struct):
    cells: list[Any]


class _Table(msgspec.Struct, rename="camel"):
    column_definitions: list[_Column] = []
    rows: list[_Row] = []


_JOB = msgspec.json.Decoder(FluxJob)
_QUEUE = msgspec.json.Decoder(FluxQueue)
_ACCOUNT = msgspec.json.Decoder(FluxAccount)
_LIST = msgspec.json.Decoder(_RawList)
_EVENT = msgspec.json.Decoder(_Event)


def collection(resource: str, namespace: str | None = None) -> str:
    """Return the path of a resource of the project in a namespace, or in all namespaces (None)."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{names.API_VERSION}{where}/{resource}"


def list_jobs(client: ApiClient, namespace: str | None, selector: str = "") -> tuple[list[Listed], str]:
    """Return all FluxJobs and the version of the list, read page by page.

    Raises
    ------
    ClusterError
        The CRD is not installed, or the server refuses.
    """
    raw, version = _raw_list(client, names.FLUXJOBS, namespace, selector)
    return [Listed(_JOB.decode(item), item) for item in raw], version


def list_queues(client: ApiClient) -> list[FluxQueue]:
    """Return all FluxQueues; errors as `list_jobs`."""
    return [_QUEUE.decode(item) for item in _raw_list(client, names.FLUXQUEUES, None)[0]]


def list_accounts(client: ApiClient) -> list[FluxAccount]:
    """Return all FluxAccounts; errors as `list_jobs`."""
    return [_ACCOUNT.decode(item) for item in _raw_list(client, names.FLUXACCOUNTS, None)[0]]


def jobs(client: ApiClient, query: JobsQuery, out: TextIO, now: Callable[[], datetime]) -> int:
    """Print the selected FluxJobs; with ``watch``, also their changes until interrupted.

    Raises
    ------
    ClusterError
        A name does not exist, or the server refuses.
    """
    listed, version = list_jobs(client, query.namespace, query.selector)
    chosen = [item for item in listed if query.takes(item.job)]
    for name in query.names:
        if not any(is_called(item.job, name) for item in chosen):
            raise ClusterError(f'Error from server (NotFound): {names.FLUXJOBS}.{names.GROUP} "{name}" not found')
    _print(chosen, query, out, now())
    if not query.watch:
        return 0
    out.flush()
    widths = _widths(chosen, query, now())
    for changed in _changes(client, query, version):
        if query.output in ("", "wide"):
            cells = rows.row(changed.job, now(), wide=query.output == "wide", namespaces=query.namespace is None)
            styles = rows.CELL_STYLES if wants_colour(out) else None
            out.write(columns(None, [cells], styles, least=widths))
        else:
            _print([changed], query, out, now())
        out.flush()
    return 0


def objects(client: ApiClient, plural: str, out: TextIO, *, output: str = "", titles: bool = True) -> int:
    """Print the objects of a kind of the cluster (FluxQueues, FluxReservations) in the printer columns of their CRD."""
    if output in ("json", "yaml", "name"):
        raw, _ = _raw_list(client, plural, None)
        out.write(_rendered(raw, output, plural, alone=False))
        return 0
    table = msgspec.json.decode(_asked(client, plural, None, {}, _TABLE), type=_Table)
    if not table.rows:
        _print_none(None)
        return 0
    shown = [at for at, column in enumerate(table.column_definitions) if column.priority == 0 or output == "wide"]
    header = [table.column_definitions[at].name.upper() for at in shown]
    cells = [["" if row.cells[at] is None else str(row.cells[at]) for at in shown] for row in table.rows]
    out.write(columns(header if titles else None, cells))
    return 0


def is_called(job: FluxJob, name: str) -> bool:
    """True if a name that a person wrote is that of a FluxJob or of its object."""
    kind, slash, rest = name.rpartition("/")
    if kind.lower() in ("fj", "fluxjob", "fluxjobs"):
        return job.metadata.name == rest
    return job.metadata.name == name or (
        rows.object_name(job) == f"{kind.lower().rstrip('s')}/{rest}" if slash else job.spec.object_ref.name == name
    )


def _asked(client: ApiClient, resource: str, namespace: str | None, params: Mapping[str, str], accept: str = "application/json") -> bytes:
    try:
        return client.get(collection(resource, namespace), params, accept)
    except NoSuchResource:
        raise ClusterError(
            f'error: the server doesn\'t have a resource type "{resource}" (is fluxqueue installed in this cluster?)'
        ) from None


def _raw_list(client: ApiClient, resource: str, namespace: str | None, selector: str = "") -> tuple[list[bytes], str]:
    items: list[bytes] = []
    token = ""
    while True:
        params = {"limit": _PAGE, **({"labelSelector": selector} if selector else {}), **({"continue": token} if token else {})}
        page = _LIST.decode(_asked(client, resource, namespace, params))
        items += [bytes(item) for item in page.items]
        token = page.metadata.continue_
        if not token:
            return items, page.metadata.resource_version


def _changes(client: ApiClient, query: JobsQuery, version: str) -> Iterator[Listed]:
    """Yield every later change, also after the watch ends or its version expires."""
    path = collection(names.FLUXJOBS, query.namespace)
    known: dict[str, str] = {}
    while True:
        params = {"resourceVersion": version, "allowWatchBookmarks": "true"}
        if query.selector:
            params["labelSelector"] = query.selector
        try:
            for line in client.watch(path, params):
                event = _EVENT.decode(line)
                if event.type == "ERROR":
                    status = msgspec.json.decode(event.object, type=_ErrorStatus)
                    raise ApiRefused(status.code, status.reason, status.message)
                raw = bytes(event.object)
                job = _JOB.decode(raw)
                version = job.metadata.resource_version or version
                if event.type in ("ADDED", "MODIFIED") and query.takes(job):
                    known[job.metadata.uid] = version
                    yield Listed(job, raw)
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            listed, version = list_jobs(client, query.namespace, query.selector)
            for item in listed:
                if query.takes(item.job) and known.get(item.job.metadata.uid) != item.job.metadata.resource_version:
                    yield item


def _widths(chosen: Sequence[Listed], query: JobsQuery, now: datetime) -> list[int]:
    wide, namespaces = query.output == "wide", query.namespace is None
    lines = [
        rows.headers(wide=wide, namespaces=namespaces),
        *(rows.row(item.job, now, wide=wide, namespaces=namespaces) for item in chosen),
    ]
    return [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]


def _print(chosen: Sequence[Listed], query: JobsQuery, out: TextIO, now: datetime) -> None:
    if query.output in ("json", "yaml", "name"):
        alone = len(query.names) == 1 or query.watch
        out.write(_rendered([item.raw for item in chosen], query.output, names.FLUXJOBS, alone=alone))
        return
    if not chosen:
        if not query.watch:
            _print_none(query.namespace)
        return
    text = rows.table(
        [item.job for item in chosen],
        now,
        wide=query.output == "wide",
        namespaces=query.namespace is None,
        titles=query.titles,
        colour=wants_colour(out),
    )
    out.write(text)


def _print_none(namespace: str | None) -> None:
    import sys

    print(f"No resources found in {namespace} namespace." if namespace else "No resources found", file=sys.stderr)


def _rendered(raw: Sequence[bytes], output: str, resource: str, *, alone: bool) -> str:
    items: list[dict[str, Any]] = [msgspec.json.decode(item) for item in raw]
    for item in items:
        item.get("metadata", {}).pop("managedFields", None)
    if output == "name":
        return "".join(f"{resource.removesuffix('s')}.{names.GROUP}/{item['metadata']['name']}\n" for item in items)
    documents = items if alone else [{"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}]
    if output == "json":
        return "".join(msgspec.json.format(msgspec.json.encode(item), indent=4).decode() + "\n" for item in documents)
    import yaml

    return "---\n".join(yaml.safe_dump(item, sort_keys=True, default_flow_style=False, allow_unicode=True) for item in documents)
