"""A result on its way from a pod to the client: signed, compressed, bounded, and carried by what every pod
has.

A small result is the termination message of the container, at most 4,096 bytes, which comes with the status
of the pod. A larger one is written to the log, after the output of the call, in numbered lines. So nothing is
needed that a pod does not have: no volume, no permission of its own, no way back to the client's machine.

The client unpickles what it reads, so nobody else may write it. Each frame is signed (HMAC-SHA256) with a key
that only this executor and its pods have, over the name of the task too: no output of a program can pass for
a result, nor the result of one task for that of another.

This module is part of the program that runs in the pods (`fluxqueue.client.worker`), so it imports only the
standard library.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib
from collections.abc import Iterable

__all__ = [
    "MAX_MESSAGE",
    "PREFIX",
    "Damaged",
    "TooLarge",
    "from_log",
    "lines_of",
    "log_lines",
    "opened",
    "sealed",
]

MAX_MESSAGE = 4096
"""Characters of a termination message (Kubernetes)."""
PREFIX = "fluxqueue-result"
_LINE = 8_192
_DIGEST = 32


class Damaged(Exception):
    """What was read is no result of this task: incomplete, changed, or of somebody else."""


class TooLarge(Exception):
    """A result is larger than agreed."""


def sealed(payload: bytes, key: bytes, task: str) -> str:
    """Return a result as text.

    Parameters
    ----------
    payload
        The result.
    key
        The key of the executor.
    task
        Which result it is.
    """
    body = zlib.compress(payload, 1)
    return base64.b64encode(_signature(body, key, task) + body).decode()


def opened(text: str, key: bytes, task: str, max_bytes: int) -> bytes:
    """Return the result in a text.

    Raises
    ------
    Damaged
        It is not signed with this key for this task.
    TooLarge
        It has more than ``max_bytes``.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise Damaged("it is no result") from None
    signature, body = raw[:_DIGEST], raw[_DIGEST:]
    if not hmac.compare_digest(signature, _signature(body, key, task)):
        raise Damaged("its signature is not that of this task")
    unpacker = zlib.decompressobj()
    payload = unpacker.decompress(body, max_bytes)
    if unpacker.unconsumed_tail:
        raise TooLarge(f"it has more than {max_bytes} bytes")
    return payload


def log_lines(text: str, task: str) -> list[str]:
    """Return a sealed result as lines for a log: each with its number and how many there are."""
    pieces = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return [f"{PREFIX} {task} {number}/{len(pieces)} {piece}" for number, piece in enumerate(pieces, 1)]


def lines_of(size: int) -> int:
    """Return how many lines of a log a result of ``size`` bytes needs at most."""
    return (size + _DIGEST + 1_024) * 4 // 3 // _LINE + 2


def from_log(lines: Iterable[str], task: str) -> str:
    """Return the sealed result in the lines of a log, among any other lines; the last one if there are
    several.

    Raises
    ------
    Damaged
        There is no complete one.
    """
    pieces: dict[int, str] = {}
    count = 0
    for line in lines:
        words = line.strip().split(" ")
        if len(words) != 4 or words[:2] != [PREFIX, task]:
            continue
        number, _, total = words[2].partition("/")
        if number.isdecimal() and total.isdecimal():
            if number == "1":
                pieces = {}
            pieces[int(number[:9])], count = words[3], int(total[:9])
    # Not by a list of all numbers: what a program prints may claim any number of lines.
    if not count or len(pieces) != count or not all(1 <= number <= count for number in pieces):
        raise Damaged("there is no complete result in its output")
    return "".join(pieces[number] for number in range(1, count + 1))


def _signature(body: bytes, key: bytes, task: str) -> bytes:
    return hmac.digest(key, task.encode() + b"\0" + body, hashlib.sha256)
