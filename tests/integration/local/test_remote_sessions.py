"""``kubectl exec``, ``attach``, ``cp`` and ``port-forward``, and the same of the Python client,
with pods that are processes.
"""

from __future__ import annotations

import os
import pty
import select
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluxqueue.local.binaries import Tool
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.timeout(600)

_WAIT_S = 120
_SERVER = f"exec {sys.executable} -m http.server 8080 --bind $IP"

_PYTHON_CLIENT = """
import kubernetes
from kubernetes.stream import portforward, stream
kubernetes.config.load_kube_config()
api = kubernetes.client.CoreV1Api()
options = {"stdout": True, "stderr": True, "stdin": False, "_preload_content": False}
options["command"] = ["sh", "-c", "echo $COLOUR; exit 3"]
answer = stream(api.connect_get_namespaced_pod_exec, "serves", "default", **options)
answer.run_forever(timeout=120)
print(repr(answer.read_stdout()), answer.returncode)
forward = portforward(api.connect_get_namespaced_pod_portforward, "serves", "default", ports="8080")
connection = forward.socket(8080)
connection.settimeout(120)
connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(connection.recv(15))
"""
"""What a person writes with the Python client."""


@pytest.fixture(scope="module")
def plane(service_folder: Path) -> Iterator[ControlPlane]:
    """A control plane with one pod that serves and one that listens to its stdin."""
    cluster = ControlPlane(service_folder / "sessions", nodes=1, options=ControlPlaneOptions(processes=True))
    cluster.start()
    address = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "COLOUR", "value": "blue"},
    ]
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 100}
    serves = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", _SERVER],
        "env": address,
        "readinessProbe": probe,
    }
    echo = 'echo ready; while read line; do echo "got $line"; done; echo over'
    listens = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", echo],
        "stdin": True,
        "stdinOnce": True,
    }
    terminal = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", "stty size; exec cat"],
        "stdin": True,
        "tty": True,
    }
    for name, container in (("serves", serves), ("listens", listens), ("terminal", terminal)):
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        cluster.client.request(
            "POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec}
        )
        cluster.kubectl(
            "wait", "--for=condition=ready", f"pod/{name}", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S
        )
    yield cluster
    cluster.stop()


class Terminal:
    """kubectl at a terminal."""

    def __init__(self, plane: ControlPlane, *words: str) -> None:
        self._master, slave = pty.openpty()
        environment = {**plane.kubectl_environment(), "TERM": "dumb"}
        command = [str(plane.binaries[Tool.KUBECTL]), *words]
        self.process = subprocess.Popen(
            command, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> None:
        """Read until a text was shown."""
        deadline = time.monotonic() + _WAIT_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._master], [], [], 1)[0]:
                self.text += os.read(self._master, 4096).decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def start(plane: ControlPlane, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [plane.binaries[Tool.KUBECTL], *words],
        env=plane.kubectl_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_command_runs_in_the_container_with_its_variables_and_exit_code(plane: ControlPlane) -> None:
    done = plane.kubectl(
        "exec", "serves", "--", "sh", "-c", "echo $COLOUR; echo $HOSTNAME; echo bad >&2; exit 7", check=False
    )
    assert (done.stdout, done.returncode) == ("blue\nserves\n", 7)
    assert done.stderr.startswith("bad\n")


def test_a_command_that_does_not_exist_is_named(plane: ControlPlane) -> None:
    done = plane.kubectl("exec", "serves", "--", "no-such-program", check=False)
    assert 'exec: "no-such-program": executable file not found in $PATH' in done.stderr


def test_input_of_a_command_arrives_whole_and_ends(plane: ControlPlane) -> None:
    text = "".join(f"line {number}\n" for number in range(50_000))
    assert plane.kubectl("exec", "-i", "serves", "--", "cat", stdin=text).stdout == text


def test_a_shell_at_a_terminal_knows_its_size_and_ends(plane: ControlPlane) -> None:
    shell = Terminal(plane, "exec", "-it", "serves", "--", "sh")
    try:
        shell.type('tty; stty size; echo "[$TERM]"; echo $((6 * 7))\n')
        shell.until("/dev/pts/")
        shell.until("[xterm]")
        shell.until("\r\n42")
        shell.type("exit 5\n")
        assert shell.process.wait(_WAIT_S) == 5
    finally:
        shell.close()


def test_interrupting_a_command_ends_it(plane: ControlPlane) -> None:
    shell = Terminal(plane, "exec", "-it", "serves", "--", "sh", "-c", "echo started; exec sleep 600")
    try:
        shell.until("started")
        shell.type("\x03")
        assert shell.process.wait(_WAIT_S) != 0
    finally:
        shell.close()


def test_files_are_copied_both_ways(plane: ControlPlane, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "there").write_bytes(content)
    plane.kubectl("cp", str(tmp_path / "there"), "serves:copied")
    plane.kubectl("cp", "serves:copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_an_attached_container_gets_input_and_shows_output(plane: ControlPlane) -> None:
    attached = start(plane, "attach", "-i", "listens")
    assert attached.stdin is not None
    assert attached.stdout is not None
    attached.stdin.write(b"one\n")
    attached.stdin.flush()
    assert attached.stdout.readline() == b"got one\n"
    output, _ = attached.communicate(b"two\n", timeout=_WAIT_S)
    assert output == b"got two\nover\n"
    wait_until(
        lambda: plane.client.get("/api/v1/namespaces/default/pods/listens")["status"]["phase"] == "Succeeded",
        "it ended",
        _WAIT_S,
    )


def test_a_terminal_of_a_container_can_be_attached(plane: ControlPlane) -> None:
    attached = Terminal(plane, "attach", "-it", "terminal")
    try:
        attached.type("hello\n")
        attached.until("hello\r\nhello")
    finally:
        attached.close()


def test_a_client_that_is_killed_leaves_no_trace(plane: ControlPlane) -> None:
    attached = Terminal(plane, "attach", "-it", "terminal")
    attached.type("hello\n")
    attached.until("hello\r\nhello")
    attached.close()
    again = Terminal(plane, "attach", "-it", "terminal")
    try:
        again.type("again\n")
        again.until("again\r\nagain")
    finally:
        again.close()
    assert "Traceback" not in (plane.folder / "logs" / f"{Component.NODE_AGENT.value}.log").read_text()


def test_a_forwarded_port_serves_many_requests(plane: ControlPlane) -> None:
    forwarding = start(plane, "port-forward", "pod/serves", ":8080")
    try:
        assert forwarding.stdout is not None
        port = int(forwarding.stdout.readline().split()[2].rpartition(b":")[2])
        for _ in range(5):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=_WAIT_S) as answer:
                assert b"Directory listing" in answer.read()
    finally:
        forwarding.kill()
        forwarding.communicate()


def test_a_port_without_a_program_is_said(plane: ControlPlane) -> None:
    forwarding = start(plane, "port-forward", "pod/serves", ":9")
    try:
        assert forwarding.stdout is not None
        assert forwarding.stderr is not None
        port = int(forwarding.stdout.readline().split()[2].rpartition(b":")[2])
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=_WAIT_S)
        assert b"nothing listens on port 9" in b"".join(forwarding.stderr.readline() for _ in range(1))
    finally:
        forwarding.kill()
        forwarding.communicate()


def test_the_python_client_executes_and_forwards(plane: ControlPlane) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PYTHON_CLIENT],
        env=plane.kubectl_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("'blue\\n' 3\nb'HTTP/1.0 200 OK'\n", "")


def test_nobody_but_the_api_server_may_ask_the_agent(plane: ControlPlane) -> None:
    (node,) = plane.client.get("/api/v1/nodes")["items"]
    (address,) = [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]
    url = (
        f"https://{address}:"
        f"{node['status']['daemonEndpoints']['kubeletEndpoint']['Port']}/containerLogs/default/serves/main"
    )
    pki = plane.folder / "pki"
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    with pytest.raises(OSError) as anonymous:
        urllib.request.urlopen(url, context=context, timeout=_WAIT_S)
    # the connection ends before anything is answered
    assert not isinstance(anonymous.value, urllib.error.HTTPError)
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, context=context, timeout=_WAIT_S)
    assert (refused.value.code, refused.value.read()) == (403, b"only the API server may ask the node agent")
