"""The control plane of real nodes: a program that runs inside the first machine.

It is that of `fluxqueue.local.controlplane` with these differences: the API server listens where the other
machines are, writes its address into the Service ``kubernetes`` and speaks to kubelets; the controllers of
volumes run; there is no kwok.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.local.binaries import Binaries, BinariesError, find_binaries
from fluxqueue.local.components import Component, ControlPlaneOptions
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.kubeconfigs import write_certificate_kubeconfig
from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR
from fluxqueue.local.nodes.layout import API_SERVER_PORT
from fluxqueue.local.pki import Authority
from fluxqueue.local.processes import ProcessError
from fluxqueue.local.supervision import RestartBackoff

__all__ = ["NodePlane", "main"]

_ROUND_S = 1
_PROXY = "kube-proxy"
_KUBELET_CLIENT = "kubelet-client"


class NodePlane(ControlPlane):
    """A control plane whose nodes are real.

    Parameters
    ----------
    folder
        Folder of certificates, state and logs.
    address
        The address of the first machine.
    node_names
        Nodes that get a kubeconfig.
    binaries
        The programs; by default they are found, or built.
    """

    def __init__(
        self, folder: Path, address: str, node_names: Sequence[str], binaries: Binaries | None = None
    ) -> None:
        pki = folder.absolute() / "pki"
        flags = [
            "--bind-address=0.0.0.0",
            f"--advertise-address={address}",
            "--endpoint-reconciler-type=lease",
            f"--kubelet-client-certificate={pki / f'{_KUBELET_CLIENT}.crt'}",
            f"--kubelet-client-key={pki / f'{_KUBELET_CLIENT}.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]
        options = ControlPlaneOptions(api_server_flags=flags, volumes=True, audit=True)
        super().__init__(folder, nodes=0, options=options, binaries=binaries)
        self._host = address
        self._node_names = tuple(node_names)

    def _node_programs(self) -> tuple[Component, ...]:
        return ()  # its kubelets run on the machines

    def _issue_certificates(self, authority: Authority) -> None:
        super()._issue_certificates(authority)
        authority.issue_client(_KUBELET_CLIENT, "kube-apiserver-kubelet-client", ["system:masters"])
        authority.issue_client(_PROXY, "system:kube-proxy")
        for name in self._node_names:
            authority.issue_client(name, f"system:node:{name}", ["system:nodes"])

    def _write_kubeconfigs(self) -> None:
        super()._write_kubeconfigs()
        for name in (_PROXY, *self._node_names):
            write_certificate_kubeconfig(
                self.folder / f"{name}.kubeconfig", self.server, self.authority, self._pair(name)
            )

    def _choose_port(self, *, fresh: bool) -> int:
        return API_SERVER_PORT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the control plane until SIGTERM; a component that ends is started again."""
    parser = argparse.ArgumentParser(prog="plane")
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    parser.add_argument("nodes", nargs="+")
    arguments = parser.parse_args(argv)
    os.umask(0o022)
    plane = NodePlane(
        arguments.folder, arguments.address, arguments.nodes, find_binaries(minor=DEFAULT_MINOR)
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    backoffs = {component: RestartBackoff() for component in Component}
    try:
        plane.start()
        print(f"ready: {plane.server}", flush=True)
        while True:
            for component in plane.processes:
                if plane.died(component) and backoffs[component].may_restart(time.monotonic()):
                    print(f"{component.value} ended: starting it again", flush=True)
                    plane.start_component(component)
            time.sleep(_ROUND_S)
    except (BinariesError, ProcessError) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    finally:
        plane.stop()


if __name__ == "__main__":
    sys.exit(main())
