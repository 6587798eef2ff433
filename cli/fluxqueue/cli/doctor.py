"""`kubectl fluxqueue doctor`: whether the cluster, the queue's tables and its graph tell one story.

The leading queue compares (`fluxqueue.queue.doctor`), since only it can see all of them; here it is found and its answer is shown. It is
reached through the API server, as `kubectl get --raw` would: with the person's own credentials, and the right ``pods/proxy`` in the
namespace fluxqueue runs in. Replicas that do not lead say so, and the next one is asked. On a machine of its own (`fluxqueue local`),
where the queue is no pod, an address says where it is.

`kubectl fluxqueue version` asks each replica what it does and what it misses.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from fluxqueue.cli.cluster import ApiRefused, Cluster, ClusterError
from fluxqueue.cli.kubeconfig import Connection

__all__ = ["TIMEOUT_S", "URL_VARIABLE", "Queue", "doctor", "roll_call", "way_to_queue"]

URL_VARIABLE = "FLUXQUEUE_QUEUE_URL"
TIMEOUT_S = 180.0
_COMPONENT = "app.kubernetes.io/component=queue"
_LABELS = f"app.kubernetes.io/name=fluxqueue,{_COMPONENT}"
_NOT_LEADING = 503


class Queue:
    """Where the queue may be: one server, and the paths below which replicas answer."""

    def __init__(self, cluster: Cluster, paths: Sequence[str]) -> None:
        self._cluster = cluster
        self._paths = paths

    def ask(self, path: str, *, post: bool = False) -> dict[str, Any]:
        """The leader's answer.

        Raises
        ------
        ClusterError
            No replica leads, or none can be reached; the message is complete.
        """
        refused: ApiRefused | None = None
        for prefix in self._paths:
            try:
                answer = self._cluster.post(prefix + path) if post else self._cluster.get(prefix + path)
            except ApiRefused as error:
                if error.status != _NOT_LEADING:
                    raise
                refused = error
            else:
                found: dict[str, Any] = json.loads(answer)
                return found
        raise ClusterError(f"error: no replica of the queue leads at this moment, ask again ({refused or 'there is none'})")

    def ask_each(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each replica's name and answer, also one that says it is not ready; ``{"error": why}`` of one that cannot be asked."""
        for prefix in self._paths:
            name = prefix.partition("/pods/")[2].partition(":")[0]
            try:
                yield name, json.loads(self._cluster.get(prefix + path))
            except ApiRefused as error:
                try:
                    answer = json.loads(error.body)
                except ValueError:
                    answer = None
                yield name, answer if isinstance(answer, dict) and "ready" in answer else {"error": str(error)}
            except ClusterError as error:
                yield name, {"error": str(error)}


@contextmanager
def way_to_queue(url: str, cluster: Callable[[], Cluster], namespace: str) -> Iterator[Queue]:
    """Find the queue.

    Parameters
    ----------
    url
        Its address; if empty
    cluster
        is the API server through which it is reached, and
    namespace
        where it runs (empty: wherever its label is).
    """
    if url:
        parts = urllib.parse.urlsplit(url)
        with Cluster(Connection(server=url), TIMEOUT_S) as direct:
            yield Queue(direct, [""] if parts.hostname else [])
        return
    with cluster() as server:
        where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        pods = json.loads(server.get(where, {"labelSelector": _COMPONENT if namespace else _LABELS}))["items"]
        if not pods:
            raise ClusterError(
                f"error: no pod with the labels {_LABELS} is there: is fluxqueue installed? --system-namespace says where, "
                "--queue-url an address"
            )
        yield Queue(server, [_proxy(pod) for pod in pods])


def _proxy(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    port = next((port["containerPort"] for port in ports if port.get("name") == "metrics"), 8080)
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{port}/proxy"


def doctor(queue: Queue, out: TextIO, *, repair: bool, as_json: bool) -> int:
    """Show what differs.

    Returns
    -------
    int
        1 if something differs (after ``--repair``: still), else 0.
    """
    answer = queue.ask("/doctor/repair", post=True) if repair else queue.ask("/doctor")
    findings: list[dict[str, str]] = answer["findings"]
    repaired: list[dict[str, str]] = answer["repaired"]
    if as_json:
        json.dump(answer, out, indent=2)
        out.write("\n")
        return 1 if findings else 0
    out.writelines(f"repaired: {finding['sentence']}\n" for finding in repaired)
    out.writelines(f"{finding['sentence']} ({finding['invariant']}, {finding['what']})\n  {finding['remedy']}\n" for finding in findings)
    if findings:
        out.write(f"{len(findings)} {'difference' if len(findings) == 1 else 'differences'}\n")
    else:
        out.write("The cluster, the queue and its graph agree.\n")
    return 1 if findings else 0


def roll_call(queue: Queue, out: TextIO) -> None:
    """Show what each replica of the queue does, and what is away that it needs."""
    for name, answer in queue.ask_each("/readyz"):
        who = f"Queue {name}" if name else "Queue"
        if "error" in answer:
            out.write(f"{who}: does not answer ({answer['error']})\n")
            continue
        missing: dict[str, str] = answer.get("missing") or {}
        out.write(f"{who}: {answer.get('role', 'unknown')}, {'not ready' if missing else 'ready'}\n")
        out.writelines(f"  {what}: {sentence}\n" for what, sentence in sorted(missing.items()))
