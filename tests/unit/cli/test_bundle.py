"""A bundle has what a maintainer needs, says what it lacks, and has no secret in any of its parts."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.bundle import collect, write
from fluxqueue.cli.queue_endpoint import DoctorAccount, QueueEndpoint, Tokens

SECRET = "hunter2-Zk9"
HERE = "/api/v1/namespaces/system"
GROUP = "/apis/jobs.converged-computing.org/v1alpha1"
LEAKS = (
    f"postgresql://fluxqueue:{SECRET}@db/fluxqueue refused; Authorization: Bearer {SECRET}; password={SECRET}"
)
ANNOTATIONS = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(items)}


def pod(name: str, restarts: int) -> dict[str, Any]:
    container = {
        "name": "queue",
        "image": "q:1",
        "ready": True,
        "restartCount": restarts,
        "state": {"waiting": {"message": LEAKS}},
    }
    env = [{"name": "DATABASE_URL", "value": SECRET}]
    spec = {
        "nodeName": "n",
        "containers": [
            {"name": "queue", "env": env, "args": [SECRET], "resources": {"limits": {"memory": "1Gi"}}}
        ],
    }
    return {
        "metadata": {"name": name, "annotations": ANNOTATIONS},
        "spec": spec,
        "status": {"containerStatuses": [container]},
    }


def webhook(name: str) -> dict[str, Any]:
    ports = [{"name": "https", "containerPort": 9999}]
    labels = {"app.kubernetes.io/component": "webhook"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "webhook", "ports": ports}]},
    }


def fluxjob(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"jobspec": SECRET},
        "status": {"state": "Pending", "reason": "Held"},
    }


ANSWERS: dict[str, Any] = {
    "/version": {"gitVersion": "v1.36.0"},
    f"{HERE}/serviceaccounts/doctor/token": {"status": {"token": SECRET}},
    "/a/status": {"role": "leader", "missing": {"postgres": LEAKS}},
    "/a/doctor": {"findings": [{"sentence": LEAKS}], "repaired": []},
    "/a/doctor/bundle": {
        "version": "1",
        "settings": {"policy": "lonode", "password": SECRET},
        "metrics": "fluxqueue_up 1\n",
        "graph": {"nodes": 4},
    },
    f"{GROUP}/fluxqueues": listed(
        {"metadata": {"name": "default", "annotations": ANNOTATIONS}, "spec": {"policy": "easy"}}
    ),
    f"{GROUP}/fluxaccounts": listed(),
    f"{GROUP}/fluxreservations": ApiRefused(403, "Forbidden", "you may not"),
    f"{GROUP}/fluxjobs": listed(fluxjob("secret-project"), fluxjob("other")),
    "/api/v1/nodes": listed(
        {
            "metadata": {"name": "n", "annotations": ANNOTATIONS},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.0"}},
        }
    ),
    f"{HERE}/events": listed(
        {
            "involvedObject": {"kind": "Pod", "namespace": "system", "name": "q"},
            "message": LEAKS,
            "reason": "Failed",
        }
    ),
    "/apis/coordination.k8s.io/v1/namespaces/system/leases": listed(
        {"metadata": {"name": "q"}, "spec": {"holderIdentity": "q-0"}}
    ),
    f"{HERE}/pods": listed(pod("q-0", 1), pod("q-1", 0), webhook("w-0")),
    f"{HERE}/pods/https:w-0:9999/proxy/metrics": "fluxqueue_webhook_reviews_total 5\n",
    f"{HERE}/pods/q-0/log": f"leader.acquired\n{LEAKS}\n",
    f"{HERE}/pods/q-1/log": ApiRefused(403, "Forbidden", "no logs"),
}


class _Server:
    """Stands for the API server: what each path answers. Only what is listed is ever asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str, params: object = None, accept: str = "", headers: object = None) -> bytes:
        self.asked.append(path)
        answer = ANSWERS[path]
        if isinstance(answer, Exception):
            raise answer
        return answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()

    def post(self, path: str, body: object = None, headers: object = None) -> bytes:
        return self.get(path)


@pytest.fixture
def server() -> Any:
    return _Server()


def packed(file: Path) -> dict[str, str]:
    """Return the parts of a written bundle."""
    with tarfile.open(file) as archive:
        return {
            member.name.removeprefix("fluxqueue-bundle/"): found.read().decode()
            for member in archive.getmembers()
            if (found := archive.extractfile(member)) is not None
        }


@pytest.fixture
def parts(server: Any, tmp_path: Path) -> dict[str, str]:
    queue = QueueEndpoint(server, ["/a"], Tokens(server, DoctorAccount("system", "doctor")))
    write(collect(server, queue, "system"), tmp_path / "bundle.tgz")
    return packed(tmp_path / "bundle.tgz")


def test_no_part_has_a_secret(parts: dict[str, str]) -> None:
    assert [name for name, text in parts.items() if SECRET in text] == []


def test_secrets_are_never_read(parts: dict[str, str], server: Any) -> None:
    assert [path for path in server.asked if "/secrets" in path] == []


def test_everything_that_answers_is_there(parts: dict[str, str]) -> None:
    assert set(parts) == {
        *("client.json", "server.json", "replicas.json", "findings.json", "missing.json"),
        *("queue/queue.json", "queue/queue.metrics"),
        *(
            "fluxqueues.json",
            "fluxaccounts.json",
            "fluxjobs.json",
            "nodes.json",
            "events.json",
            "leases.json",
            "pods.json",
        ),
        "webhook/w-0.metrics",
        *("logs/q-0/queue.log", "logs/q-0/queue.previous.log"),
    }
    assert json.loads(parts["queue/queue.json"])["graph"] == {"nodes": 4}
    assert parts["queue/queue.metrics"] == "fluxqueue_up 1\n"
    assert "leader.acquired" in parts["logs/q-0/queue.log"]
    assert json.loads(parts["fluxqueues.json"]) == [{"name": "default", "spec": {"policy": "easy"}}]


def test_what_is_refused_is_named_and_does_not_end_the_bundle(parts: dict[str, str]) -> None:
    missing = json.loads(parts["missing.json"])
    assert set(missing) == {"fluxreservations.json", "logs/q-1/queue.log"}
    assert missing["logs/q-1/queue.log"] == "Error from server (Forbidden): no logs"


def test_work_is_counted_and_not_named(parts: dict[str, str]) -> None:
    assert json.loads(parts["fluxjobs.json"]) == [{"state": "Pending", "reason": "Held", "fluxjobs": 2}]
    assert [name for name, text in parts.items() if "secret-project" in text] == []


def test_a_bundle_is_written_although_no_queue_is_found(server: Any) -> None:
    bundle = collect(server, ClusterError("error: there is no pod"), "system")
    assert bundle.missing["queue"] == "error: there is no pod"
    assert {"pods.json", "events.json", "nodes.json", "logs/q-0/queue.log"} <= bundle.parts.keys()


def test_only_its_owner_reads_the_file(server: Any, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tgz"
    write(collect(server, ClusterError("none"), "system"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(ClusterError, match="name another file"):
        write(collect(server, ClusterError("none"), "system"), tmp_path)
