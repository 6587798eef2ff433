"""A cluster of real nodes, from nothing to nodes that are Ready with names and volumes, and back.

`NodeCluster.up` finds the cluster that runs, or starts one. It builds nothing: programs and images are given.
`NodeCluster.down` ends only the machines that `up` wrote down, and removes the network link and the control
groups. Settings, firewall and mounts of the computer are never changed. Data of the nodes (images, volumes,
the state of the control plane) stays for the next start, unless it is deleted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from fluxqueue.local.apiserver_client import ApiServerClient, administrator_client
from fluxqueue.local.binaries import Binaries, BinariesError, Tool, find_binaries, locked
from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR
from fluxqueue.local.nodes import addons, control_groups, machines, requirements, wiring
from fluxqueue.local.nodes.archives import write_archive
from fluxqueue.local.nodes.configuration import PAUSE_IMAGE, NodeSize, write_configuration
from fluxqueue.local.nodes.layout import NETWORK, Machine, NodeLayout
from fluxqueue.local.nodes.machines import MachineError, RunningMachine
from fluxqueue.local.nodes.programs import NodeProgram
from fluxqueue.local.processes import NotReady, wait_until

__all__ = ["NodeCluster"]

_CONTAINERD = ("-n", "k8s.io")
_GROUPS_TIMEOUT_S = 10
_LOG_END = 600
_IMPORT_TIMEOUT_S = 600


class NodeCluster:
    """The cluster of real nodes of this computer, running or not."""

    def __init__(self, layout: NodeLayout | None = None, size: NodeSize | None = None) -> None:
        self.layout = layout or NodeLayout()
        self._size = size or NodeSize()

    @property
    def running(self) -> list[RunningMachine]:
        """The machines that run."""
        return machines.read_running(self.layout)

    @property
    def nodes(self) -> list[Machine]:
        """The machines that run, as nodes."""
        return [self.layout.machine(machine.number) for machine in self.running]

    @cached_property
    def binaries(self) -> Binaries:
        """The programs of the control plane."""
        return find_binaries(minor=DEFAULT_MINOR)

    @cached_property
    def client(self) -> ApiServerClient:
        """A client of the API server, as administrator."""
        return administrator_client(self.layout.plane, f"{NETWORK}.1")

    def environment(self) -> dict[str, str]:
        """Return an environment in which kubectl and helm use this cluster as administrator."""
        folder = self.layout.folder
        helm = {
            f"HELM_{kind}_HOME": str(folder / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        return {
            **os.environ,
            "KUBECONFIG": str(self.layout.kubeconfig),
            "KUBECACHEDIR": str(folder / "kubectl-cache"),
            **helm,
        }

    def up(
        self,
        count: int,
        programs: Path,
        report: Callable[[str], None] = lambda _: None,
        timeout_s: float = 180,
    ) -> bool:
        """Start machines and wait until every node is Ready and names work; return false if they run already.

        Raises
        ------
        CannotRunNodes
            The computer lacks something.
        MachineError
            Machines cannot be started or connected; what was started is ended.
        """
        self.layout.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.layout.folder / "lock", timeout_s):
            if running := self.running:
                if len(running) == count:
                    return False
                raise MachineError(
                    f"{len(running)} machines run in {self.layout.folder}: "
                    "end them with `fluxqueue local nodes down` first"
                )
            if obstacle := requirements.node_obstacle():
                raise requirements.CannotRunNodes(obstacle)
            try:
                report(f"starting {count} machines and the control plane")
                self._start(count, programs)
                self._wait_for_nodes(count, timeout_s)
                report("waiting for names and volumes")
                self._complete(programs, timeout_s)
            except BaseException:
                self._end()
                raise
        return True

    def down(self, *, delete: bool = False) -> bool:
        """End the machines; return false if none run.

        Raises
        ------
        MachineError
            A machine does not end, or control groups are left.
        """
        if not self.layout.folder.exists():
            return False
        ran = bool(self.running)
        with locked(self.layout.folder / "lock", 60):
            if self.layout.state.exists():
                self._end()
        if delete:
            shutil.rmtree(self.layout.folder, ignore_errors=True)
        return ran

    def load(self, archives: Iterable[Path]) -> None:
        """Import image archives into every machine, into all at once;
        an archive that a machine has is skipped.
        """
        wanted = list(archives)
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(self._load_into, machine, wanted) for machine in self.running]:
                done.result()

    def _load_into(self, machine: RunningMachine, archives: Iterable[Path]) -> None:
        imported = self.layout.machine(machine.number).folder / "imported"
        imported.mkdir(exist_ok=True)
        for archive in archives:
            mark, written = imported / archive.name, archive.stat().st_mtime_ns
            if not mark.exists() or mark.stat().st_mtime_ns != written:
                machines.run_inside(
                    machine,
                    self._ctr,
                    *_CONTAINERD,
                    "images",
                    "import",
                    "--local",
                    archive,
                    timeout_s=_IMPORT_TIMEOUT_S,
                )
                mark.touch()
                os.utime(mark, ns=(written, written))

    def kubectl(
        self, *words: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator.

        Raises
        ------
        MachineError
            ``check`` is set and it failed; with its error output.
        """
        return self._run([self.binaries[Tool.KUBECTL], *words], stdin, check, timeout_s)

    def helm(
        self, *words: str | Path, stdin: str | None = None, check: bool = True, timeout_s: float = 400
    ) -> subprocess.CompletedProcess[str]:
        """Run helm as administrator.

        Raises
        ------
        MachineError
            ``check`` is set and it failed; with its error output.
        """
        return self._run([self.binaries[Tool.HELM], *words], stdin, check, timeout_s)

    def stop_program(self, node: str, program: NodeProgram) -> None:
        """Kill a program of a node, and keep it stopped until `continue_program`."""
        machine = self._machine(node)
        machines.stop_program(machine, self.layout.machine(machine.number).folder, program.value)

    def continue_program(self, node: str, program: NodeProgram) -> None:
        """Let a stopped program of a node start again."""
        machines.continue_program(self.layout.machine(self._machine(node).number).folder, program.value)

    @property
    def _ctr(self) -> Path:
        return Path((self.layout.folder / "programs").readlink() / NodeProgram.CTR.value)

    def _machine(self, node: str) -> RunningMachine:
        found = {self.layout.machine(machine.number).name: machine for machine in self.running}
        if node not in found:
            raise MachineError(f"no machine {node} runs: there are {', '.join(found) or 'none'}")
        return found[node]

    def _run(
        self, command: list[str | Path], stdin: str | None, check: bool, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        source: Mapping[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done = subprocess.run(
            command,
            **source,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.environment(),
            cwd="/",
        )
        if check and done.returncode != 0:
            line = " ".join(map(str, [Path(command[0]).name, *command[1:]]))
            raise MachineError(f"{line[:300]} ended with {done.returncode}: {done.stderr.strip()[-1_500:]}")
        return done

    def _start(self, count: int, programs: Path) -> None:
        binaries = self.binaries
        if missing := [tool.common_name for tool in Tool if not binaries[tool].exists()]:
            raise BinariesError(f"programs of the control plane are gone: {', '.join(missing)}")
        cni = requirements.cni_folder()
        assert cni is not None  # node_obstacle has said so
        link = self.layout.folder / "programs"
        link.unlink(missing_ok=True)
        link.symlink_to(programs)
        self.layout.plane.mkdir(mode=0o700, exist_ok=True)
        nodes = [self.layout.machine(number) for number in range(1, count + 1)]
        started: dict[Machine, RunningMachine] = {}
        for node in nodes:
            write_configuration(node, self.layout.plane, cni, self._size)
            (self.layout.plane / f"{node.name}.kubeconfig").unlink(missing_ok=True)
            write_archive(node.folder / "pause.tar", PAUSE_IMAGE, programs / NodeProgram.PAUSE.value)
            control_groups.make_groups(node.name)
            first = self._plane_command(nodes) if node is nodes[0] else ()
            started[node] = machines.start_machine(node, programs, self.layout.plane, first)
            machines.write_running(self.layout, list(started.values()))
        wiring.connect(started)

    def _plane_command(self, nodes: Sequence[Machine]) -> list[str | Path]:
        module = "fluxqueue.local.nodes.plane"
        return [
            sys.executable,
            "-P",
            "-m",
            module,
            self.layout.plane,
            nodes[0].address,
            *(node.name for node in nodes),
        ]

    def _wait_for_nodes(self, count: int, timeout_s: float) -> None:
        try:
            wait_until(
                lambda: self._all_alive(count) and self._reachable(),
                "the control plane ready",
                timeout_s,
                0.2,
            )
        except NotReady as error:
            log = self.layout.machine(1).folder / "log" / "plane.log"
            said = log.read_text(errors="replace")[-_LOG_END:] if log.exists() else "nothing"
            raise MachineError(f"{error}; {log} ends with:\n{said}") from None
        wait_until(
            lambda: self._all_alive(count) and self._ready_nodes() >= count,
            f"{count} nodes Ready ({self._logs})",
            timeout_s,
            0.2,
        )

    def _all_alive(self, count: int) -> bool:
        if len(self.running) < count:
            raise MachineError(f"a machine ended while it was starting: see {self._logs}")
        return True

    @property
    def _logs(self) -> str:
        return f"{self.layout.folder}/n*/log"

    def _reachable(self) -> bool:
        if not (self.layout.plane / "port").exists() or not self.layout.kubeconfig.exists():
            return False
        return (
            self.client.reachable("/readyz")
            and self.client.find("/api/v1/namespaces/default/serviceaccounts/default") is not None
        )

    def _ready_nodes(self) -> int:
        ready = 0
        for node in self.client.get("/api/v1/nodes")["items"]:
            conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
            ready += conditions.get("Ready") == "True"
        return ready

    def _complete(self, programs: Path, timeout_s: float) -> None:
        coredns = self.layout.folder / "coredns.tar"
        write_archive(coredns, addons.COREDNS_IMAGE, programs / NodeProgram.COREDNS.value)
        self.load([coredns])
        addons.apply_coredns(self.client)
        addons.make_volumes(self.client, self.nodes)
        wait_until(lambda: addons.names_work(self.client), f"CoreDNS ready ({self._logs})", timeout_s, 0.2)

    def _end(self) -> None:
        for machine in reversed(self.running):
            machines.end_machine(machine)
        wiring.disconnect()
        self.layout.state.unlink(missing_ok=True)
        if "client" in self.__dict__:
            self.client.close()
            del self.client
        try:
            wait_until(
                lambda: not control_groups.remove_groups(),
                "the control groups removed",
                _GROUPS_TIMEOUT_S,
                0.2,
            )
        except NotReady:
            left = ", ".join(control_groups.remove_groups())
            raise MachineError(
                f"the control groups {left} cannot be removed: a process outside the machines is in them"
            ) from None
