"""Work of every kind in real containers: where it runs, how it ends, and what kubectl shows of it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.builders import Json
from support.end_to_end import wrong
from support.real_nodes import NodeStage

from fluxqueue.api.fluxjobs import Outcome, Reason, State
from fluxqueue.api.hostlists import decode
from fluxqueue.local.binaries import Tool
from fluxqueue.local.ports import free_port

GROUP = {"fluxqueue/pod-group": "pair"}


def ended(pod: Json) -> Json:
    """Return how the container of a pod ended."""
    state: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def pods_of(stage: NodeStage, job: str) -> list[Json]:
    found: list[Json] = stage.real.get(
        "pods", "-n", stage.namespace, "-l", f"batch.kubernetes.io/job-name={job}"
    )["items"]
    return found


def grouped(stage: NodeStage, name: str) -> Json:
    pod: Json = stage.make_pod(name, "sleep 2; hostname")
    pod["metadata"] |= {"labels": GROUP, "annotations": {"fluxqueue/pod-group-size": "2"}}
    return pod


def test_work_of_every_kind_runs_on_exactly_its_nodes(stage: NodeStage) -> None:
    stage.apply(
        stage.make_job("one", "echo 42"),
        stage.make_job("gang", "sleep 2", pods=4),
        stage.make_pod("bare", "echo bare"),
    )
    stage.apply(stage.make_deployment("service", 2, "sleep 600"))
    assert wrong(stage.until_settled(120)) == []
    assert stage.logs("job/one") == "42\n"
    assert stage.logs("bare") == "bare\n"
    stage.until_consistent()


def test_a_pod_group_starts_when_its_last_pod_is_there(stage: NodeStage) -> None:
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(grouped(stage, "left")))
    stage.until(
        "the group waits",
        lambda: [one.status.reason for one in stage.fluxjobs()] == [Reason.WAITING_FOR_GROUP],
    )
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(grouped(stage, "right")))
    stage.kubectl(
        "wait", "pod/left", "pod/right", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s"
    )
    stage.until(
        "the group has ended", lambda: [one.status.state for one in stage.fluxjobs()] == [State.COMPLETED]
    )
    (fluxjob,) = stage.fluxjobs()
    placed = [
        stage.real.get("pod", name, "-n", stage.namespace)["spec"]["nodeName"] for name in ("left", "right")
    ]
    assert Counter(placed) == Counter(decode(fluxjob.status.nodes))
    assert stage.logs("left") == "left\n"
    stage.kubectl("delete", "pod", "left", "right", "--wait=true", "--timeout=60s")
    stage.until_consistent()


def test_exit_codes_are_those_of_the_processes(stage: NodeStage) -> None:
    stage.apply(
        stage.make_job("good", "exit 0"), stage.make_job("bad", "exit 1"), stage.make_job("other", "exit 77")
    )
    stage.apply(stage.make_job("hungry", "exec python -c 'print(len(bytearray(512 * 2**20)))'"))
    codes = {}
    for name, state in (
        ("good", State.COMPLETED),
        ("bad", State.FAILED),
        ("other", State.FAILED),
        ("hungry", State.FAILED),
    ):
        row = stage.until_state(name, state, 90)
        assert row.fluxjob is not None
        codes[name] = (row.fluxjob.status.outcome, ended(pods_of(stage, name)[0])["exitCode"])
    failed = Outcome.FAILED
    assert codes == {
        "good": (Outcome.SUCCEEDED, 0),
        "bad": (failed, 1),
        "other": (failed, 77),
        "hungry": (failed, 137),
    }
    assert ended(pods_of(stage, "hungry")[0])["reason"] == "OOMKilled"
    stage.until_consistent()


def test_a_job_beyond_its_deadline_is_ended(stage: NodeStage) -> None:
    stage.apply(stage.make_job("late", "sleep 600", activeDeadlineSeconds=5))
    row = stage.until_state("late", State.FAILED, 90)
    assert row.fluxjob is not None
    assert row.fluxjob.status.outcome == Outcome.FAILED
    assert (
        "DeadlineExceeded"
        in stage.kubectl("get", "job", "late", "-o", "jsonpath={.status.conditions[*].reason}").stdout
    )
    stage.until_consistent()


def test_logs_exec_and_port_forward_reach_a_running_pod(stage: NodeStage) -> None:
    stage.apply(
        stage.make_pod(
            "server", "cd /tmp && echo hello >index.html && echo serving && exec python -m http.server 8000"
        )
    )
    stage.until_state("server", State.RUNNING, 60)
    stage.until("the server has said so", lambda: "serving" in stage.logs("server"))
    assert stage.kubectl("exec", "server", "--", "cat", "/tmp/index.html").stdout == "hello\n"
    with (
        forwarded(stage, "pod/server", 8000) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/index.html", timeout=30) as answer,
    ):
        assert answer.read() == b"hello\n"


@contextlib.contextmanager
def forwarded(stage: NodeStage, target: str, port: int) -> Iterator[int]:
    """Forward a free port of this computer to a port of a pod."""
    local = free_port()
    nodes = stage.real.nodes
    command: list[str | Path] = [
        nodes.binaries[Tool.KUBECTL],
        "-n",
        stage.namespace,
        "port-forward",
        target,
        f"{local}:{port}",
    ]
    with subprocess.Popen(
        command, env=nodes.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            stage.until("the port is forwarded", lambda: _listens(local), 20)
            yield local
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
