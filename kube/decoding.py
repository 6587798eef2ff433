"""Decoding of the API server's JSON into partial structs.

A page of a list is decoded in one typed pass. If one object does not fit its struct, the page is decoded
object by object, and that one is left out and reported, so that a single invalid object does not stop the
queue. So is a long page, while other work goes on: of objects that are made for it, 30 MiB take two seconds.
A watch event is decoded in two steps, because its type decides how its object is decoded. JSON that is nested
too deeply is cut (`fluxqueue.api.nesting`), and control characters are replaced (`fluxqueue.api.texts`): this
is the one place where text of the API server becomes ours. The webhook has a decoder of its own and cleans
nothing. It stores no text, and its patches must repeat what its user wrote. Annotations that nobody reads are
dropped from what people of a namespace create (`fluxqueue.api.annotations`), what else is too much of an
object is dropped too (`fluxqueue.api.objectsizes`), and a long affinity is kept as text
(`fluxqueue.api.storedjson`). What objects have in common is kept once (`fluxqueue.api.sharedparts`). Only
what is kept is cleaned: to replace a million characters takes a second.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from time import thread_time
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from fluxqueue.api.annotations import forget_unread
from fluxqueue.api.metadata import ObjectMeta, PartialObjectMetadata
from fluxqueue.api.nesting import decode_limited
from fluxqueue.api.objectsizes import (
    MOST_OF_SPEC,
    bound_metadata,
    bounded_minicluster,
    bounded_spec,
    too_long,
)
from fluxqueue.api.sharedparts import share
from fluxqueue.api.storedjson import LONG, plain, stored
from fluxqueue.api.texts import has_controls, without_controls
from fluxqueue.kube.errors import Undecodable
from fluxqueue.kube.kinds import Key, T

__all__ = [
    "Page",
    "ServerVersion",
    "WatchEvent",
    "decode",
    "decode_object",
    "decode_page",
    "decode_page_in_turns",
]

S = TypeVar("S")

_SHORT_PAGE: Final = 2 * 2**20
"""Bytes of a page that is decoded at once: 0.15 s at most."""
_TURN_S: Final = 0.05
"""CPU time after which other work has its turn."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes
    ----------
    items
        The objects.
    resource_version
        The version of the whole list, not only of the page.
    continue_token
        Token for the next page; empty on the last one.
    undecodable
        The problem of each object that was left out.
    limit
        How many objects to ask for with the next page.
    """

    items: list[T]
    resource_version: str
    continue_token: str
    undecodable: dict[Key, str] = field(default_factory=dict)
    limit: int = 0


class WatchEvent(msgspec.Struct):
    """One line of a watch: its type (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR),
    and an object or Status that is not decoded yet.
    """

    type: str
    object: msgspec.Raw


class ServerVersion(msgspec.Struct, rename="camel"):
    """The response of ``/version``."""

    git_version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _ListOf(msgspec.Struct, Generic[S]):
    metadata: _ListMeta
    items: list[S] | None = None


def decode(data: bytes | msgspec.Raw, of: type[S], action: str) -> S:
    """Decode a response.

    Raises
    ------
    Undecodable
        With the action, the field and the expected type.
    """
    try:
        return decode_object(data, of)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error


def decode_object(data: bytes | msgspec.Raw, of: type[S]) -> S:
    """Decode an object.

    Raises
    ------
    msgspec.MsgspecError
        With the field and the expected type.
    """
    if of is WatchEvent:
        return decode_limited(_decoder_of(of), data)  # its object is decoded later, where its type is known
    text = bytes(data)
    decoded = decode_limited(_decoder_of(of), text)
    return _kept(decoded, of, controls=has_controls(text), size=len(text))


def _kept(decoded: S, of: type[S], *, controls: bool, size: int) -> S:
    """Return what is kept of an object that nobody has seen yet.

    Parameters
    ----------
    decoded, of
        The object, and its struct.
    controls
        True if its JSON has control characters.
    size
        Bytes of its JSON, or of the list that it is in.
    """
    kept = _trimmed(decoded, size)
    if not controls:
        return kept
    text = msgspec.json.encode(kept, enc_hook=plain)
    if (clean := without_controls(text)) is text:
        return kept
    cleaned = _trimmed(decode_limited(_decoder_of(of), clean), len(clean))
    if not (fields := _exact_fields(of)):
        return cleaned
    # what is copied into other objects stays as it was written
    exact = {name: getattr(kept, name) for name in fields}
    return cast("S", msgspec.structs.replace(cast("msgspec.Struct", cleaned), **exact))


def _trimmed(decoded: S, size: int) -> S:
    """Return the same object without what nobody reads or what is too much, with long affinities as text,
    and with parts that it shares with others.
    """
    metadata, specs, bounded = _parts_to_trim(cast("Hashable", type(decoded)))
    for path in metadata:
        meta = path(decoded)
        forget_unread(meta)
        bound_metadata(meta)
    for owner, name in specs:
        parent = owner(decoded)
        spec = getattr(parent, name)
        if spec.affinity:
            longest = getattr(decoded, "longest_affinity", LONG)
            msgspec.structs.force_setattr(spec, "affinity", stored(spec.affinity, longest))
        if size > MOST_OF_SPEC:
            msgspec.structs.force_setattr(parent, name, bounded_spec(spec))
    for owner, name in bounded if size > MOST_OF_SPEC else ():
        parent = owner(decoded)
        msgspec.structs.force_setattr(parent, name, bounded_minicluster(getattr(parent, name)))
    most = getattr(decoded, "most_bytes", size)
    if size > most and (problem := too_long(decoded, most)):
        raise msgspec.ValidationError(problem)
    share(decoded)
    return decoded


_Field = tuple[Callable[[Any], Any], str]
"""Who returns the struct that has it, and its name."""


@functools.cache
def _parts_to_trim(of: Hashable) -> tuple[list[Callable[[Any], ObjectMeta]], list[_Field], list[_Field]]:
    """Return the metadata, the specs of pods and the specs of MiniClusters in objects of a kind."""
    metadata: Sequence[str] = getattr(of, "trimmed_annotations", ())
    return [attrgetter(path) for path in metadata], _fields(of, "compact_specs"), _fields(of, "bounded_specs")


def _fields(of: Hashable, name: str) -> list[_Field]:
    parts = [path.rpartition(".") for path in getattr(of, name, ())]
    return [(attrgetter(owner) if owner else _itself, field) for owner, _, field in parts]


def _itself(obj: Any) -> Any:
    return obj


async def decode_page_in_turns(data: bytes, of: type[T], action: str) -> Page[T]:
    """Decode one page of a list, as `decode_page` does, while other work goes on if it is long."""
    if len(data) <= _SHORT_PAGE:
        return decode_page(data, of, action)
    pieces, began = _piecewise(data, of, action), thread_time()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return cast("Page[T]", end.value)
        if thread_time() - began > _TURN_S:
            await asyncio.sleep(0)
            began = thread_time()


def decode_page(data: bytes, of: type[T], action: str) -> Page[T]:
    """Decode one page of a list; raises :class:`Undecodable` if it is not a list."""
    controls = has_controls(data)
    try:
        whole: _ListOf[T] = decode_limited(_list_decoder(of), data)
        items = [_kept(item, of, controls=controls, size=len(data)) for item in whole.items or []]
    except msgspec.ValidationError:
        pieces = _piecewise(data, of, action)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return cast("Page[T]", end.value)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error
    return Page(items, whole.metadata.resource_version, whole.metadata.continue_)


def _exact_fields(of: type[Any]) -> tuple[str, ...]:
    fields: tuple[str, ...] = getattr(of, "exact_fields", ())
    return fields


def _piecewise(data: bytes, of: type[T], action: str) -> Generator[None, None, Page[T]]:
    """Decode one object after the other, and return the page."""
    try:
        whole: _ListOf[msgspec.Raw] = decode_limited(_list_decoder(msgspec.Raw), data)
        items: list[T] = []
        undecodable: dict[Key, str] = {}
        for raw in whole.items or []:
            try:
                items.append(decode_object(raw, of))
            except msgspec.ValidationError as error:
                meta = decode_object(raw, PartialObjectMetadata).metadata
                undecodable[meta.namespace, meta.name] = str(error)
            yield
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error
    return Page(items, whole.metadata.resource_version, whole.metadata.continue_, undecodable)


def _decoder_of(of: type[S]) -> msgspec.json.Decoder[S]:
    """Return the decoder of a struct, which is created once."""
    return cast("msgspec.json.Decoder[S]", _decoder(cast("Hashable", of)))


@functools.cache
def _decoder(of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", of))


@functools.cache
def _list_decoder(of: Hashable) -> msgspec.json.Decoder[_ListOf[Any]]:
    return msgspec.json.Decoder(cast("type[_ListOf[Any]]", GenericAlias(_ListOf, (of,))))
