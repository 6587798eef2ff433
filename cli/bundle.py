"""`kubectl fluxqueue doctor --bundle`: one file with what a maintainer needs to find a fault, and no secret.

Each part is asked for with the rights of the person, and on its own: what is refused or does not answer is a
line in `missing.json`, and the rest is written. Of objects only the listed fields are taken, Secrets are
never read, and every text goes through `redaction`.
"""

from __future__ import annotations

import io
import json
import platform
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fluxqueue.api import names
from fluxqueue.api.release import version
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.queue_endpoint import QueueEndpoint
from fluxqueue.cli.redaction import redacted, redacted_object

__all__ = ["Bundle", "collect", "write"]

_GROUP: Final = f"/apis/{names.API_VERSION}"
_LOG_LINES: Final = "2000"
_LOG_BYTES: Final = "1000000"
_EVENTS: Final = "500"
_OF_QUEUES: Final = ("spec", "status")
_CLUSTER_KINDS: Final = (names.FLUXQUEUES, names.FLUXACCOUNTS, names.FLUXRESERVATIONS)


@dataclass
class Bundle:
    """The parts by the name of their file, without secrets; `missing` says why others are not there."""

    parts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: Any) -> None:
        """Add a part: a text as it is, anything else as JSON."""
        self.parts[name] = redacted(content) if isinstance(content, str) else _as_json(content)

    def try_to(self, name: str, ask: Callable[[], Any]) -> Any:
        """Add the answer to a question and return it; where it is refused or does not come,
        say so and return None.
        """
        try:
            answer = ask()
        except ClusterError as error:
            self.missing[name] = str(error)
            return None
        self.add(name, answer)
        return answer


def collect(server: ApiClient, queue: QueueEndpoint | ClusterError, namespace: str) -> Bundle:
    """Ask for all parts.

    Parameters
    ----------
    server
        The API server.
    queue
        The queue's replicas, or why they were not found.
    namespace
        Of fluxqueue.
    """
    bundle = Bundle()
    bundle.add(
        "client.json", {"version": version(), "python": platform.python_version(), "written_at": _now()}
    )
    bundle.try_to("server.json", lambda: _read(server, "/version"))
    if isinstance(queue, ClusterError):
        bundle.missing["queue"] = str(queue)
    else:
        _add_queue(bundle, queue)
    for kind in _CLUSTER_KINDS:
        bundle.try_to(
            f"{kind}.json",
            lambda kind=kind: [  # type: ignore[misc]  # bound
                _fields(each, *_OF_QUEUES) for each in _items(server, f"{_GROUP}/{kind}")
            ],
        )
    bundle.try_to("fluxjobs.json", lambda: _counted(_items(server, f"{_GROUP}/{names.FLUXJOBS}")))
    bundle.try_to("nodes.json", lambda: [_node(each) for each in _items(server, "/api/v1/nodes")])
    here = f"/api/v1/namespaces/{namespace}"
    bundle.try_to(
        "events.json", lambda: [_event(each) for each in _items(server, f"{here}/events", limit=_EVENTS)]
    )
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    bundle.try_to("leases.json", lambda: [_fields(each, "spec") for each in _items(server, leases)])
    selector = "app.kubernetes.io/name=fluxqueue"
    pods = bundle.try_to(
        "pods.json", lambda: [_pod(each) for each in _items(server, f"{here}/pods", labelSelector=selector)]
    )
    for pod in pods or ():
        if pod["component"] == "webhook":
            path = f"{here}/pods/https:{pod['name']}:{pod['https_port']}/proxy/metrics"
            bundle.try_to(f"webhook/{pod['name']}.metrics", lambda path=path: _text(server, path, {}))  # type: ignore[misc]  # bound
        _add_logs(bundle, server, here, pod)
    bundle.parts["missing.json"] = _as_json(bundle.missing)
    return bundle


def write(bundle: Bundle, file: Path) -> None:
    """Write a bundle as a compressed archive that only its owner reads.

    Raises
    ------
    ClusterError
        The file cannot be written.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in sorted(bundle.parts.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"fluxqueue-bundle/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    try:
        file.touch(mode=0o600)
        file.write_bytes(packed.getvalue())
    except OSError as error:
        raise ClusterError(f"error: {file} cannot be written ({error.strerror}): name another file") from None


def _add_queue(bundle: Bundle, queue: QueueEndpoint) -> None:
    bundle.try_to("replicas.json", lambda: dict(queue.ask_each("/status")))
    bundle.try_to("findings.json", lambda: queue.ask("/doctor"))
    try:
        answers = list(queue.ask_each("/doctor/bundle"))
    except ClusterError as error:
        bundle.missing["queue"] = str(error)
        return
    for name, answer in answers:
        if "error" in answer:
            bundle.missing[f"queue/{name or 'queue'}"] = str(answer["error"])
            continue
        bundle.add(f"queue/{name or 'queue'}.metrics", str(answer.pop("metrics", "")))
        bundle.add(f"queue/{name or 'queue'}.json", answer)


def _add_logs(bundle: Bundle, server: ApiClient, here: str, pod: Mapping[str, Any]) -> None:
    for container in pod["containers"]:
        path = f"{here}/pods/{pod['name']}/log"
        asked = {
            "container": container["name"],
            "tailLines": _LOG_LINES,
            "limitBytes": _LOG_BYTES,
            "timestamps": "true",
        }
        bundle.try_to(
            f"logs/{pod['name']}/{container['name']}.log",
            lambda path=path, asked=asked: _text(server, path, asked),  # type: ignore[misc]  # bound
        )
        if container["restarts"]:
            before = {**asked, "previous": "true"}
            bundle.try_to(
                f"logs/{pod['name']}/{container['name']}.previous.log",
                lambda path=path, before=before: _text(server, path, before),  # type: ignore[misc]  # bound
            )


def _read(server: ApiClient, path: str, params: Mapping[str, str] | None = None) -> Any:
    return json.loads(server.get(path, params))


def _text(server: ApiClient, path: str, params: Mapping[str, str]) -> str:
    return server.get(path, params, accept="*/*").decode(errors="replace")


def _items(server: ApiClient, path: str, **params: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _read(server, path, params)["items"]
    return found


def _fields(thing: Mapping[str, Any], *kept: str) -> dict[str, Any]:
    return {"name": thing["metadata"]["name"], **{name: thing[name] for name in kept if name in thing}}


def _counted(fluxjobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count FluxJobs: their names are those of other people's work."""
    counts = Counter(
        (each.get("status", {}).get("state", ""), each.get("status", {}).get("reason", ""))
        for each in fluxjobs
    )
    return [
        {"state": state, "reason": reason, "fluxjobs": number}
        for (state, reason), number in sorted(counts.items())
    ]


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    status = node.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return {
        "name": node["metadata"]["name"],
        "unschedulable": node.get("spec", {}).get("unschedulable", False),
        "taints": node.get("spec", {}).get("taints", []),
        "allocatable": status.get("allocatable", {}),
        "conditions": conditions,
        "kubelet": status.get("nodeInfo", {}).get("kubeletVersion", ""),
    }


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event.get("involvedObject", {})
    return {
        "about": f"{about.get('kind', '')} {about.get('namespace', '')}/{about.get('name', '')}",
        **{
            name: event.get(name)
            for name in ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime")
        },
    }


def _pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    status = pod.get("status", {})
    containers = [
        {
            "name": each["name"],
            "image": each.get("image", ""),
            "image_id": each.get("imageID", ""),
            "ready": each.get("ready", False),
            "restarts": each.get("restartCount", 0),
            "state": each.get("state", {}),
            "last_state": each.get("lastState", {}),
        }
        for each in status.get("containerStatuses", ())
    ]
    specs = pod.get("spec", {}).get("containers", ())
    resources = {each["name"]: each.get("resources", {}) for each in specs}
    ports = (port for each in specs for port in each.get("ports") or ())
    return {
        "name": pod["metadata"]["name"],
        "component": (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""),
        "https_port": next((port["containerPort"] for port in ports if port.get("name") == "https"), 9443),
        "created": pod["metadata"].get("creationTimestamp", ""),
        "node": pod.get("spec", {}).get("nodeName", ""),
        "phase": status.get("phase", ""),
        "conditions": status.get("conditions", []),
        "resources": resources,
        "containers": containers,
    }


def _as_json(content: Any) -> str:
    return json.dumps(redacted_object(content), indent=1, sort_keys=True) + "\n"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
