"""The webhook of the chart with certificates by cert-manager, called by a real API server.

The chart's Certificates, Issuers and webhook configuration are applied as rendered. The API server calls the
webhook by its Service, which is an ExternalName of this machine here. In place of the kubelet, `Kubelet`
brings the Secret into the webhook's folder, after the delay that a kubelet has.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.builders import make_job
from support.loop_blocks import assert_short_logged_blocks

from fluxqueue.api import names
from fluxqueue.certs.authority import Pair
from fluxqueue.certs.pairs import fingerprint, parse_certificate, write_pair
from fluxqueue.local.binaries import Tool
from fluxqueue.local.chart import render
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import Process, wait_until

__all__ = ["IssuedWebhook", "running_issued_webhook"]

NAMESPACE = "fluxqueue-system"
MANAGED = "issued"
SERVICE = "fluxqueue-webhook"
AUTHORITY = "fluxqueue-ca"
LEAF = "fluxqueue-webhook-tls"
WAIT_S = 60
_TRUST = "fluxqueue-webhook-trust"
_APPLIED = {"Issuer", "Certificate", "MutatingWebhookConfiguration"}
_CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/fluxqueue-webhook"
_CERTIFICATES = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates"
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@dataclass
class Admissions:
    """What happened to admissions and handshakes while they were counted."""

    admitted: int = 0
    handshakes: int = 0
    errors: list[str] = field(default_factory=list)


class IssuedWebhook:
    """The webhook, its certificates, and the API server that calls it."""

    def __init__(self, cluster: ControlPlane, folder: Path, port: int) -> None:
        self.cluster = cluster
        self.folder = folder / "tls"
        self.port = port
        self.delay_s = 0.0

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret; empty if there is none."""
        found = self.cluster.client.find(f"{_SECRETS}/{name}") or {}
        return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}

    def bundle(self) -> bytes:
        """Return the authorities that the API server trusts."""
        hook = self.cluster.client.get(_CONFIGURATION)["webhooks"][0]
        return base64.b64decode(hook["clientConfig"].get("caBundle", ""))

    def trust(self, authorities: bytes) -> None:
        """Let cert-manager inject these authorities from a Secret of their own,
        as docs/certificates.md says.
        """
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": _TRUST,
                "namespace": NAMESPACE,
                "annotations": {"cert-manager.io/allow-direct-injection": "true"},
            },
            "data": {"ca.crt": base64.b64encode(authorities).decode()},
        }
        self.cluster.apply(secret)
        self._inject({"inject-ca-from-secret": f"{NAMESPACE}/{_TRUST}", "inject-ca-from": None})

    def trust_issuer(self) -> None:
        """Let cert-manager inject the authority of the certificate again, as the chart does."""
        self._inject({"inject-ca-from-secret": None, "inject-ca-from": f"{NAMESPACE}/{LEAF}"})

    def _inject(self, annotations: dict[str, str | None]) -> None:
        changed = {f"cert-manager.io/{key}": text for key, text in annotations.items()}
        self.cluster.client.request("PATCH", _CONFIGURATION, {"metadata": {"annotations": changed}})

    def renew(self, certificate: str) -> None:
        """Renew a certificate now, as ``cmctl renew`` does, and wait until its Secret holds another one."""
        before = self.secret(certificate).get("tls.crt")
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "by a test",
            "lastTransitionTime": now,
        }
        path = f"{_CERTIFICATES}/{certificate}"
        conditions = [*self.cluster.client.get(path)["status"]["conditions"], condition]
        self.cluster.client.request("PATCH", f"{path}/status", {"status": {"conditions": conditions}})
        wait_until(
            lambda: self.secret(certificate).get("tls.crt") not in (None, before),
            f"{certificate} renewed",
            WAIT_S,
        )

    def change_key_of(self, certificate: str) -> None:
        """Make a certificate get a new key whenever it is renewed."""
        self.cluster.client.request(
            "PATCH", f"{_CERTIFICATES}/{certificate}", {"spec": {"privateKey": {"rotationPolicy": "Always"}}}
        )

    def serves(self, certificate: bytes) -> bool:
        """True if new connections get this certificate."""
        with contextlib.suppress(OSError):
            return parse_certificate(self._presented().encode()) == parse_certificate(certificate)
        return False

    def _presented(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=10)

    def verified(self) -> None:
        """Connect as an API server does that has no connection yet;
        raise if the certificate is not trusted.
        """
        context = ssl.create_default_context(cadata=self.bundle().decode())
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        with plain, context.wrap_socket(plain, server_hostname=f"{SERVICE}.{NAMESPACE}.svc"):
            pass

    def admit(self) -> None:
        """Create a Job without storing it; raise unless the webhook suspended it."""
        job = make_job().namespace(MANAGED).build()
        created = self.cluster.client.request(
            "POST", f"/apis/batch/v1/namespaces/{MANAGED}/jobs", job, query={"dryRun": "All"}
        )
        if created["spec"].get("suspend") is not True:
            raise ValueError("the Job was not suspended")

    @contextlib.contextmanager
    def admissions(self, per_s: int = 50) -> Iterator[Admissions]:
        """Admit Jobs at a steady rate, and connect anew all the time, until the end of the block."""
        counted, ended = Admissions(), threading.Event()
        workers = 10

        def repeat(action: Callable[[], None], every_s: float, count: Callable[[], None]) -> None:
            while not ended.wait(every_s):
                try:
                    action()
                    count()
                except Exception as error:
                    counted.errors.append(repr(error))

        def admitted() -> None:
            counted.admitted += 1

        def shaken() -> None:
            counted.handshakes += 1

        threads = [
            threading.Thread(target=repeat, args=(self.admit, workers / per_s, admitted))
            for _ in range(workers)
        ]
        threads.append(threading.Thread(target=repeat, args=(self.verified, 0.05, shaken)))
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: counted.admitted >= per_s, "a second of admissions", WAIT_S)
            yield counted
            enough = counted.admitted + 2 * per_s
            wait_until(
                lambda: counted.admitted >= enough or bool(counted.errors),
                "two more seconds of admissions",
                WAIT_S,
            )
        finally:
            ended.set()
            for thread in threads:
                thread.join(WAIT_S)

    def follow(self, ended: threading.Event) -> None:
        """Bring the Secret into the folder as the kubelet does, until told to end."""
        found: tuple[float, Pair] | None = None
        served: Pair | None = None
        while not ended.wait(0.1):
            data = self.secret(LEAF)
            if not (data.get("tls.crt") and data.get("tls.key")):
                continue
            pair = Pair(data["tls.crt"], data["tls.key"])
            if pair != served and (found is None or found[1] != pair):
                found = (time.monotonic(), pair)
            if found is not None and time.monotonic() - found[0] >= self.delay_s:
                write_pair(self.folder, found[1], dt.datetime.now(dt.UTC))
                served, found = found[1], None


@contextlib.contextmanager
def running_issued_webhook(cluster: ControlPlane, folder: Path) -> Iterator[IssuedWebhook]:
    """Install the chart's certificates and run its webhook until the end of the block."""
    port = free_port()
    webhook = IssuedWebhook(cluster, folder, port)
    ended = threading.Event()
    following = threading.Thread(target=webhook.follow, args=(ended,))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "fluxqueue.webhook.main",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    process = Process(
        "webhook", [*command, "--cert-dir", webhook.folder, "--drain-seconds", "0"], folder / "webhook.log"
    )
    documents = _objects(cluster, port)
    try:
        process.start()
        cluster.apply(*documents)
        following.start()
        wait_until(
            lambda: fingerprint(webhook.folder) is not None and bool(webhook.bundle()),
            "the first certificate",
            WAIT_S,
        )
        wait_until(lambda: webhook.serves(webhook.secret(LEAF)["tls.crt"]), "the certificate served", WAIT_S)
        wait_until(lambda: _works(webhook), "the first admission", WAIT_S)
        yield webhook
    finally:
        ended.set()
        if following.is_alive():
            following.join(WAIT_S)
        process.stop()
        _remove(cluster)
    assert_short_logged_blocks([process.log])


def _works(webhook: IssuedWebhook) -> bool:
    try:
        webhook.admit()
    except Exception:
        return False
    return True


def _objects(cluster: ControlPlane, port: int) -> list[dict[str, Any]]:
    values = {
        "certificates": {"mode": "certManager"},
        "webhook": {"servicePort": port},
        "postgres": {"enabled": False},
    }
    values["database"] = {"existingSecret": {"name": "dsn"}}
    rendered = render(cluster.binaries[Tool.HELM], "fluxqueue", NAMESPACE, values)
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": MANAGED, "labels": {names.MANAGED_LABEL: "true"}},
        },
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {
            "type": "ExternalName",
            "externalName": "127.0.0.1",
            "ports": [{"name": "https", "port": port}],
        },
    }
    chosen = [dict(each) for each in rendered.objects if each["kind"] in _APPLIED]
    for each in chosen:
        if each["kind"] != "MutatingWebhookConfiguration":
            each["metadata"] = {**each["metadata"], "namespace": NAMESPACE}
    return [*spaces, service, *chosen]


def _remove(cluster: ControlPlane) -> None:
    cluster.client.request("DELETE", _CONFIGURATION)
    for kind in ("certificates", "issuers"):
        cluster.client.request("DELETE", f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/{kind}")
    cluster.client.request("DELETE", _SECRETS)
