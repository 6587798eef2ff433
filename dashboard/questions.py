"""Questions to the queue about its history and its doctor, in the name of a person.

The queue answers tokens of ServiceAccounts that were made for this (docs/accounting.md, docs/decisions/0015
and 0027). The token is requested with the person's own rights, so whoever may not read the history with
`kubectl fluxqueue` cannot read it here. The token of the person himself is never sent to the queue, and this
program has no right to the history of its own.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
import orjson

from fluxqueue.api.names import DOCTOR_ANNOTATION, OPERATOR_AUDIENCE, OPERATOR_TOKEN_HEADER
from fluxqueue.api.turns import CallerTurns
from fluxqueue.dashboard.access import Right, tokens_of
from fluxqueue.dashboard.settings import QueueAddress
from fluxqueue.dashboard.viewers import not_in_his_name
from fluxqueue.kube.bodies import read_body
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api

__all__ = ["NoAnswer", "Questions", "TooMuch"]

_TOKEN_S: Final = 600
_KEPT_S: Final = 300.0
_MOST_KEPT: Final = 512
_TIMEOUT_S: Final = 40.0
_MOST_BYTES: Final = 8 << 20
_TOO_MUCH: Final = (400, 504)
"""With these the queue refuses a report of too many rows, and what takes too long."""
_AT_ONCE: Final = 4
_METRICS_PORT: Final = 8443
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""It becomes a part of a path that is sent with the person's rights, so nothing else may be in it."""


class NoAnswer(Exception):
    """There is no answer; the message says why and what helps."""


class TooMuch(NoAnswer):
    """The answer would be too large or take too long: a narrower question may have one."""


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


class Questions:
    """Asks the queue.

    Parameters
    ----------
    address
        Where it is.
    clock
        Seconds that only increase.
    """

    def __init__(self, address: QueueAddress, clock: Callable[[], float]) -> None:
        self._address = address
        self._clock = clock
        self._tokens: OrderedDict[tuple[str, str, str], tuple[float, str]] = OrderedDict()
        self._turns = CallerTurns(_AT_ONCE, of_one=1)

    @property
    def doctor_right(self) -> Right:
        """What the doctor asks of a person."""
        return tokens_of(f"{self._address.release}-doctor", self._address.namespace)

    async def history(self, api: Api, who: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Ask ``/history`` or ``/report``.

        Parameters
        ----------
        api
            A client in the name of the person.
        who
            Identifies the session, for which tokens are kept for some minutes.
        path, parameters
            Of the question; ``namespace`` missing means all.

        Raises
        ------
        NoAnswer
            The person may not read this, or nothing answers.
        """
        if not self._address.url:
            raise NoAnswer("the history is not shown here: start the dashboard with --queue-url")
        namespace = parameters.get("namespace", "")
        if namespace and not _NAMESPACE.fullmatch(namespace):
            raise NoAnswer("this is not the name of a namespace: choose one of the list")
        where, account = namespace or self._address.namespace, f"{self._address.release}-history"
        token = await self._token(api, who, where, account)
        return await self._ask(path, parameters, token, (where, account))

    async def doctor(self, api: Api, who: str) -> dict[str, Any]:
        """Ask the leading queue which differences it sees.

        Raises
        ------
        NoAnswer
            The person may not ask, none leads, or nothing answers.
        """
        address = self._address
        try:
            pods = await api.list(PODS, address.namespace, label_selector="app.kubernetes.io/component=queue")
        except Forbidden as error:
            raise _no_doctor(address, error) from None
        except ApiError as error:
            raise NoAnswer(f"the queue's pods cannot be found: {error.message}") from None
        if not pods and address.url:
            account = f"{address.release}-doctor"
            token = await self._token(api, who, address.namespace, account)
            return await self._ask("/doctor", {}, token, (address.namespace, account))
        why = "there is none"
        for pod in pods:
            account = pod.metadata.annotation(DOCTOR_ANNOTATION) or f"{address.release}-doctor"
            token = await self._token(api, who, address.namespace, account)
            try:
                return await self._through_proxy(api, pod.metadata.name, token)
            except NoAnswer as error:
                why = str(error)
        raise NoAnswer(f"no replica of the queue answers: {why}")

    async def _through_proxy(self, api: Api, pod: str, token: str) -> dict[str, Any]:
        port = urlsplit(self._address.url).port or _METRICS_PORT
        path = f"/api/v1/namespaces/{self._address.namespace}/pods/https:{pod}:{port}/proxy/doctor"
        try:
            answer = await api.request(
                "GET",
                path,
                headers={OPERATOR_TOKEN_HEADER: token},
                timeout_s=_TIMEOUT_S,
                tries=1,
                most_bytes=_MOST_BYTES,
            )
        except Forbidden as error:
            raise _no_doctor(self._address, error) from None
        except ApiError as error:
            raise NoAnswer(error.message) from None
        return _object(answer)

    async def _token(self, api: Api, who: str, namespace: str, account: str) -> str:
        key = (who, namespace, account)
        if (kept := self._tokens.get(key)) is not None and self._clock() < kept[0]:
            return kept[1]
        spec = {"audiences": [OPERATOR_AUDIENCE], "expirationSeconds": _TOKEN_S}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        try:
            answer = await api.request(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                body=body,
                most_bytes=_MOST_BYTES,
            )
            token = msgspec.json.decode(answer, type=_TokenRequest).status.token
        except NotFound:
            raise NoAnswer(
                f"the namespace {namespace} has no account {account}, so nobody reads its history: an "
                "administrator names the namespace in the chart's value rbac.historyIn"
            ) from None
        except Forbidden as error:
            raise NoAnswer(
                not_in_his_name(error)
                or (
                    f"you may not request tokens of the account {account} in the namespace {namespace}: the "
                    f"role edit there lets you, or {account}-reader"
                )
            ) from None
        except (ApiError, msgspec.MsgspecError) as error:
            raise NoAnswer(f"a token of the account {account} cannot be requested: {error}") from None
        self._tokens[key] = self._clock() + _KEPT_S, token
        while len(self._tokens) > _MOST_KEPT:
            self._tokens.popitem(last=False)
        return token

    async def _ask(
        self, path: str, parameters: Mapping[str, str], token: str, account: tuple[str, str]
    ) -> dict[str, Any]:
        """Ask with the token of an account; the queue answers one question of a namespace at a time."""
        try:
            context = ssl.create_default_context(cafile=self._address.ca)
        except OSError as error:
            raise NoAnswer(
                f"the authority of the queue's certificate cannot be read ({error.strerror}): see --queue-ca"
            ) from None
        has_turn = False
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._turns.turn(account):
                has_turn = True
                return await self._answer(path, parameters, token, context)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not has_turn:
                raise NoAnswer("the queue is busy with other questions: ask again in a few seconds") from None
            raise NoAnswer(
                f"the queue does not answer ({type(error).__name__}): see whether it runs"
            ) from None

    async def _answer(
        self, path: str, parameters: Mapping[str, str], token: str, context: ssl.SSLContext
    ) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.get(
                self._address.url.rstrip("/") + path,
                params=dict(parameters),
                headers={"Authorization": f"Bearer {token}"},
                ssl=context,
                allow_redirects=False,
            ) as response,
        ):
            data = await read_body(response, _MOST_BYTES)
            if len(data) > _MOST_BYTES:
                raise TooMuch("the answer is too large: ask for fewer days")
            answer = _object(data)
            if response.status != 200:
                error = TooMuch if response.status in _TOO_MUCH else NoAnswer
                raise error(str(answer.get("error") or f"the queue answers with HTTP {response.status}"))
            return answer


def _object(data: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswer("what answers is not the queue: see --queue-url")
    return answer


def _no_doctor(address: QueueAddress, error: Forbidden) -> NoAnswer:
    name = f"{address.release}-doctor"
    return NoAnswer(
        not_in_his_name(error)
        or (
            "you may not ask the doctor: an administrator gives you the right by kubectl -n "
            f"{address.namespace} create rolebinding NAME --role={name} --user=YOU"
        )
    )
