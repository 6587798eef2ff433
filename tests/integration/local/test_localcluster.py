"""A plane as a person has it: started, found again, ended, interrupted and killed.
Whatever happens, no process of it stays behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fluxqueue.local.kubelet.children import MARK
from fluxqueue.local.localcluster import LocalCluster, NotRunning
from fluxqueue.local.processes import wait_until

# the second is the first, of a socket that also speaks IPv6
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
PROGRAM = str(Path(sys.executable).with_name("fluxqueue"))


@pytest.fixture(scope="module")
def folder(service_folder: Path) -> Iterator[Path]:
    """The data folder of a plane of two nodes; a test that needs it running calls `up`,
    which costs nothing if it is.
    """
    folder = service_folder / "cluster"
    yield folder
    run("down", folder, "--delete")


def run(command: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return subprocess.run(
        [PROGRAM, "local", command, "--dir", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


def up(folder: Path) -> str:
    done = run("up", folder, "--nodes", "2", "--nodes", "simulated")
    assert done.returncode == 0, done.stderr
    return done.stdout


def living(folder: Path) -> dict[int, str]:
    """Processes that work in the folder, or were told of it: pid -> command."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) == os.getpid():
            continue
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            place = (process / "cwd").readlink()
        except OSError:
            continue  # it ended, or is somebody else's
        if command and (str(folder) in command or place.is_relative_to(folder)):
            found[int(process.name)] = command[:120]
    return found


def until_nothing_lives(folder: Path) -> None:
    wait_until(lambda: not living(folder), f"the end of {living(folder)}", 30)


def test_a_cluster_outlives_its_command_and_the_second_up_finds_it(folder: Path) -> None:
    assert re.search(r"fluxqueue (is up|runs already)", up(folder))
    before = LocalCluster(folder).state
    assert "runs already" in up(folder)
    state = LocalCluster(folder).state
    assert state.pid == before.pid
    names = {process.name for process in state.processes}
    assert names >= {
        "postgres",
        "etcd",
        "kube-apiserver",
        "kube-scheduler",
        "kwok",
        "webhook",
        "queue",
        "fluxion",
    }
    assert {process.state for process in state.processes} == {"running"}


def test_status_env_and_logs_show_what_runs(folder: Path) -> None:
    up(folder)
    status = run("status", folder)
    assert status.returncode == 0
    assert re.search(r"^queue +\d+ +running +\d+ +\d+ +0$", status.stdout, re.MULTILINE), status.stdout
    assert re.search(r"^The dashboard: https://127\.0\.0\.1:\d+$", status.stdout, re.MULTILINE), status.stdout
    exports = run("env", folder).stdout
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{exports}\nkubectl get nodes -o name && psql=$DATABASE_URL && echo ${{#psql}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shell.stdout.splitlines()[:2] == ["node/node-1", "node/node-2"]
    assert "leadership.acquired" in run("logs", folder, "queue", "-n", "1000").stdout
    unknown = run("logs", folder, "etcdd")
    assert unknown.returncode == 1
    assert "the cluster has no 'etcdd': there are postgres, " in unknown.stderr


def test_our_programs_listen_on_this_machine_only(folder: Path) -> None:
    up(folder)
    ours = {process.port for process in LocalCluster(folder).state.processes if process.port is not None}
    assert len(ours) == 5
    found = listening()
    assert found.keys() >= ours
    assert {port: found[port] - LOOPBACK for port in ours if found[port] - LOOPBACK} == {}


def listening() -> dict[int, set[str]]:
    """The addresses, as proc(5) writes them, on which something listens at each TCP port of this machine."""
    found: dict[int, set[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            place, state = line.split()[1], line.split()[3]
            if state == "0A":
                address, _, port = place.partition(":")
                found.setdefault(int(port, 16), set()).add(address)
    return found


def test_a_killed_daemon_leaves_nothing_running_and_the_next_up_uses_its_cluster(folder: Path) -> None:
    up(folder)
    cluster = LocalCluster(folder)
    with closing(cluster.client) as client:
        client.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}})
    killed = cluster.state.pid
    os.kill(killed, signal.SIGKILL)
    until_nothing_lives(folder)
    wait_until(
        lambda: not cluster.running, "the lock of the killed daemon, which the last of its processes has", 30
    )
    assert not cluster.running
    with pytest.raises(NotRunning, match="start one with `fluxqueue local up`"):
        _ = cluster.state
    gone = run("status", folder)
    assert gone.returncode == 1
    assert f"no local cluster runs in {folder}" in gone.stderr
    assert "fluxqueue is up" in up(folder)
    again = LocalCluster(folder)
    assert again.state.pid != killed
    with closing(again.client) as client:
        assert client.find("/api/v1/namespaces/default/configmaps/kept") is not None
        client.request("DELETE", "/api/v1/namespaces/default/configmaps/kept")


def test_down_ends_the_pods_of_a_killed_agent_and_the_next_up_has_the_same_nodes(
    service_folder: Path,
) -> None:
    folder = service_folder / "processes"
    try:
        assert "1 nodes of processes" in run("up", folder, "--nodes", "1", "--nodes", "processes").stdout
        cluster = LocalCluster(folder)
        container = {"name": "main", "image": "sleep", "command": ["sh", "-c", "sleep 600 & wait"]}
        spec = {"nodeName": "node-1", "automountServiceAccountToken": False, "containers": [container]}
        with closing(cluster.client) as client:
            client.request(
                "POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "left"}, "spec": spec}
            )
        wait_until(lambda: len(marked(folder)) >= 2, "the processes of the pod", 60)
        daemon, agent = cluster.state.pid, cluster.process("node-agent").pid
        assert agent is not None
        os.kill(daemon, signal.SIGSTOP)  # else it would start the agent again
        os.kill(agent, signal.SIGKILL)
        os.kill(daemon, signal.SIGKILL)
        wait_until(
            lambda: not cluster.running,
            "the lock of the killed daemon, which the last of its processes has",
            30,
        )
        # the kernel ends the first process of a container with the agent, not what that has started
        assert marked(folder) != []
        assert run("down", folder).stdout == ""
        wait_until(lambda: not marked(folder), f"the end of {marked(folder)}", 30)
        assert "nodes of processes" in run("up", folder).stdout
    finally:
        run("down", folder, "--delete")
    assert marked(folder) == []


def marked(folder: Path) -> list[int]:
    """The processes of pods of a cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is somebody else's
            if f"{MARK}={folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def test_a_program_that_is_killed_is_started_again_and_counted(folder: Path) -> None:
    up(folder)
    cluster = LocalCluster(folder)
    before = cluster.process("fluxion")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_until(
        lambda: (
            (now := cluster.process("fluxion")).state == "running" and now.restarts == before.restarts + 1
        ),
        "fluxion again",
        30,
    )
    assert cluster.process("fluxion").pid != before.pid


def test_down_ends_everything_and_keeps_the_data_until_it_is_to_be_deleted(folder: Path) -> None:
    up(folder)
    assert run("down", folder).returncode == 0
    assert living(folder) == {}
    again = run("down", folder)
    assert (again.returncode, again.stdout) == (0, f"nothing runs in {folder}\n")
    assert (folder / "controlplane").exists()
    assert run("down", folder, "--delete").returncode == 0
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
@pytest.mark.parametrize("step", ["starting Postgres", "starting dashboard"])
def test_an_up_that_is_broken_off_leaves_nothing_running(
    step: str, number: signal.Signals, service_folder: Path
) -> None:
    folder = service_folder / "broken-off"
    command = [PROGRAM, "local", "up", "--dir", str(folder), "--nodes", "1"]
    log = folder / "daemon.log"
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as starting:
        wait_until(lambda: log.exists() and step in log.read_text(), f"{step!r} in {log}", 120)
        starting.send_signal(number)
        starting.wait(90)
    assert starting.returncode != 0
    until_nothing_lives(folder)
    assert not LocalCluster(folder).running
    LocalCluster(folder).down(delete=True)
