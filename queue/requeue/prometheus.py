"""Asks a Prometheus what pods use.

The query is the administrator's. It is asked for the largest value of each pod, so that a pod with many
series is one series of the answer. What is answered is text of others: it is bounded, an answer that is too
long, or of which a part may be missing, counts as none, names are only compared with those of known pods, and
nothing of it is shown but the first words of an error. It is read in slices, so that a long answer holds up
nobody.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final

import aiohttp
import msgspec

from fluxqueue.api.texts import brief
from fluxqueue.kube.bodies import read_body
from fluxqueue.queue.model.idleness import IdleRules, PodName

__all__ = ["MOST_BYTES", "MOST_SERIES", "NoAnswer", "ask_use", "use_in"]

MOST_BYTES: Final = 16 * 2**20
MOST_SERIES: Final = 100_000
_MOST_COMMAS: Final = 4 * MOST_SERIES + 1_000
"""Four for each series: they bound what is in memory before it is counted."""
_REMARKS: Final = ("PromQL ",)
"""How warnings begin that are about the query, and not about what is missing."""
_TIMEOUT_S: Final = 20.0
_LONGEST_ERROR: Final = 300
_AT_ONCE: Final = 1_000
"""Series that are read before others have their turn."""


class NoAnswer(Exception):
    """Prometheus did not answer, or not what was asked; the message says why."""


class _Labels(msgspec.Struct, frozen=True):
    namespace: str = ""
    pod: str = ""


class _Series(msgspec.Struct, frozen=True):
    value: tuple[float, str]
    metric: _Labels = _Labels()


class _Data(msgspec.Struct, frozen=True, rename={"kind": "resultType"}):
    kind: str = ""
    result: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_SERIES)] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Data = _Data()
    warnings: list[str] | None = None
    is_partial: bool = msgspec.field(default=False, name="isPartial")


async def ask_use(rules: IdleRules, is_known: Callable[[PodName], bool]) -> dict[PodName, float]:
    """Ask for the use of all pods, and return that of those that are known.

    Raises
    ------
    NoAnswer
        There is none, or it is none to this query.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            body = await _ask(rules)
    except TimeoutError:
        raise NoAnswer(f"no answer within {_TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NoAnswer(f"{type(error).__name__}: {brief(str(error), _LONGEST_ERROR)}") from None
    return await use_in(body, is_known)


async def use_in(body: bytes, is_known: Callable[[PodName], bool]) -> dict[PodName, float]:
    """Return the use of known pods in an answer: the largest value of each. What is no number is use without
    bound, so that nothing is idle by it.

    Raises
    ------
    NoAnswer
        It is an error, or nothing that Prometheus answers, or a part of it may be missing.
    """
    if body.count(b",") > _MOST_COMMAS:
        raise NoAnswer(f"the answer has more than {MOST_SERIES} series")
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        if answer.status != "success" or answer.data.kind != "vector":
            said = brief(answer.error, _LONGEST_ERROR) or f"the answer is no vector: {answer.data.kind!r}"
            raise NoAnswer(said)
        said = next((each for each in answer.warnings or () if not each.startswith(_REMARKS)), "")
        if said or answer.is_partial:
            raise NoAnswer(f"a part may be missing: {brief(said, _LONGEST_ERROR) or 'it is partial'}")
        return await _use_of(answer.data.result, is_known)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoAnswer(f"the answer cannot be read: {error}") from None


async def _use_of(result: Iterable[msgspec.Raw], is_known: Callable[[PodName], bool]) -> dict[PodName, float]:
    use: dict[PodName, float] = {}
    decoder = msgspec.json.Decoder(_Series)
    for number, raw in enumerate(result, 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        series = decoder.decode(raw)
        pod = series.metric.namespace, series.metric.pod
        if is_known(pod):
            use[pod] = max(_number(series.value[1]), use.get(pod, -math.inf))
    return use


def _number(text: str) -> float:
    try:
        value = float(text[:40])
    except ValueError:
        return math.inf
    return math.inf if math.isnan(value) else value


def _error_in(body: bytes) -> str:
    """Return what Prometheus says of a query that it refuses; empty if it is none who answers."""
    try:
        return f": {brief(msgspec.json.decode(body, type=_Answer).error, _LONGEST_ERROR)}"
    except msgspec.MsgspecError:
        return ""


async def _ask(rules: IdleRules) -> bytes:
    """Send the query; files are read each time, since they are rotated."""
    address = rules.prometheus
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "fluxqueue/queue"}
    if address.token_file:
        token = await asyncio.to_thread(Path(address.token_file).read_text)
        headers["Authorization"] = f"Bearer {token.strip()}"
    tls = await asyncio.to_thread(ssl.create_default_context, cafile=address.ca_file or None)
    query = f"max by (namespace, pod) ({rules.query}\n)"  # the query may end with a comment
    connector = aiohttp.TCPConnector(ssl=tls, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False) as session,
        session.get(
            f"{address.url.rstrip('/')}/api/v1/query", params={"query": query}, allow_redirects=False
        ) as response,
    ):
        body = await read_body(response, MOST_BYTES)
        if len(body) > MOST_BYTES:
            raise NoAnswer(f"the answer has more than {MOST_BYTES} bytes")
        if response.status != 200:
            raise NoAnswer(f"HTTP status {response.status}{_error_in(body)}")
        return body
