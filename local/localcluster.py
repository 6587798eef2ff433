"""A local cluster that outlives the command that started it, for ``fluxqueue local`` and the demo.

A `LocalCluster` belongs to a data folder. `up` finds the cluster that runs there or starts one (`daemon`),
`down` stops it. All other methods read the state that the daemon writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

from fluxqueue.local.apiserver_client import ApiServerClient, administrator_client
from fluxqueue.local.binaries import Binaries, Tool, find_binaries
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.daemon import DaemonState, RunningProcess, holds_lock, read_state
from fluxqueue.local.inprocess import RELEASE
from fluxqueue.local.kubelet.children import kill_marked
from fluxqueue.local.kubelet.limits import remove_groups
from fluxqueue.local.node_kinds import KINDS, PROCESSES, SIMULATED
from fluxqueue.local.operator_requests import write_queue_authority
from fluxqueue.local.user_folders import state_folder

__all__ = ["ClusterFailed", "LocalCluster", "NotRunning"]

_STOP_TIMEOUT_S = 60.0


class ClusterFailed(RuntimeError):
    """The cluster could not be started or stopped; the message says why."""


class NotRunning(RuntimeError):
    """No cluster runs in the data folder."""


class LocalCluster:
    """The cluster of a data folder, running or not.

    Parameters
    ----------
    folder
        By default `state_folder`.
    options
        Options for `up`; a running cluster keeps its own.
    """

    def __init__(self, folder: Path | None = None, options: ClusterOptions | None = None) -> None:
        self.folder = (folder or state_folder()).absolute()
        self.options = options or ClusterOptions()
        self._client: ApiServerClient | None = None

    @property
    def running(self) -> bool:
        """True if a cluster runs, or is being started, in the folder."""
        return holds_lock(self.folder)

    @property
    def kind_before(self) -> str:
        """What its nodes were when it was last up, of `KINDS`; empty if it never was.
        Its data is kept, and so is what its nodes are.
        """
        with contextlib.suppress(FileNotFoundError):
            kind = self._kind_file.read_text().strip()
            return kind if kind in KINDS else SIMULATED
        # of a version that had no other
        return SIMULATED if (self.folder / "controlplane" / "etcd").exists() else ""

    @property
    def node_count(self) -> int:
        """How many nodes the running cluster has."""
        return len(self.client.get("/api/v1/nodes")["items"])

    def _remember_kind(self) -> None:
        self._kind_file.write_text(f"{PROCESSES if self.options.processes else SIMULATED}\n")

    @property
    def kind_of_nodes(self) -> str:
        """What the nodes of the running cluster are, of `KINDS`."""
        return (
            PROCESSES if any(process.name == "node-agent" for process in self.state.processes) else SIMULATED
        )

    @property
    def _kind_file(self) -> Path:
        return self.folder / "kind-of-nodes"

    @property
    def state(self) -> DaemonState:
        """The state of the running cluster.

        Raises
        ------
        NotRunning
            No cluster runs, or it is not ready yet.
        """
        state = read_state(self.folder) if self.running else None
        if state is None:
            raise NotRunning(f"no local cluster runs in {self.folder}: start one with `fluxqueue local up`")
        if not state.ready:
            raise NotRunning(f"the cluster in {self.folder} is still starting: wait for `fluxqueue local up`")
        return state

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return Path(self.state.kubeconfig)

    @property
    def kubectl(self) -> Path:
        """The path of a kubectl with the version of the cluster."""
        return Path(self.state.kubectl)

    @property
    def dsn(self) -> str:
        """Connection string of the queue's database."""
        return self.state.dsn

    @property
    def fluxion_target(self) -> str:
        """``host:port`` of the matcher of the first queue replica."""
        return f"127.0.0.1:{self._port('fluxion')}"

    @property
    def queue_url(self) -> str:
        """The URL of metrics and doctor of the first queue replica."""
        return f"https://127.0.0.1:{self.process('queue').metrics_port}"

    @property
    def dashboard_url(self) -> str | None:
        """The URL of the dashboard; None if the chart's values do not enable it."""
        ports = [process.port for process in self.state.processes if process.name == "dashboard"]
        return f"https://127.0.0.1:{ports[0]}" if ports else None

    def write_queue_ca(self) -> Path:
        """Write the authority that signs the queue's certificate to a file, and return its path."""
        return write_queue_authority(self.client, self.folder / "queue-ca.crt", RELEASE)

    @property
    def client(self) -> ApiServerClient:
        """A client of the API server, as administrator."""
        if self._client is None:
            self._client = administrator_client(self.folder / "controlplane")
        return self._client

    def up(
        self,
        *,
        report: Callable[[str], None] | None = None,
        find: Callable[[], Binaries] = find_binaries,
        timeout_s: float = 300,
    ) -> bool:
        """Start the cluster, unless it runs.

        Parameters
        ----------
        report
            Called for each step.
        find
            Finds, or builds, the Kubernetes programs.
        timeout_s
            Time limit of the start, without the build of programs.

        Returns
        -------
        bool
            True if it was started, false if it was running.

        Raises
        ------
        ClusterFailed
            With the reason. No process is left then, nor after a KeyboardInterrupt.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            remedy = "name another folder with --dir, or set XDG_STATE_HOME to one that can be written"
            raise ClusterFailed(
                f"the cluster's data cannot be kept in {self.folder}: {error.strerror}; {remedy}"
            ) from None
        if self.running:
            self._wait_for_other_start(timeout_s)
            return False
        (self.folder / "state.json").unlink(missing_ok=True)  # of a cluster that was killed
        binaries = find()
        if not self.kind_before:
            self._remember_kind()  # a first start that is broken off may leave nodes
        daemon = self._spawn(binaries)
        assert daemon.stdout is not None
        try:
            self._follow(daemon.stdout, report or (lambda _: None), time.monotonic() + timeout_s)
        except BaseException:
            self._end(daemon.pid)
            daemon.wait()
            raise
        finally:
            daemon.stdout.close()
        self._remember_kind()
        daemon.returncode = 0  # it continues to run detached; this suppresses Popen's warning
        return True

    def down(self, *, delete: bool = False) -> bool:
        """Stop the cluster.

        Returns
        -------
        bool
            True if a cluster was running, or processes of its pods were left.

        Raises
        ------
        ClusterFailed
            It does not end.
        """
        if self._client is not None:
            self._client.close()
            self._client = None
        ran = self.running
        if ran:
            state = read_state(self.folder)
            if state is None:
                raise ClusterFailed(
                    f"a cluster runs in {self.folder}, but its process is unknown: "
                    "end the process that holds the lock file"
                )
            self._end(state.pid)
        elif (pods := self.folder / "controlplane" / "pods").exists():
            # of daemon and agent that were killed, so nobody ended them
            ran = kill_marked(str(pods)) > 0
            remove_groups(pods)
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "state.json").unlink()
        if delete:
            from fluxqueue.local.inprocess import InProcessCluster

            InProcessCluster(self.folder).destroy()
        return ran

    def process(self, name: str) -> RunningProcess:
        """Return a process of the running cluster by its name.

        Raises
        ------
        NotRunning
            There is no such process; the message lists all names.
        """
        processes = {process.name: process for process in self.state.processes}
        if name not in processes:
            raise NotRunning(f"the cluster has no {name!r}: there are {', '.join(processes)}")
        return processes[name]

    def _port(self, name: str) -> int:
        port = self.process(name).port
        if port is None:
            raise NotRunning(f"{name} of the cluster in {self.folder} listens on no port")
        return port

    def _wait_for_other_start(self, timeout_s: float) -> None:
        """Wait until a concurrent ``up`` has finished."""
        deadline = time.monotonic() + timeout_s
        while not ((state := read_state(self.folder)) and state.ready):
            if not self.running:
                raise ClusterFailed(
                    f"the cluster that was being started in {self.folder} ended: "
                    f"see {self.folder / 'daemon.log'}"
                )
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"a cluster is being started in {self.folder} since {timeout_s:g} s: "
                    f"see {self.folder / 'daemon.log'}"
                )
            time.sleep(0.1)

    def _spawn(self, binaries: Binaries) -> subprocess.Popen[str]:
        request = {
            "folder": str(self.folder),
            "options": asdict(self.options),
            "binaries": {tool.name: str(binaries[tool]) for tool in Tool},
            "kubernetes": binaries.kubernetes,
        }
        with (self.folder / "daemon.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from fluxqueue.local.main import serve; raise SystemExit(serve())",
                    json.dumps(request),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=self.folder,
            )

    def _follow(self, progress: IO[str], report: Callable[[str], None], deadline: float) -> None:
        for line in progress:
            message = json.loads(line)
            if "failed" in message:
                raise ClusterFailed(message["failed"])
            if "ready" in message:
                return
            report(message["step"])
            if time.monotonic() > deadline:
                raise ClusterFailed(f"the cluster is not ready in time: see {self.folder / 'daemon.log'}")
        raise ClusterFailed(f"the cluster's daemon ended while starting: see {self.folder / 'daemon.log'}")

    def _end(self, pid: int) -> None:
        """End the daemon and wait for its end; it releases its lock shortly before."""
        try:
            daemon = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            for number, patience_s in ((signal.SIGTERM, _STOP_TIMEOUT_S), (signal.SIGKILL, 10.0)):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(daemon, number)
                if select.select([daemon], [], [], patience_s)[0]:
                    return
        finally:
            os.close(daemon)
        raise ClusterFailed(f"process {pid} of the cluster in {self.folder} does not end")
