"""A stand-in for kubelets: it runs the command of pods on nodes without machines as processes of this machine.

kwok only says that a pod runs. For the pods of one namespace whose first container has a command, this starts it, with its variables and
its mounted Secrets as files; paths of mounts in the command become those of the files. When it ends, its exit code and its termination
message are written into the status of the pod, and the API server gets its output from here, as from a kubelet. A pod that is deleted is
killed, and its end reported: a Job may keep it until it has ended.

Each gets the annotation ``fluxqueue.local/run-seconds: forever``, so that kwok does not end it.
"""

from __future__ import annotations

import base64
import datetime
import http.server
import ssl
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError

__all__ = ["ProcessNodes", "process_nodes"]

Json = dict[str, Any]
_POLL_S = 0.05
_MESSAGE = 4096


@dataclass
class _Started:
    """The process of a pod and its files."""

    name: str
    process: subprocess.Popen[bytes]
    folder: Path
    container: str


class ProcessNodes:
    """Runs the pods of a namespace.

    Attributes
    ----------
    commands
        The command of each pod that was started, by its name.
    """

    def __init__(self, client: ApiServerClient, namespace: str, folder: Path) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self._pods: dict[str, _Started] = {}
        self._ended = threading.Event()
        self.commands: dict[str, list[str]] = {}

    def run(self) -> None:
        """Run pods until `stop`."""
        while not self._ended.wait(_POLL_S):
            pods = {pod["metadata"]["uid"]: pod for pod in self._client.get(f"/api/v1/namespaces/{self._namespace}/pods")["items"]}
            for uid, started in [*self._pods.items()]:
                if uid not in pods:
                    started.process.kill()
                    started.process.wait()
                    del self._pods[uid]
                elif pods[uid]["status"]["phase"] == "Running":
                    if pods[uid]["metadata"].get("deletionTimestamp"):
                        started.process.kill()
                        started.process.wait()
                    if started.process.poll() is not None:
                        self._report(started)
            for uid, pod in pods.items():
                if uid not in self._pods and pod["status"].get("phase") == "Running" and pod["spec"]["containers"][0].get("command"):
                    try:
                        self._pods[uid] = self._start(pod)
                    except ApiServerError as error:  # a kubelet waits for a Secret too, and a pod may have gone
                        if error.status != HTTPStatus.NOT_FOUND:
                            raise

    def stop(self) -> None:
        """Kill what still runs."""
        self._ended.set()
        for started in self._pods.values():
            started.process.kill()
            started.process.wait()

    def kill(self, name: str) -> None:
        """Kill the process of a pod, as the kernel does when its memory is used up."""
        next(each for each in self._pods.values() if each.name == name).process.kill()

    def output(self, name: str) -> bytes | None:
        """Return the output of a pod; None if it is not known."""
        found = [each.folder / "output" for each in self._pods.values() if each.name == name]
        return found[0].read_bytes() if found else None

    def until_ended(self, name: str) -> None:
        """Wait until the process of a pod has ended, if it has one."""
        for started in [each for each in self._pods.values() if each.name == name]:
            while started.process.poll() is None and not self._ended.wait(_POLL_S):
                pass

    def _start(self, pod: Json) -> _Started:
        folder = self._folder / pod["metadata"]["uid"]
        folder.mkdir(exist_ok=True)
        lasts = {"metadata": {"annotations": {"fluxqueue.local/run-seconds": "forever"}}}
        self._client.request("PATCH", f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}", lasts)
        container = pod["spec"]["containers"][0]
        places = {container.get("terminationMessagePath", "/dev/termination-log"): str(folder / "message")}
        for mount in container.get("volumeMounts", ()):
            volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
            if "secret" in volume:
                places[mount["mountPath"]] = str(self._secret(volume["secret"]["secretName"], folder / mount["name"]))
        command = [_placed(word, places) for word in [*container["command"], *container.get("args", ())]]
        if command[0].startswith("python"):
            command[0] = sys.executable
        self.commands[pod["metadata"]["name"]] = command
        environment = {"PATH": "/usr/bin:/bin", **{each["name"]: _value(each, pod) for each in container.get("env", ())}}
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        return _Started(pod["metadata"]["name"], process, folder, container["name"])

    def _secret(self, name: str, folder: Path) -> Path:
        secret = self._client.get(f"/api/v1/namespaces/{self._namespace}/secrets/{name}")
        folder.mkdir(exist_ok=True)
        for key, content in secret["data"].items():
            (folder / key).write_bytes(base64.b64decode(content))
        return folder

    def _report(self, started: _Started) -> None:
        code = started.process.returncode
        message = started.folder / "message"
        ended: Json = {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if code == 0 else "Error"}
        if message.is_file():
            ended["message"] = message.read_text()[:_MESSAGE]
        status = {"name": started.container, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
        path = f"/api/v1/namespaces/{self._namespace}/pods/{started.name}/status"
        try:
            self._client.request("PATCH", path, {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]}})
        except ApiServerError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


@contextmanager
def process_nodes(client: ApiServerClient, namespace: str, folder: Path) -> Iterator[ProcessNodes]:
    """Run the pods of a namespace, and serve their output as the kubelet of every node."""
    nodes = ProcessNodes(client, namespace, folder)
    server = _log_server(nodes, folder)
    before = {node["metadata"]["name"]: node["status"]["addresses"] for node in client.get("/api/v1/nodes")["items"]}
    here = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    for name in before:
        endpoint = {"kubeletEndpoint": {"Port": server.server_address[1]}}
        client.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {**here, "daemonEndpoints": endpoint}})
    running = [threading.Thread(target=nodes.run, daemon=True), threading.Thread(target=server.serve_forever, daemon=True)]
    for thread in running:
        thread.start()
    try:
        yield nodes
    finally:
        nodes.stop()
        server.shutdown()
        server.server_close()
        for thread in running:
            thread.join(30)
        for name, addresses in before.items():
            client.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses, "daemonEndpoints": None}})


def _placed(word: str, places: Mapping[str, str]) -> str:
    for there, here in places.items():
        if word == there or word.startswith(f"{there}/"):
            return here + word.removeprefix(there)
    return word


def _value(variable: Json, pod: Json) -> str:
    if "value" in variable or "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    section, _, key = path.removeprefix("metadata.").removesuffix("']").partition("['")
    return str(pod["metadata"].get(section, {}).get(key, ""))


def _log_server(nodes: ProcessNodes, folder: Path) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            parts, query = url.path.strip("/").split("/"), urllib.parse.parse_qs(url.query)
            if "follow" in query:
                nodes.until_ended(parts[2])
            output = nodes.output(parts[2]) if parts[0] == "containerLogs" and len(parts) == 4 else None
            if output is not None and "tailLines" in query:
                output = b"".join(output.splitlines(keepends=True)[-int(query["tailLines"][0]) :])
            self.send_response(200 if output is not None else 404)
            self.end_headers()
            self.wfile.write(output or b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _certificate(folder: Path) -> Path:
    """Write a certificate that nobody checks: the API server does so only where it is told an authority of kubelets."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubelet")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path = folder / "kubelet.pem"
    path.write_bytes(pem + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return path
