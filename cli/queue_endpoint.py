"""The operators' port of the queue, reached with the person's own credentials.

The queue answers a token of a ServiceAccount that was made for this (`fluxqueue.queue.admin.server`). Whoever
may use the doctor may request that token from the API server; it is valid for ten minutes and for the queue
only. The request goes through the API server's proxy to each of the queue's pods until one leads, and the
proxy removes the ``Authorization`` header, so the token has a header of its own.

Namespace and name of the ServiceAccount come from the pod that is asked, never from a response: a program
that poses as the queue must not choose whose token it receives. In a local cluster (`fluxqueue local`) the
queue is not a pod, so its address is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fluxqueue.api.names import DOCTOR_ANNOTATION, OPERATOR_AUDIENCE, OPERATOR_TOKEN_HEADER
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError, ServerUnreachable
from fluxqueue.kube.kubeconfig import Connection

__all__ = [
    "CA_VARIABLE",
    "NAMESPACE",
    "TIMEOUT_S",
    "URL_VARIABLE",
    "DoctorAccount",
    "QueueAddress",
    "QueueEndpoint",
    "Tokens",
    "authority",
    "find_queue",
    "said",
]

URL_VARIABLE: Final = "FLUXQUEUE_QUEUE_URL"
CA_VARIABLE: Final = "FLUXQUEUE_QUEUE_CA"
NAMESPACE: Final = "fluxqueue-system"
TIMEOUT_S: Final = 180.0
_ACCOUNT: Final = "fluxqueue-doctor"
_COMPONENT: Final = "app.kubernetes.io/component=queue"
_LABELS: Final = f"app.kubernetes.io/name=fluxqueue,{_COMPONENT}"
_NOT_LEADING: Final = 503
_SILENT: Final = (500, 502, 503, 504)
"""Of the API server if a replica does not answer; an answer of the replica itself has a sentence."""
_TOKEN_S: Final = 600


@dataclass(frozen=True)
class QueueAddress:
    """Where the queue is, if the command line says so; by default its pods are found through the API server.

    Attributes
    ----------
    url, ca
        Address of the metrics port (``https://...``), and a file with the authority of its certificate.
    namespace
        Namespace of the queue. Empty: the pods are found by their labels in all namespaces.
    """

    url: str = ""
    ca: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class DoctorAccount:
    """The ServiceAccount whose tokens open the doctor; its name with ``-repair`` is that of the repair's."""

    namespace: str
    name: str

    def remedy(self, name: str) -> str:
        """Return what an administrator must do so that a person may use this."""
        command = f"kubectl -n {self.namespace} create rolebinding NAME --role={name} --user=YOU"
        return f"an administrator gives you the right by: {command}"


class Tokens:
    """Requests tokens, and keeps them while the command runs."""

    def __init__(self, client: ApiClient, account: DoctorAccount) -> None:
        self._client = client
        self.account = account
        self._tokens: dict[str, str] = {}

    def headers(self, *, repair: bool) -> dict[str, str]:
        """Return the header with a token.

        Raises
        ------
        ClusterError
            The person may not request it; the message says how to get the right.
        """
        name = self.name(repair=repair)
        if name not in self._tokens:
            spec = {"audiences": [OPERATOR_AUDIENCE], "expirationSeconds": _TOKEN_S}
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            path = f"/api/v1/namespaces/{self.account.namespace}/serviceaccounts/{name}/token"
            try:
                self._tokens[name] = json.loads(self._client.post(path, body))["status"]["token"]
            except ApiRefused as error:
                raise self.explained(error, repair=repair) from None
        return {OPERATOR_TOKEN_HEADER: self._tokens[name]}

    def name(self, *, repair: bool) -> str:
        """Return the name of the ServiceAccount, which is also that of the Role for people."""
        return f"{self.account.name}-repair" if repair else self.account.name

    def explained(self, error: ApiRefused, *, repair: bool) -> ClusterError:
        """Return the error to be shown: for a missing right, what is refused and the remedy."""
        if error.status != 403:
            return error
        what = "repair" if repair else "ask"
        return ClusterError(
            f"error: you may not {what} the queue; {self.account.remedy(self.name(repair=repair))} ({error})"
        )


class QueueEndpoint:
    """The queue's replicas: a server, the path of each replica, and the tokens they want."""

    def __init__(self, client: ApiClient, paths: Sequence[str], tokens: Tokens) -> None:
        self._client = client
        self._paths = paths
        self._tokens = tokens

    @property
    def namespace(self) -> str:
        """The namespace of the queue."""
        return self._tokens.account.namespace

    def ask(self, path: str, *, post: bool = False) -> dict[str, Any]:
        """Send a request to the leader and return its response; a POST needs the right to repair.

        Raises
        ------
        ClusterError
            No replica leads, none can be reached, or the person lacks a right; the message is complete.
        """
        headers = self._tokens.headers(repair=post)
        refused: ApiRefused | None = None
        silent = ""
        for prefix in self._paths:
            try:
                answer = (
                    self._client.post(prefix + path, None, headers)
                    if post
                    else self._client.get(prefix + path, headers=headers)
                )
            except ServerUnreachable as error:
                silent = str(error)
            except ApiRefused as error:
                sentence = said(error)
                if not sentence and error.reason and error.status in _SILENT:
                    silent = str(error)
                    continue
                if error.status != _NOT_LEADING:
                    raise (
                        ClusterError(f"error: {sentence}")
                        if sentence
                        else self._tokens.explained(error, repair=post)
                    ) from None
                refused = error
            else:
                decoded: dict[str, Any] = json.loads(answer)
                return decoded
        if refused is None:
            raise ClusterError(
                "error: no replica of the queue answers, so it is stopped or cannot be reached: while it is "
                "stopped, nothing that waits is started, and what runs goes on "
                f"({silent or 'there is none'})"
            )
        raise ClusterError(
            "error: no replica of the queue leads at this moment: another one takes over within half a "
            f"minute, then repeat the command ({said(refused) or refused})"
        )

    def ask_each(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and response of each replica; ``{"error": why}`` if it cannot be reached.

        Raises
        ------
        ClusterError
            The person lacks a right.
        """
        headers = self._tokens.headers(repair=False)
        for prefix in self._paths:
            name = prefix.partition("/pods/")[2].removeprefix("https:").partition(":")[0]
            try:
                yield name, json.loads(self._client.get(prefix + path, headers=headers))
            except ApiRefused as error:
                yield name, {"error": said(error) or str(error)}
            except ClusterError as error:
                yield name, {"error": str(error)}


def said(error: ApiRefused) -> str:
    """Return the queue's own sentence; empty if the API server refused."""
    try:
        answer = json.loads(error.body)
    except ValueError:
        return ""
    return str(answer["error"]) if isinstance(answer, dict) and "error" in answer else ""


@contextmanager
def find_queue(address: QueueAddress, client: Callable[[], ApiClient]) -> Iterator[QueueEndpoint]:
    """Find the queue's replicas.

    Parameters
    ----------
    address
        Where it is, if that is known.
    client
        Opens a client of the API server.

    Raises
    ------
    ClusterError
        There is none, it is not clear which one is meant, or the person may not look for it.
    """
    with client() as server:
        if address.url:
            connection = Connection(server=address.url, ca_pem=authority(address.ca))
            with ApiClient(connection, TIMEOUT_S) as direct:
                yield QueueEndpoint(
                    direct, [""], Tokens(server, DoctorAccount(address.namespace or NAMESPACE, _ACCOUNT))
                )
            return
        pods = _pods(server, address.namespace)
        account = DoctorAccount(
            pods[0]["metadata"]["namespace"],
            (pods[0]["metadata"].get("annotations") or {}).get(DOCTOR_ANNOTATION, _ACCOUNT),
        )
        yield QueueEndpoint(server, [_proxy(pod) for pod in pods], Tokens(server, account))


def authority(file: str) -> bytes | None:
    """Return the content of a file with an authority; None without a file."""
    if not file:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ClusterError(
            f"error: {file} cannot be read ({error.strerror}): name the file with the queue's authority"
        ) from None


def _pods(server: ApiClient, namespace: str) -> list[dict[str, Any]]:
    """Return the queue's pods, all of one namespace."""
    where = namespace
    try:
        found = _listed(server, where)
    except ApiRefused as error:
        if error.status != 403 or namespace:
            raise Tokens(server, DoctorAccount(where or NAMESPACE, _ACCOUNT)).explained(
                error, repair=False
            ) from None
        # Who may not look into all namespaces may still look into the usual one.
        where = NAMESPACE
        try:
            found = _listed(server, where)
        except ApiRefused as other:
            raise Tokens(server, DoctorAccount(where, _ACCOUNT)).explained(other, repair=False) from None
    if not found:
        raise ClusterError(
            f"error: there is no pod with the labels {_LABELS}: is fluxqueue installed? If it is, its "
            "Deployment is scaled to 0, and nothing that waits is started. Give its namespace with "
            "--system-namespace, or an address with --queue-url"
        )
    namespaces = sorted({pod["metadata"]["namespace"] for pod in found})
    if len(namespaces) > 1:
        raise ClusterError(
            f"error: pods of a queue are in the namespaces {', '.join(namespaces)}: "
            "choose one with --system-namespace"
        )
    return found


def _listed(server: ApiClient, namespace: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    items: list[dict[str, Any]] = json.loads(
        server.get(path, {"labelSelector": _COMPONENT if namespace else _LABELS})
    )["items"]
    return items


def _proxy(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    port = next((port["containerPort"] for port in ports if port.get("name") == "metrics"), 8443)
    return f"/api/v1/namespaces/{meta['namespace']}/pods/https:{meta['name']}:{port}/proxy"
