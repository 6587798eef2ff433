"""From the API server's JSON to partial structs.

Lists decode in one pass, typed. When one object of a page does not fit its struct, the page is read again object by object and that
one is left out and named: a single odd object must not stop the queue for everybody. Watch events decode in two steps, because the
type of the event says what to do with an object that is skipped until then.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast

import msgspec

from fluxqueue.api.objects import ObjectMeta
from fluxqueue.kube.errors import Undecodable
from fluxqueue.kube.kinds import Key, T

__all__ = ["Event", "Meta", "Page", "Version", "decode", "decode_page", "decoder"]

S = TypeVar("S")


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes
    ----------
    items
        The objects.
    resource_version
        The moment that the whole list, not only the page, shows.
    continue_token
        Asks for the next page; empty on the last.
    undecodable
        What is wrong with each object that was left out.
    """

    items: list[T]
    resource_version: str
    continue_token: str
    undecodable: dict[Key, str] = field(default_factory=dict)


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and an object or Status still to be decoded."""

    type: str
    object: msgspec.Raw


class Meta(msgspec.Struct):
    """Only an object's metadata: bookmarks have nothing else, and what does not fit its struct still has a name."""

    metadata: ObjectMeta = ObjectMeta()


class Version(msgspec.Struct, rename="camel"):
    """The answer of ``/version``."""

    git_version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _ListOf(msgspec.Struct, Generic[S]):
    metadata: _ListMeta
    items: list[S] | None = None


def decoder(of: type[S]) -> msgspec.json.Decoder[S]:
    """The decoder of a struct, made once."""
    return cast("msgspec.json.Decoder[S]", _decoder(cast("Hashable", of)))


def decode(data: bytes | msgspec.Raw, of: type[S], doing: str) -> S:
    """Decode an answer.

    Raises
    ------
    Undecodable
        With what was being done, the field, and what was expected there.
    """
    try:
        return decoder(of).decode(data)
    except msgspec.MsgspecError as error:
        raise Undecodable(doing, str(error)) from error


def decode_page(data: bytes, of: type[T], doing: str) -> Page[T]:
    """Decode one page of a list; raises :class:`Undecodable` when it is no list at all."""
    try:
        whole: _ListOf[T] = _list_decoder(of).decode(data)
    except msgspec.ValidationError:
        return _piecewise(data, of, doing)
    except msgspec.MsgspecError as error:
        raise Undecodable(doing, str(error)) from error
    return Page(whole.items or [], whole.metadata.resource_version, whole.metadata.continue_)


def _piecewise(data: bytes, of: type[T], doing: str) -> Page[T]:
    try:
        whole: _ListOf[msgspec.Raw] = _list_decoder(msgspec.Raw).decode(data)
        items: list[T] = []
        undecodable: dict[Key, str] = {}
        for raw in whole.items or []:
            try:
                items.append(decoder(of).decode(raw))
            except msgspec.ValidationError as error:
                meta = decoder(Meta).decode(raw).metadata
                undecodable[meta.namespace, meta.name] = str(error)
    except msgspec.MsgspecError as error:
        raise Undecodable(doing, str(error)) from error
    return Page(items, whole.metadata.resource_version, whole.metadata.continue_, undecodable)


@functools.cache
def _decoder(of: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", of))


@functools.cache
def _list_decoder(of: Hashable) -> msgspec.json.Decoder[_ListOf[Any]]:
    return msgspec.json.Decoder(cast("type[_ListOf[Any]]", GenericAlias(_ListOf, (of,))))
