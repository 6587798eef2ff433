"""Lists of FluxJobs, FluxQueues and other objects of the project, and the output formats of ``kubectl get``.

FluxJobs are decoded, because their table shows more than printer columns can (`fluxqueue.cli.job_listing`).
The others are shown in the printer columns of their CRD, as the server renders them, so new columns appear
without a change here. JSON and YAML output is the server's object, with all its fields.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError, NoSuchResource
from fluxqueue.cli.remedies import INSTALL
from fluxqueue.cli.tables import columns

__all__ = [
    "NOT_INSTALLED",
    "Listed",
    "collection",
    "list_accounts",
    "list_jobs",
    "list_objects",
    "list_queues",
    "objects",
    "print_none",
    "rendered",
    "require_installed",
]

_PAGE = "500"
NOT_INSTALLED = f'error: the server doesn\'t have a resource type "{{}}" ({INSTALL})'
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True)
class Listed:
    """A FluxJob, decoded and as the server sent it."""

    job: FluxJob
    raw: bytes


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw] = []
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


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


def collection(resource: str, namespace: str | None = None) -> str:
    """Return the path of a resource of the project in a namespace, or in all namespaces (None)."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{names.API_VERSION}{where}/{resource}"


def list_jobs(client: ApiClient, namespace: str | None, *, raw: bool = False) -> tuple[list[Listed], str]:
    """Return all FluxJobs and the version of the list, read page by page.

    Parameters
    ----------
    client, namespace
        The API server, and a namespace; None: all.
    raw
        Keep them also as the server sent them, which takes more memory than all that is decoded.

    Raises
    ------
    ClusterError
        The CRD is not installed, or the server refuses.
    """
    listed: list[Listed] = []
    version = ""
    for page in _pages(client, names.FLUXJOBS, namespace):
        listed += [Listed(_JOB.decode(item), bytes(item) if raw else b"") for item in page.items]
        version = page.metadata.resource_version
    return listed, version


def list_queues(client: ApiClient) -> list[FluxQueue]:
    """Return all FluxQueues; errors as `list_jobs`."""
    return [_QUEUE.decode(item) for item in list_objects(client, names.FLUXQUEUES)[0]]


def list_accounts(client: ApiClient) -> list[FluxAccount]:
    """Return all FluxAccounts; errors as `list_jobs`."""
    return [_ACCOUNT.decode(item) for item in list_objects(client, names.FLUXACCOUNTS)[0]]


def objects(client: ApiClient, plural: str, out: TextIO, *, output: str = "", titles: bool = True) -> int:
    """Print the objects of a kind of the cluster (FluxQueues, FluxReservations) in the printer columns of
    their CRD.
    """
    if output in ("json", "yaml", "name"):
        raw, _ = list_objects(client, plural)
        out.write(rendered(raw, output, plural, alone=False))
        return 0
    table = msgspec.json.decode(_asked(client, plural, None, {}, _TABLE), type=_Table)
    if not table.rows:
        print_none(None)
        return 0
    shown = [
        at for at, column in enumerate(table.column_definitions) if column.priority == 0 or output == "wide"
    ]
    header = [table.column_definitions[at].name.upper() for at in shown]
    cells = [["" if row.cells[at] is None else str(row.cells[at]) for at in shown] for row in table.rows]
    out.write(columns(header if titles else None, cells))
    return 0


def _asked(
    client: ApiClient,
    resource: str,
    namespace: str | None,
    params: Mapping[str, str],
    accept: str = "application/json",
) -> bytes:
    try:
        return client.get(collection(resource, namespace), params, accept)
    except NoSuchResource:
        raise ClusterError(NOT_INSTALLED.format(resource)) from None


def list_objects(client: ApiClient, resource: str) -> tuple[list[bytes], str]:
    """Return all objects of a resource of the project as the server sent them, and the version of the list,
    read page by page.
    """
    items: list[bytes] = []
    version = ""
    for page in _pages(client, resource, None):
        items += [bytes(item) for item in page.items]
        version = page.metadata.resource_version
    return items, version


def require_installed(client: ApiClient, namespace: str) -> None:
    """Ask for a FluxJob where another error may only mean that fluxqueue is not installed.

    Raises
    ------
    ClusterError
        The server has no FluxJobs. Other errors are those of a person without rights, and say nothing.
    """
    try:
        client.get(collection(names.FLUXJOBS, namespace), {"limit": "1"})
    except NoSuchResource:
        raise ClusterError(NOT_INSTALLED.format(names.FLUXJOBS)) from None
    except ApiRefused:
        return


def _pages(client: ApiClient, resource: str, namespace: str | None) -> Iterator[_RawList]:
    token = ""
    while True:
        params = {"limit": _PAGE, **({"continue": token} if token else {})}
        page = _LIST.decode(_asked(client, resource, namespace, params))
        yield page
        token = page.metadata.continue_
        if not token:
            return


def print_none(namespace: str | None) -> None:
    """Say on standard error, as kubectl does, that there is nothing."""
    print(
        f"No resources found in {namespace} namespace." if namespace else "No resources found",
        file=sys.stderr,
    )


def rendered(raw: Sequence[bytes], output: str, resource: str, *, alone: bool) -> str:
    """Return objects as JSON, YAML or names; ``alone`` is true for one object by its name,
    which is not wrapped in a list.
    """
    if output == "name":
        called = (str(_shown(item)["metadata"]["name"]) for item in raw)
        return "".join(f"{resource.removesuffix('s')}.{names.GROUP}/{name}\n" for name in called)
    if output == "json" and not alone:
        return _json_list(raw)
    items = [_shown(item) for item in raw]
    documents = (
        items
        if alone
        else [{"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}]
    )
    if output == "json":
        return "".join(
            msgspec.json.format(msgspec.json.encode(item), indent=4).decode() + "\n" for item in documents
        )
    import yaml

    return "---\n".join(
        yaml.safe_dump(item, sort_keys=True, default_flow_style=False, allow_unicode=True)
        for item in documents
    )


def _shown(item: bytes) -> dict[str, Any]:
    """Return an object without the fields that kubectl does not show."""
    document: dict[str, Any] = msgspec.json.decode(item)
    document.get("metadata", {}).pop("managedFields", None)
    return document


def _json_list(raw: Sequence[bytes]) -> str:
    """Return a List, made object by object: thousands of decoded objects take more memory than all their
    text.
    """
    texts = (msgspec.json.format(msgspec.json.encode(_shown(item)), indent=4).decode() for item in raw)
    items = ",\n".join("        " + text.replace("\n", "\n        ") for text in texts)
    listed = f"[\n{items}\n    ]" if items else "[]"
    head = f'{{\n    "apiVersion": "v1",\n    "items": {listed}'
    tail = '"kind": "List",\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n'
    return f"{head},\n    {tail}"
