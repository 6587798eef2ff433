"""From what a caller has (builders, dictionaries, objects of the ``kubernetes`` package, YAML) to units of
work, each with its objects.

A unit is what the queue matches as one: a Job, a Pod, a pod group, a MiniCluster. Pods with the same group
label are one unit. Everything is checked here, before the first request, so that bad input creates nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.groupsizes import InvalidGroupSize, parse_group_size
from fluxqueue.client.builders import Job, MiniCluster, Pod, PodGroup
from fluxqueue.client.errors import InvalidWork
from fluxqueue.client.terms import Terms, with_lists, with_terms
from fluxqueue.kube.kinds import JOBS, MINICLUSTERS, PODS, Kind

__all__ = ["MAX_TEXT", "Submission", "Work", "submissions"]

Json = dict[str, Any]
Work = Job | Pod | PodGroup | MiniCluster | Mapping[str, Any] | str | Path | Any
"""Work as a caller has it.
Text is YAML, a `pathlib.Path` a file of YAML; an object of the ``kubernetes`` package has its own form."""

MAX_TEXT = 16 * 2**20
"""Bytes of YAML. The API server stores objects of at most 1.5 MiB."""

_KINDS: Mapping[str, Kind[Any]] = {kind.kind: kind for kind in (JOBS, PODS, MINICLUSTERS)}


@dataclass(frozen=True)
class Submission:
    """One unit of work: its kind, its name (empty if the API server makes it), and its objects.

    ``kind`` is ``Job``, ``Pod``, ``MiniCluster`` or ``PodGroup``; only a group has several objects.
    """

    kind: str
    name: str
    namespace: str
    manifests: tuple[Json, ...]

    @property
    def served_as(self) -> Kind[Any]:
        """The kind of its objects."""
        return _KINDS["Pod" if self.kind == "PodGroup" else self.kind]


def submissions(work: Work, namespace: str, terms: Terms) -> list[Submission]:
    """Return the units of some work, in their order.

    Parameters
    ----------
    work
        See `Work`.
    namespace
        Namespace of objects that name none.
    terms
        For all of them.

    Raises
    ------
    InvalidWork
        It is no work, or cannot be submitted; with the object, the field and the remedy.
    """
    documents = [_placed(document, namespace) for document in _documents(work)]
    terms = with_lists(terms)
    if not documents:
        raise InvalidWork("there is no object in it: give at least one Job, Pod or MiniCluster")
    units: list[Submission] = []
    for key, members in itertools.groupby(documents, _unit_key):
        with_their_terms = tuple(with_terms(member, terms) for member in members)
        kind, where, name = key
        if kind == "PodGroup":
            _check_group(name, with_their_terms)
            if any((unit.kind, unit.namespace, unit.name) == (kind, where, name) for unit in units):
                raise InvalidWork(
                    f"pod group {where}/{name}: its pods are not next to each other: put them together"
                )
            units.append(Submission(kind, name, where, with_their_terms))
        else:
            units += [
                Submission(kind, member["metadata"].get("name", ""), where, (member,))
                for member in with_their_terms
            ]
    return units


def _documents(work: Work) -> Iterator[Json]:
    if isinstance(work, PodGroup):
        yield from work.manifests()
    elif isinstance(work, Job | Pod | MiniCluster):
        yield work.manifest()
    elif isinstance(work, Path):
        yield from _parsed(_read(work), str(work))
    elif isinstance(work, str):
        yield from _parsed(work, "the YAML")
    elif isinstance(work, Mapping):
        yield from _items(dict(work))
    else:
        yield _of_kubernetes_package(work)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidWork(f"{path}: cannot be read: {error}") from None


def _parsed(text: str, where: str) -> Iterator[Json]:
    if len(text) > MAX_TEXT:
        raise InvalidWork(f"{where} has {len(text)} characters: at most {MAX_TEXT} are read, so divide it")
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise InvalidWork(f"{where} is no YAML: {' '.join(str(error).split())[:300]}") from None
    for document in documents:
        if not isinstance(document, dict):
            hint = " (a file is given as pathlib.Path)" if isinstance(document, str) else ""
            raise InvalidWork(
                f"{where} holds {type(document).__name__} instead of an object of Kubernetes{hint}"
            )
        yield from _items(document)


def _items(document: Json) -> Iterator[Json]:
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        yield from document["items"]
    else:
        yield document


def _of_kubernetes_package(work: Any) -> Json:
    """Return an object of the ``kubernetes`` package, whose fields have Python's names,
    as the API server's JSON.
    """
    if not type(work).__module__.startswith(("kubernetes.", "kubernetes_asyncio.")):
        raise InvalidWork(
            f"{type(work).__name__} is no work: give a Job, PodGroup or MiniCluster of fluxqueue.client, a "
            "dictionary, YAML as text, a pathlib.Path, or an object of the kubernetes package"
        )
    from kubernetes.client import ApiClient

    document = ApiClient().sanitize_for_serialization(work)
    kind = type(work).__name__.removeprefix("V1")
    if not isinstance(document, dict):
        raise InvalidWork(f"{type(work).__name__} is no object of Kubernetes")
    # People leave apiVersion and kind out of models, since these have a class for each kind.
    version = _KINDS[kind].api_version if kind in _KINDS else ""
    return {"apiVersion": version, "kind": kind, **document}


def _placed(document: Any, namespace: str) -> Json:
    kind = str(document.get("kind")) if isinstance(document, dict) else ""
    if kind not in _KINDS:
        raise InvalidWork(
            f"kind {kind[:80]!r} is not submitted by the client: it submits {', '.join(_KINDS)}; "
            "apply other objects with kubectl"
        )
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise InvalidWork(f"{kind}: metadata.name is missing: give it a name, or metadata.generateName")
    if document.get("apiVersion", _KINDS[kind].api_version) != _KINDS[kind].api_version:
        raise InvalidWork(
            f"{kind} {meta.get('name', '')}: apiVersion is {document['apiVersion']!r}: "
            f"write {_KINDS[kind].api_version}"
        )
    for field in ("labels", "annotations"):
        if not isinstance(meta.get(field) or {}, dict):
            raise InvalidWork(f"{kind} {meta.get('name', '')}: metadata.{field} is no mapping")
    if not isinstance(document.get("spec"), dict):
        raise InvalidWork(f"{kind} {meta.get('name', '')}: spec is missing")
    return {
        "apiVersion": _KINDS[kind].api_version,
        **{key: value for key, value in document.items() if key != "status"},
        "metadata": {**meta, "namespace": meta.get("namespace") or namespace},
    }


def _unit_key(document: Json) -> tuple[str, str, str]:
    """Return kind, namespace and, for a pod of a group, its name: what adjacent objects of one unit share."""
    meta = document["metadata"]
    group = (meta.get("labels") or {}).get(names.POD_GROUP_LABEL) if document["kind"] == "Pod" else None
    return ("PodGroup", meta["namespace"], str(group)) if group else (document["kind"], meta["namespace"], "")


def _check_group(name: str, members: Iterable[Json]) -> None:
    """Check that a group is complete, because an incomplete one waits for ever."""
    pods = list(members)
    sizes = {
        (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_SIZE_ANNOTATION) for pod in pods
    } - {None}
    if len(sizes) != 1:
        raise InvalidWork(
            f"pod group {name}: {names.POD_GROUP_SIZE_ANNOTATION} must be on its pods, "
            f"with one value: found {len(sizes)}"
        )
    try:
        size = parse_group_size(str(sizes.pop()))
    except InvalidGroupSize as error:
        raise InvalidWork(f"pod group {name}: {error}") from None
    if size != len(pods):
        raise InvalidWork(
            f"pod group {name}: {names.POD_GROUP_SIZE_ANNOTATION} is {size}, but it has {len(pods)} pods "
            "here: submit all of them together"
        )
