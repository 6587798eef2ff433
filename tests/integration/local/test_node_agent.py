"""Pods as processes, through a real API server and the real kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import namespaces

from fluxqueue.local.binaries import Tool
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.kubelet.children import MARK
from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.timeout(600)

_WAIT_S = 120
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plane(service_folder: Path) -> Iterator[ControlPlane]:
    """A control plane whose pods run."""
    cluster = ControlPlane(service_folder / "processes", nodes=2, options=ControlPlaneOptions(processes=True))
    cluster.start()
    yield cluster
    folder = str(cluster.folder)
    cluster.stop()
    assert marked(folder) == []


def marked(folder: str) -> list[int]:
    """Return the processes of pods of a cluster."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def rooted(folder: str) -> list[str]:
    """Return the processes whose root is in a folder, which includes those that have no environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "root").readlink()).startswith(folder):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def container(script: str, name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **fields}


def create(
    plane: ControlPlane, name: str, *containers: Json, labels: dict[str, str] | None = None, **spec: Any
) -> None:
    body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [*containers], **spec}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": body,
    }
    plane.client.request("POST", "/api/v1/namespaces/default/pods", pod)


def status(plane: ControlPlane, name: str) -> Json:
    found: Json = plane.client.get(f"/api/v1/namespaces/default/pods/{name}")["status"]
    return found


def wait_for(plane: ControlPlane, name: str, holds: Callable[[Json], bool], what: str) -> Json:
    wait_until(lambda: holds(status(plane, name)), f"pod {name} {what}", _WAIT_S)
    return status(plane, name)


def ends(plane: ControlPlane, name: str) -> Json:
    return wait_for(plane, name, lambda found: found["phase"] in ("Succeeded", "Failed"), "ended")


def logs(plane: ControlPlane, name: str, *words: str) -> str:
    return plane.kubectl("logs", name, *words).stdout


def test_nodes_are_ready_and_say_what_they_are(plane: ControlPlane) -> None:
    (one, _) = plane.client.get("/api/v1/nodes")["items"]
    assert {each["type"]: each["status"] for each in one["status"]["conditions"]}["Ready"] == "True"
    assert one["status"]["nodeInfo"]["containerRuntimeVersion"] == "processes://1"
    assert one["status"]["allocatable"]["cpu"] == "8"
    lease = plane.client.get(
        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{one['metadata']['name']}"
    )
    assert lease["spec"]["leaseDurationSeconds"] == 40


def test_a_pod_computes_with_its_variables_and_files(plane: ControlPlane) -> None:
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "values"},
            "data": {"factor": "6", "file": "7"},
        }
    )
    source = {"configMapKeyRef": {"name": "values", "key": "factor"}}
    script = (
        "echo $((FACTOR * $(cat /etc/values/file))) > /shared/result; "
        'echo "$POD on $NODE" > /dev/termination-log'
    )
    env = [
        {"name": "FACTOR", "valueFrom": source},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    shared = {"name": "shared", "mountPath": "/shared"}
    first = container(
        script, "first", env=env, volumeMounts=[{"name": "values", "mountPath": "/etc/values"}, shared]
    )
    second = container(
        "cat /shared/result; echo $HOSTNAME; ls /var/run/secrets/kubernetes.io/serviceaccount",
        volumeMounts=[shared],
    )
    volumes = [{"name": "values", "configMap": {"name": "values"}}, {"name": "shared", "emptyDir": {}}]
    create(plane, "computes", second, initContainers=[first], volumes=volumes)
    found = ends(plane, "computes")
    assert found["phase"] == "Succeeded", found
    assert logs(plane, "computes", "-c", "main") == "42\ncomputes\nca.crt\nnamespace\ntoken\n"
    message = found["initContainerStatuses"][0]["state"]["terminated"]["message"]
    assert message.startswith("computes on node-")


def test_a_log_is_followed_to_the_end_and_the_exit_code_is_the_program_s(plane: ControlPlane) -> None:
    create(plane, "counts", container("for i in 1 2 3; do echo $i; sleep 0.2; done; echo bad >&2; exit 3"))
    wait_for(plane, "counts", lambda found: found["phase"] != "Pending", "started")
    assert logs(plane, "counts", "-f") == "1\n2\n3\nbad\n"
    found = ends(plane, "counts")
    assert found["phase"] == "Failed"
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert logs(plane, "counts", "--tail=2") == "3\nbad\n"


def test_the_temporary_folder_has_a_name_short_enough_for_sockets(plane: ControlPlane) -> None:
    script = (
        "import socket, tempfile; socket.socket(socket.AF_UNIX).bind(tempfile.mkdtemp() + "
        "'/a-socket-with-a-name'); print('bound')"
    )
    create(plane, "socket", {**container("true"), "command": [sys.executable, "-W", "ignore", "-c", script]})
    ends(plane, "socket")
    assert logs(plane, "socket") == "bound\n"


def test_files_of_a_volume_have_their_modes(plane: ControlPlane) -> None:
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "scripts"},
            "data": {"run": "#!/bin/sh\necho ran\n"},
        }
    )
    mounts = [{"name": "scripts", "mountPath": "/scripts"}]
    volumes = [{"name": "scripts", "configMap": {"name": "scripts", "defaultMode": 0o755}}]
    create(
        plane,
        "script",
        {**container("true"), "command": ["/scripts/run"], "volumeMounts": mounts},
        volumes=volumes,
    )
    assert ends(plane, "script")["phase"] == "Succeeded"
    assert logs(plane, "script") == "ran\n"


def test_an_error_of_this_machine_ends_all_containers_of_the_pod(plane: ControlPlane) -> None:
    other = container("echo ready; sleep 600", "other")
    breaks = container("until test -e broken; do sleep 0.1; done; exit 1")
    create(plane, "half", breaks, other, restartPolicy="OnFailure")
    wait_until(
        lambda: "ready" in plane.kubectl("logs", "half", "-c", "other", check=False).stdout,
        "it runs",
        _WAIT_S,
    )
    uid = plane.client.get("/api/v1/namespaces/default/pods/half")["metadata"]["uid"]
    folder = plane.folder / "pods" / uid / "main"
    wait_until((folder / "work").exists, "it has a folder", _WAIT_S)
    (folder / "termination-message").unlink()
    (folder / "termination-message").mkdir()  # the next run cannot have its file
    (folder / "work" / "broken").touch()
    found = ends(plane, "half")
    assert (found["phase"], found["reason"]) == ("Failed", "NodeAgentError")
    assert marked(f"{plane.folder}/pods/{uid}") == []


def test_what_cannot_run_fails_with_a_sentence(plane: ControlPlane) -> None:
    create(plane, "host", container("true"), volumes=[{"name": "root", "hostPath": {"path": "/"}}])
    create(plane, "nothing", {"name": "main", "image": "none", "command": ["no-such-program"]})
    create(plane, "nowhere", container("true", workingDir="/no/such/folder"))
    assert "volume root is a hostPath" in ends(plane, "host")["message"]
    ended = ends(plane, "nothing")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == 'exec: "no-such-program": executable file not found in $PATH'
    refused = plane.kubectl("logs", "-f", "nothing", check=False)
    assert refused.returncode != 0
    assert (
        f'container "main" in pod "nothing" is terminated: StartError: {ended["message"]}' in refused.stderr
    )
    ended = ends(plane, "nowhere")["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"].startswith("workingDir /no/such/folder does not exist on this machine: ")


def test_a_container_waits_for_its_secret(plane: ControlPlane) -> None:
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "late", "key": "word"}}}]
    create(plane, "patient", container("echo $WORD", env=env))

    def reason(found: Json) -> str:
        statuses = found.get("containerStatuses") or [{}]
        return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))

    wait_for(plane, "patient", lambda found: reason(found) == "CreateContainerConfigError", "waits")
    plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "stringData": {"word": "now"}}
    )
    assert ends(plane, "patient")["phase"] == "Succeeded"
    assert logs(plane, "patient") == "now\n"


def test_a_pod_that_waits_for_a_volume_can_be_deleted(plane: ControlPlane) -> None:
    volumes = [{"name": "values", "configMap": {"name": "never"}}]
    create(
        plane,
        "waits",
        container("true", volumeMounts=[{"name": "values", "mountPath": "/values"}]),
        volumes=volumes,
    )

    def message(found: Json) -> str:
        statuses = found.get("containerStatuses") or [{}]
        return str(statuses[0].get("state", {}).get("waiting", {}).get("message", ""))

    wait_for(plane, "waits", lambda found: "configmap never does not exist" in message(found), "waits")
    plane.kubectl("delete", "pod", "waits", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S)


def test_a_failing_container_starts_again_and_its_last_log_is_kept(plane: ControlPlane) -> None:
    script = "if [ -e once ]; then echo second; exit 0; fi; touch once; echo first; exit 1"
    create(plane, "again", container(script), restartPolicy="OnFailure")
    found = ends(plane, "again")
    assert (found["phase"], found["containerStatuses"][0]["restartCount"]) == ("Succeeded", 1)
    assert found["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert (logs(plane, "again"), logs(plane, "again", "--previous")) == ("second\n", "first\n")


def test_a_sidecar_serves_while_the_work_lasts_and_ends_after_it(plane: ControlPlane) -> None:
    sidecar = container(
        "trap 'echo stopped; exit 0' TERM; echo serving; sleep 600 & wait", "sidecar", restartPolicy="Always"
    )
    create(
        plane,
        "helped",
        container("sleep 1; echo worked"),
        initContainers=[sidecar],
        terminationGracePeriodSeconds=30,
    )
    found = ends(plane, "helped")
    assert found["phase"] == "Succeeded"
    assert logs(plane, "helped", "-c", "sidecar") == "serving\nstopped\n"


def test_a_deleted_pod_gets_its_signal_and_nothing_of_it_is_left(plane: ControlPlane) -> None:
    script = (
        "trap 'echo asked to stop; exit 0' TERM; (setsid sleep 600 &) ; echo ready; while true; "
        "do sleep 0.1; done"
    )
    create(plane, "stopped", container(script), terminationGracePeriodSeconds=60)
    wait_until(lambda: "ready" in plane.kubectl("logs", "stopped", check=False).stdout, "it runs", _WAIT_S)
    uid = plane.client.get("/api/v1/namespaces/default/pods/stopped")["metadata"]["uid"]
    following = subprocess.Popen(
        [plane.binaries[Tool.KUBECTL], "logs", "-f", "stopped"],
        env=plane.kubectl_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "ready\n"
    plane.kubectl("delete", "pod", "stopped")
    assert following.communicate(timeout=_WAIT_S)[0] == "asked to stop\n"
    assert plane.client.find("/api/v1/namespaces/default/pods/stopped") is None
    assert marked(f"{plane.folder}/pods/{uid}") == []


def test_a_pod_that_does_not_stop_is_killed(plane: ControlPlane) -> None:
    create(plane, "stubborn", container("trap '' TERM; echo ready; while true; do sleep 0.1; done"))
    wait_until(lambda: "ready" in plane.kubectl("logs", "stubborn", check=False).stdout, "it runs", _WAIT_S)
    plane.kubectl("delete", "pod", "stubborn", "--wait=true")
    assert plane.client.find("/api/v1/namespaces/default/pods/stubborn") is None


def test_the_deadline_of_a_pod_ends_it(plane: ControlPlane) -> None:
    create(plane, "late", container("sleep 600"), activeDeadlineSeconds=1)
    found = ends(plane, "late")
    assert (found["phase"], found["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_container_has_no_more_memory_than_its_limit(plane: ControlPlane) -> None:
    if "limits.not_enforced" in (plane.folder / "logs" / "node-agent.log").read_text():
        pytest.skip("no control groups can be made here")
    script = "import os; print(len(bytearray(os.urandom(1)) * (400 << 20)))"
    large = {
        "name": "main",
        "image": "none",
        "command": [sys.executable, "-c", script],
        "resources": {"limits": {"memory": "64Mi"}},
    }
    create(plane, "large", large)
    ended = ends(plane, "large")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_probes_decide_what_is_ready_and_what_starts_again(plane: ControlPlane) -> None:
    server = f"exec {sys.executable} -m http.server 8080 --bind $IP"
    address = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    alive = {
        "exec": {"command": ["sh", "-c", "! test -e /shared/broken"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "timeoutSeconds": 20,
    }
    probes: Json = {
        "startupProbe": {
            "httpGet": {"port": 8080},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 60,
        },
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    shared = [{"name": "signals", "mountPath": "/shared"}]
    main = container(server, env=address, livenessProbe=alive, volumeMounts=shared, **probes)
    breaker = container("sleep 600", "breaker", volumeMounts=shared)
    create(
        plane, "probed", main, breaker, restartPolicy="Always", volumes=[{"name": "signals", "emptyDir": {}}]
    )

    def of_main(found: Json) -> Json:
        return next((each for each in found.get("containerStatuses", ()) if each["name"] == "main"), {})

    wait_for(plane, "probed", lambda found: bool(of_main(found).get("ready")), "ready")
    volume = next((plane.folder / "pods").glob("*/volumes/signals"))
    (volume / "broken").touch()
    wait_for(plane, "probed", lambda found: of_main(found)["restartCount"] == 1, "was started again")
    ended = of_main(status(plane, "probed"))["lastState"]["terminated"]
    assert ended["message"].startswith("liveness probe failed: its command ended with 1")
    (volume / "broken").unlink()
    wait_for(plane, "probed", lambda found: bool(of_main(found).get("ready")), "is ready again")
    plane.kubectl("delete", "pod", "probed")


def test_a_second_deletion_with_less_grace_shortens_the_first(plane: ControlPlane) -> None:
    stubborn = container("trap '' TERM; echo ready; while true; do sleep 0.1; done")
    hooked = container("sleep 600", "hooked", lifecycle={"preStop": {"sleep": {"seconds": 3000}}})
    create(plane, "stubborn", stubborn, hooked, terminationGracePeriodSeconds=3600)
    wait_until(
        lambda: "ready" in plane.kubectl("logs", "stubborn", "-c", "main", check=False).stdout,
        "it runs",
        _WAIT_S,
    )
    plane.kubectl("delete", "pod", "stubborn", "--grace-period=3600", "--wait=false")
    plane.kubectl(
        "delete", "pod", "stubborn", "--grace-period=1", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S
    )


def test_the_log_says_where_there_are_no_namespaces(plane: ControlPlane) -> None:
    log = (plane.folder / "logs" / "node-agent.log").read_text()
    assert ("namespaces.not_available" in log) is not namespaces.can_be_made()


def test_a_pod_has_its_host_name(plane: ControlPlane) -> None:
    namespaces.needs_namespaces()
    create(plane, "called", container("hostname; cat /proc/sys/kernel/hostname"))
    ends(plane, "called")
    assert logs(plane, "called") == "called\ncalled\n"


def test_ranks_find_each_other_by_the_names_of_their_service(plane: ControlPlane) -> None:
    namespaces.needs_namespaces()
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "ring"},
            "spec": {"clusterIP": "None", "selector": {"job-name": "ring"}},
        }
    )
    program = (
        "import os, socket, time\n"
        "rank, size = int(os.environ['JOB_COMPLETION_INDEX']), 4\n"
        "server = socket.create_server((socket.gethostbyname(socket.gethostname()), 7000))\n"
        "def send(to, number):\n"
        "    while True:\n"
        "        try:\n"
        "            with socket.create_connection((f'ring-{to}.ring', 7000), 5) as out: return "
        "out.sendall(str(number).encode())\n"
        "        except OSError: time.sleep(0.2)\n"
        "if rank: number = int(server.accept()[0].recv(100))\n"
        "else: number = 0\n"
        "send((rank + 1) % size, number + rank)\n"
        "if not rank: print('sum', server.accept()[0].recv(100).decode())\n"
    )
    pod = {
        "metadata": {"labels": {"job-name": "ring"}},
        "spec": {
            "subdomain": "ring",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "python", "command": ["python", "-c", program]}],
        },
    }
    spec = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "template": pod}
    plane.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ring"}, "spec": spec})
    plane.kubectl(
        "wait", "--for=condition=complete", "job/ring", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S
    )
    assert plane.kubectl("logs", "-l", "batch.kubernetes.io/job-completion-index=0").stdout == "sum 6\n"


def test_pods_of_an_agent_that_was_killed_fail_and_leave_nothing(plane: ControlPlane) -> None:
    init = [container("true", "first"), container("sleep 600", "sidecar", restartPolicy="Always")]
    create(
        plane,
        "lost",
        container("(setsid sleep 600 &); env -i setsid sleep 600 & sleep 600"),
        initContainers=init,
    )
    wait_for(plane, "lost", lambda found: found["phase"] == "Running", "runs")
    plane.restart_component(Component.NODE_AGENT, graceful=False)
    found = ends(plane, "lost")
    assert (found["phase"], found["reason"]) == ("Failed", "NodeAgentRestarted")
    uid = plane.client.get("/api/v1/namespaces/default/pods/lost")["metadata"]["uid"]
    assert marked(f"{plane.folder}/pods/{uid}") == []
    assert rooted(f"{plane.folder}/pods/{uid}") == []
    first, sidecar = found["initContainerStatuses"]
    said = plane.kubectl("logs", "lost", check=False).stderr
    assert (
        "container main of pod lost ran before the node agent was started again: "
        "its log went with the former agent"
    ) in said
    assert (first["state"]["terminated"]["exitCode"], sidecar["state"]["terminated"]["exitCode"]) == (0, 137)
    plane.kubectl("delete", "pod", "lost", f"--timeout={_WAIT_S}s", timeout_s=2 * _WAIT_S)
    create(plane, "next", container("echo works"))
    assert ends(plane, "next")["phase"] == "Succeeded"
    assert json.loads(plane.kubectl("get", "nodes", "-o", "json").stdout)["items"]
