"""The history of ended work, asked of the queue with the person's own credentials.

The queue answers a token of an account that may list FluxJobs: that of a namespace for its own work, that of
fluxqueue's namespace for all (docs/decisions/0027). Whoever may request such a token gets one for ten minutes
and for the queue only. The request goes through the API server's proxy to the queue's Service, since every
replica can answer. In a local cluster (`fluxqueue local`) the queue is not behind a Service, so its address
is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from fluxqueue.api.names import HISTORY_ACCOUNT, OPERATOR_AUDIENCE, OPERATOR_TOKEN_HEADER
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.queue_endpoint import NAMESPACE, authority, said
from fluxqueue.kube.kubeconfig import Connection

__all__ = ["SERVICE", "HistoryAddress", "HistorySource", "MayNotRead", "NoReplica", "find_history"]

SERVICE: Final = "fluxqueue-queue"
_TIMEOUT_S: Final = 60.0
_SILENT: Final = (502, 503, 504)
"""Of the API server, if it cannot reach the queue; an answer of the queue itself has a sentence."""
_REPLICAS: Final = (
    "kubectl fluxqueue version shows the replicas, and when one is ready, the same command answers"
)
_TOKEN_S: Final = 600


class MayNotRead(ClusterError):
    """The person may not read the history; the message says how to get the right."""


class NoReplica(ClusterError):
    """No replica of the queue answers."""


@dataclass(frozen=True)
class HistoryAddress:
    """Where the history is, and whose it is.

    Attributes
    ----------
    namespace
        Whose history is wanted; empty: that of all namespaces.
    url, ca
        Address of the queue's metrics port, and a file with the authority of its certificate; empty: through
        the API server.
    system_namespace, service
        Namespace of fluxqueue, and the queue's Service in it.
    account
        The ServiceAccount whose token is requested.
    """

    namespace: str = ""
    url: str = ""
    ca: str = ""
    system_namespace: str = NAMESPACE
    service: str = SERVICE
    account: str = HISTORY_ACCOUNT

    @property
    def account_namespace(self) -> str:
        """Namespace of the account."""
        return self.namespace or self.system_namespace

    @property
    def role(self) -> str:
        """Name that the chart gives the roles of the history: after the release, as the account's."""
        return self.account

    @property
    def proxy(self) -> str:
        """Path of the Service through the API server."""
        return f"/api/v1/namespaces/{self.system_namespace}/services/https:{self.service}:metrics/proxy"


class HistorySource:
    """Answers of the queue about the history.

    Parameters
    ----------
    client
        The API server, or the queue itself.
    prefix
        Comes before each path.
    token
        Opens the history.
    """

    def __init__(self, client: ApiClient, prefix: str, token: str) -> None:
        self._client = client
        self._prefix = prefix
        self._headers = {OPERATOR_TOKEN_HEADER: token}

    def report(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer of ``/report``.

        Raises
        ------
        ClusterError
            It is refused, or nothing answers; the message is complete.
        """
        return self._ask("/report", parameters)

    def jobs(
        self, parameters: Mapping[str, str], limit: int, page: int, times: dict[str, Any] | None = None
    ) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        """Yield pages of workloads, and whether there are more behind each.

        Parameters
        ----------
        parameters
            Of ``/history``, without ``limit`` and ``cursor``. The first answer fixes the times for all pages.
        limit
            At most so many workloads.
        page
            At most so many at once.
        times
            Gets ``since`` and ``until`` as the queue understood them, and the ``currency`` of prices.
        """
        asked = dict(parameters)
        while limit > 0:
            answer = self._ask("/history", {**asked, "limit": str(min(limit, page))})
            limit -= len(answer["jobs"])
            if times is not None:
                times.update({name: answer.get(name) for name in ("since", "until", "currency")})
            cursor = answer.get("next")
            yield answer["jobs"], bool(cursor)
            if not cursor:
                return
            asked |= {name: answer[name] for name in ("since", "until") if name == "since" or name in asked}
            asked["cursor"] = cursor

    def _ask(self, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(
                self._client.get(self._prefix + path, parameters, headers=self._headers)
            )
        except ApiRefused as error:
            if sentence := said(error):
                raise ClusterError(f"error: {sentence}") from None
            if error.status == 403:
                raise MayNotRead(
                    "error: you may not reach the queue through the API server: an administrator adds a "
                    f"group of yours to rbac.historyReachableBy ({error})"
                ) from None
            if error.status in _SILENT:
                raise NoReplica(
                    "error: no replica of the queue answers, so its history cannot be read now; nothing of "
                    "it is lost. While the queue is stopped, nothing that waits is started, and what runs "
                    f"goes on. {_REPLICAS} ({error})"
                ) from None
            raise
        return answer


@contextmanager
def find_history(address: HistoryAddress, client: Callable[[float], ApiClient]) -> Iterator[HistorySource]:
    """Request a token and find the queue.

    Parameters
    ----------
    address
        Where it is, and whose history is wanted.
    client
        Opens a client of the API server with a time limit.

    Raises
    ------
    ClusterError
        The person may not read this history; the message says how to get the right.
    """
    with client(_TIMEOUT_S) as server:
        token = _token(server, address)
        if not address.url:
            yield HistorySource(server, address.proxy, token)
            return
        with ApiClient(Connection(server=address.url, ca_pem=authority(address.ca)), _TIMEOUT_S) as direct:
            yield HistorySource(direct, "", token)


def _token(server: ApiClient, address: HistoryAddress) -> str:
    where, account = address.account_namespace, address.account
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [OPERATOR_AUDIENCE], "expirationSeconds": _TOKEN_S},
    }
    try:
        token: str = json.loads(
            server.post(f"/api/v1/namespaces/{where}/serviceaccounts/{account}/token", body)
        )["status"]["token"]
    except ApiRefused as error:
        if error.status == 404:
            from fluxqueue.cli.listing import require_installed

            require_installed(server, where)
            raise MayNotRead(
                f"error: the namespace {where} has no account {account}, so nobody reads its history; an "
                f"administrator makes it by: kubectl -n {where} create serviceaccount {account} && kubectl "
                f"-n {where} create rolebinding {account} --clusterrole={address.role} "
                f"--serviceaccount={where}:{account}"
            ) from None
        if error.status != 403:
            raise
        scope = f"of the namespace {where}" if address.namespace else "of all namespaces"
        raise MayNotRead(
            f"error: you may not read the history {scope}; an administrator gives you the right by: "
            f"kubectl -n {where} create rolebinding NAME --clusterrole={address.role}-reader --user=YOU "
            f"({error})"
        ) from None
    return token
