"""Decoding of JSON that is nested deeper than the decoders allow.

The API server accepts objects that are nested 10,000 levels deep where a schema leaves a part open, as in
``podTemplate`` of a MiniCluster. The JSON decoders used here fail at about a thousand levels, with an
exception that does not name the object. So one such object in a list would make all others unreadable.
Therefore, what is nested deeper than in any real object is replaced by ``null``, in one pass over the text
that needs no stack. The rest is still nested too deeply for the rules of its kind, so it is refused by name.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

__all__ = ["decode_limited", "limit_depth"]

_T = TypeVar("_T")

_DEEPEST = 200
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode_limited(
    decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw, most_tokens: int | None = None
) -> _T:
    """Decode JSON; what is nested too deeply is decoded as null.

    Parameters
    ----------
    decoder
        The decoder.
    data
        The text.
    most_tokens
        The number of strings and brackets after which the attempt ends, for a text that anybody can send: a
        million take 0.5 s.

    Raises
    ------
    msgspec.MsgspecError
        As the decoder raises it.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from None
    except RecursionError:
        try:
            return decoder.decode(limit_depth(bytes(data), most_tokens))
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None


def limit_depth(data: bytes, most_tokens: int | None = None) -> bytes:
    """Return a JSON text in which everything nested more than 200 levels deep is replaced by ``null``.

    Raises
    ------
    msgspec.DecodeError
        The text has more strings and brackets than ``most_tokens``.
    """
    kept: list[bytes] = []
    depth = copied = start = 0
    for number, token in enumerate(_TOKEN.finditer(data)):
        if most_tokens is not None and number >= most_tokens:
            raise msgspec.DecodeError(
                f"it is nested too deeply, and has more than {most_tokens} strings and brackets"
            )
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == _DEEPEST + 1:
                    start = token.start()
            case b"}" | b"]":
                if depth == _DEEPEST + 1:
                    kept += (data[copied:start], b"null")
                    copied = token.end()
                depth -= 1
    return b"".join((*kept, data[copied:]))
