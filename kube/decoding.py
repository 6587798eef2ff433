"""Decoding of the API server's JSON into partial structs.

A list is decoded in one typed pass. If one object of a page does not fit its struct, the page is decoded object by object, and that one
is left out and reported, so that a single invalid object does not stop the queue. A watch event is decoded in two steps, because its type
decides how its object is decoded. JSON that is nested too deeply is cut (`fluxqueue.api.nesting`), and control characters are replaced
(`fluxqueue.api.texts`): this is the one place where text of the API server becomes ours. The webhook has a decoder of its own and cleans
nothing. It stores no text, and its patches must repeat what its user wrote. Annotations that nobody reads are dropped from Jobs, pods and
templates (`fluxqueue.api.annotations`), and a long affinity is kept as text (`fluxqueue.api.storedjson`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast

import msgspec

from fluxqueue.api.annotations import forget_unread
from fluxqueue.api.metadata import ObjectMeta, PartialObjectMetadata
from fluxqueue.api.nesting import decode_limited
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.storedjson import stored
from fluxqueue.api.texts import without_controls
from fluxqueue.kube.errors import Undecodable
from fluxqueue.kube.kinds import Key, T

__all__ = ["Page", "ServerVersion", "WatchEvent", "decode", "decode_object", "decode_page"]

S = TypeVar("S")


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
    """

    items: list[T]
    resource_version: str
    continue_token: str
    undecodable: dict[Key, str] = field(default_factory=dict)


class WatchEvent(msgspec.Struct):
    """One line of a watch: its type (ADDED, MODIFIED, DELETED, BOOKMARK or ERROR), and an object or Status that is not decoded yet."""

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
    clean = without_controls(text)
    decoded = _trimmed(decode_limited(_decoder_of(of), clean))
    return decoded if clean is text else _with_exact_fields(decoded, text)


def _trimmed(decoded: S) -> S:
    """Return the same object, which nobody has seen yet, without annotations that nobody reads and with long affinities as text."""
    metadata, specs = _parts_to_trim(cast("Hashable", type(decoded)))
    for part in metadata:
        forget_unread(part(decoded))
    for spec in (each(decoded) for each in specs):
        if spec.affinity:
            msgspec.structs.force_setattr(spec, "affinity", stored(spec.affinity))
    return decoded


@functools.cache
def _parts_to_trim(of: Hashable) -> tuple[list[Callable[[Any], ObjectMeta]], list[Callable[[Any], PodSpec]]]:
    metadata, specs = getattr(of, "trimmed_annotations", ()), getattr(of, "compact_specs", ())
    return [attrgetter(path) for path in metadata], [attrgetter(path) for path in specs]


def _with_exact_fields(decoded: S, text: bytes) -> S:
    """Return an object with those fields as they were written that are copied into other objects."""
    if not (fields := _exact_fields(type(decoded))):
        return decoded
    exact = decode_limited(_decoder_of(type(decoded)), text)
    return cast("S", msgspec.structs.replace(cast("msgspec.Struct", decoded), **{name: getattr(exact, name) for name in fields}))


def decode_page(data: bytes, of: type[T], action: str) -> Page[T]:
    """Decode one page of a list; raises :class:`Undecodable` if it is not a list."""
    clean = without_controls(data)
    if clean is not data and _exact_fields(of):
        return _piecewise(data, of, action)
    try:
        whole: _ListOf[T] = decode_limited(_list_decoder(of), clean)
    except msgspec.ValidationError:
        return _piecewise(data, of, action)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error
    return Page([_trimmed(item) for item in whole.items or []], whole.metadata.resource_version, whole.metadata.continue_)


def _exact_fields(of: type[Any]) -> tuple[str, ...]:
    fields: tuple[str, ...] = getattr(of, "exact_fields", ())
    return fields


def _piecewise(data: bytes, of: type[T], action: str) -> Page[T]:
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
