"""A dashboard for tests: a real API server with our kinds and roles, workloads as the queue would write them,
people with roles, and the program itself with the identity that the chart gives it.
"""

from __future__ import annotations

import datetime as dt
import http.client
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support.chart_rendering import Chart
from support.dashboard_answers import Answer
from support.loop_blocks import assert_short_logged_blocks

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.certs.authority import ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of

SYSTEM = "fluxqueue-system"
_FLUXJOBS = f"/apis/{names.API_VERSION}/namespaces/{{}}/{names.FLUXJOBS}"
_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")


def prepare(cluster: ControlPlane) -> None:
    """Install our kinds, the roles of people and the dashboard's rights."""
    rendered = Chart(cluster.binaries[Tool.HELM]).render({"dashboard": {"enabled": True}})
    crds = rendered.all("CustomResourceDefinition")
    cluster.apply(*crds)
    wait_until(
        lambda: cluster.client.reachable(f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"), "FluxJobs served", 60
    )
    wait_until(
        lambda: cluster.client.reachable(f"/apis/{names.API_VERSION}/{names.FLUXRESERVATIONS}"),
        "FluxReservations served",
        60,
    )
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    cluster.apply(*(each for kind in _KINDS for each in rendered.all(kind)), namespace=SYSTEM)


def make_namespace(cluster: ControlPlane, name: str) -> None:
    """Create a namespace."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def make_person(cluster: ControlPlane, name: str, roles: Mapping[str, str]) -> str:
    """Create a ServiceAccount that stands for a person and return a token of it.

    Parameters
    ----------
    cluster
        Where.
    name
        Of the person; the account is in the namespace ``people``.
    roles
        Namespace -> ClusterRole; an empty namespace binds it in all.
    """
    make_namespace(cluster, "people")
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}, namespace="people"
    )
    for namespace, role in roles.items():
        binding: dict[str, Any] = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "people"}],
        }
        cluster.apply(binding, namespace=namespace or "default")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3_600},
    }
    path = f"/api/v1/namespaces/people/serviceaccounts/{name}/token"
    token: str = cluster.client.request("POST", path, request)["status"]["token"]
    return token


def fluxjob(
    name: str, namespace: str = "default", *, kind: str = "Job", uid: str = "", **status: Any
) -> dict[str, Any]:
    """Return a FluxJob as the queue would create it; ``spec`` among the keywords changes its spec."""
    spec = status.pop("spec", {})
    uid = uid or f"uid-of-{name}"
    pods = spec.get("pods", 1)
    jobspec = jobspec_of(f"{namespace}/{name}", [SizedPods({"cpu": Decimal(2)}, pods)], duration_s=300)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxJob",
        "metadata": {"name": fluxjob_name(kind, name, uid), "namespace": namespace},
        "spec": {
            "objectRef": {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": uid},
            "queue": "default",
            "pods": pods,
            "durationSeconds": 300,
            "jobspec": jobspec,
            **spec,
        },
        "status": {"state": "Pending", "submittedAt": at(-120), **status},
    }


def at(seconds: float) -> str:
    """Return a time so many seconds from now, as the API server writes it."""
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def create(cluster: ControlPlane, job: Mapping[str, Any]) -> str:
    """Create a FluxJob; returns its name."""
    made = cluster.client.request("POST", _FLUXJOBS.format(job["metadata"]["namespace"]), dict(job))
    return str(made["metadata"]["name"])


def change(cluster: ControlPlane, namespace: str, name: str, **parts: Any) -> None:
    """Patch a FluxJob, as the queue would."""
    cluster.client.request("PATCH", f"{_FLUXJOBS.format(namespace)}/{name}", parts)


def read(cluster: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    """Read a FluxJob."""
    found: dict[str, Any] = cluster.client.get(f"{_FLUXJOBS.format(namespace)}/{name}")
    return found


@dataclass(frozen=True)
class RunningDashboard:
    """The program, and where it is."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"


@contextmanager
def run_dashboard(cluster: ControlPlane, folder: Path, *options: str) -> Iterator[RunningDashboard]:
    """Run ``fluxqueue dashboard`` with its own identity until the end of the context."""
    folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    write_pair(
        folder / "tls", issue_leaf(make_authority("test", now), ServingNames((), ("127.0.0.1",)), now), now
    )
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM, "fluxqueue-dashboard")
    port = free_port()
    log = folder / "dashboard.log"
    command = [
        str(Path(sys.executable).with_name("fluxqueue")),
        "dashboard",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    command += ["--tls-dir", str(folder / "tls"), "--kubeconfig", str(kubeconfig), *options]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            running = RunningDashboard(port, log, process)
            wait_until(lambda: _ready(running), f"the dashboard ({log.read_text()[-500:]})", 60)
            yield running
        finally:
            process.terminate()
            process.wait(30)
    assert_short_logged_blocks([log])


def _ready(running: RunningDashboard) -> bool:
    assert running.process.poll() is None, running.log.read_text()
    try:
        return Browserless(running.port).get("/readyz").status == 200
    except OSError:
        return False


@dataclass
class Browserless:
    """A client that keeps cookies and sends what a browser sends about where a request comes from."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        """Send a GET."""
        return self._send("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form of our own page; keywords change headers (``sec_fetch_site``)."""
        sent = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
            "origin": f"https://127.0.0.1:{self.port}",
        }
        return self._send(
            "POST",
            path,
            urlencode(fields),
            {**sent, **{name.replace("_", "-"): text for name, text in headers.items()}},
        )

    def sign_in(self, token: str) -> Answer:
        """Sign in with a token."""
        return self.post("/sign-in", {"token": token, "next": "/"})

    def events(self, path: str, *, seconds: float = 60) -> Iterator[str]:
        """Yield the data of server-sent events."""
        connection = self._connection(seconds)
        try:
            connection.request("GET", path, headers=self._with_cookies({}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                line = response.readline().decode()
                if not line:
                    return
                if line.startswith("data: "):
                    yield line.removeprefix("data: ").strip()
        finally:
            connection.close()

    def _connection(self, seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=seconds, context=context)

    def _with_cookies(self, headers: Mapping[str, str]) -> dict[str, str]:
        sent = {**self.headers, **headers}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        return sent

    def _send(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = self._connection(60)
        try:
            connection.request(method, path, body, self._with_cookies(headers))
            response = connection.getresponse()
            for name, text in response.getheaders():
                if name == "set-cookie":
                    key, _, value = text.partition(";")[0].partition("=")
                    self.cookies[key] = value.strip('"')
            return Answer(response.status, response.read().decode(), dict(response.getheaders()))
        except TimeoutError as error:
            raise AssertionError(f"{method} {path} was not answered") from error
        finally:
            connection.close()
