"""The configuration files of the programs of one machine: containerd, kubelet, kube-proxy and the pod
network.

They are as an installer of clusters writes them, with these differences: the kubelet reserves all memory
beyond what a node shall offer, so that several nodes on one computer do not promise the same memory, and it
keeps images, because they cannot be pulled again. Folders whose default lies outside the machine's own data
are set, so that nothing is written into the computer's file system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxqueue.local.nodes.layout import CONTROL_GROUP, DNS_ADDRESS, POD_NETWORK, Machine

__all__ = ["KERNEL_SETTINGS", "PAUSE_IMAGE", "NodeSize", "write_configuration"]

PAUSE_IMAGE = "localhost/pause:1"
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What the kubelet sets for the whole computer, unless it finds these values.
It is shown them, and the computer's stay as they are."""


@dataclass(frozen=True)
class NodeSize:
    """What each node offers.

    Attributes
    ----------
    memory_mib
        Allocatable memory, as far as the computer has it.
    pods
        How many pods.
    """

    memory_mib: int = 8 * 1024
    pods: int = 110


def write_configuration(machine: Machine, plane: Path, cni: Path, size: NodeSize) -> Path:
    """Write all files of a machine, and return their folder."""
    folder = machine.folder / "conf"
    (folder / "net.d").mkdir(parents=True, exist_ok=True)
    (folder / "sysctl").mkdir(exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd(machine, folder, cni))
    _write(folder / "net.d" / "10-pods.conflist", _pod_network(machine))
    _write(folder / "kubelet.yaml", _kubelet(machine, folder, plane, size))
    _write(folder / "proxy.yaml", _proxy(machine, plane))
    (folder / "resolv.conf").write_text("")
    for name, value in KERNEL_SETTINGS.items():
        (folder / "sysctl" / name.replace("/", ".")).write_text(f"{value}\n")
    return folder


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))  # JSON is YAML


def _containerd(machine: Machine, folder: Path, cni: Path) -> str:
    return f"""version = 3
[plugins.'io.containerd.internal.v1.opt']
  path = '{machine.folder}/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni}']
  conf_dir = '{folder}/net.d'
"""


def _pod_network(machine: Machine) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": machine.pods}]]},
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet(machine: Machine, folder: Path, plane: Path, size: NodeSize) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CONTROL_GROUP}/{machine.name}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane / "pki" / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(machine.folder / "volume-plugins"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "systemReserved": {"memory": f"{max(0, _memory_mib() - size.memory_mib)}Mi"},
        "nodeStatusUpdateFrequency": "5s",
        "maxPods": size.pods,
    }


def _proxy(machine: Machine, plane: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": machine.name,
        "clusterCIDR": f"{POD_NETWORK}.0.0/16",
        "clientConnection": {"kubeconfig": str(plane / "kube-proxy.kubeconfig")},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _memory_mib() -> int:
    total = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:")
    )
    return int(total.split()[1]) // 1024
