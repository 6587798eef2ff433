"""Decoding of the API server's JSON into partial structs.

A list is decoded in one typed pass. If one object of a page does not fit its struct, the page is decoded object by object, and that one
is left out and reported, so that a single invalid object does not stop the queue. A watch event is decoded in two steps, because its type
decides how its object is decoded. JSON that is nested too deeply is cut (`fluxqueue.api.nesting`).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast

import msgspec

from fluxqueue.api.metadata import PartialObjectMetadata
from fluxqueue.api.nesting import decode_limited
from fluxqueue.kube.errors import Undecodable
from fluxqueue.kube.kinds import Key, T

__all__ = ["Page", "ServerVersion", "WatchEvent", "decode", "decode_page", "decoder"]

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


def decoder(of: type[S]) -> msgspec.json.Decoder[S]:
    """Return the decoder of a struct, which is created once."""
    return cast("msgspec.json.Decoder[S]", _decoder(cast("Hashable", of)))


def decode(data: bytes | msgspec.Raw, of: type[S], action: str) -> S:
    """Decode a response.

    Raises
    ------
    Undecodable
        With the action, the field and the expected type.
    """
    try:
        return decode_limited(decoder(of), data)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error


def decode_page(data: bytes, of: type[T], action: str) -> Page[T]:
    """Decode one page of a list; raises :class:`Undecodable` if it is not a list."""
    try:
        whole: _ListOf[T] = decode_limited(_list_decoder(of), data)
    except msgspec.ValidationError:
        return _piecewise(data, of, action)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error
    return Page(whole.items or [], whole.metadata.resource_version, whole.metadata.continue_)


def _piecewise(data: bytes, of: type[T], action: str) -> Page[T]:
    try:
        whole: _ListOf[msgspec.Raw] = decode_limited(_list_decoder(msgspec.Raw), data)
        items: list[T] = []
        undecodable: dict[Key, str] = {}
        for raw in whole.items or []:
            try:
                items.append(decode_limited(decoder(of), raw))
            except msgspec.ValidationError as error:
                meta = decode_limited(decoder(PartialObjectMetadata), raw).metadata
                undecodable[meta.namespace, meta.name] = str(error)
    except msgspec.MsgspecError as error:
        raise Undecodable(action, str(error)) from error
    return Page(items, whole.metadata.resource_version, whole.metadata.continue_, undecodable)


@functools.cache
def _decoder(of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", of))


@functools.cache
def _list_decoder(of: Hashable) -> msgspec.json.Decoder[_ListOf[Any]]:
    return msgspec.json.Decoder(cast("type[_ListOf[Any]]", GenericAlias(_ListOf, (of,))))
