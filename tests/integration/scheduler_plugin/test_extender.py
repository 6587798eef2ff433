"""kube-scheduler with our extender: real kube-scheduler, real API server, our scheduler program."""

from __future__ import annotations

import datetime as dt
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.builders import PodBuilder, make_pod
from support.scheduler_processes import WAIT_S, Room, SchedulerProcess

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import write_pair
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.ports import free_port
from fluxqueue.local.processes import wait_until
from fluxqueue.scheduler_plugin.extender.decisions import RESERVED

NewNode = Callable[..., str]
PIN = {"key": "metadata.name", "operator": "In"}
BOUND = 'fluxqueue_extender_requests_total{result="done",verb="bind"}'
RELOADED = 'fluxqueue_extender_certificate_reloads_total{result="loaded"}'


@dataclass
class Extender:
    """A scheduler that serves the extender, and the kube-scheduler that calls it."""

    cluster: ControlPlane
    folder: Path
    port: int
    authority: Pair
    process: SchedulerProcess

    @classmethod
    def serving(cls, cluster: ControlPlane, folder: Path) -> Extender:
        port, authority = free_port(), make_authority("extender", dt.datetime.now(dt.UTC))
        arguments = [
            "--extender-port",
            str(port),
            "--extender-cert-dir",
            str(folder / "tls"),
            "--extender-client-ca",
            str(cluster.authority),
        ]
        process = SchedulerProcess(
            cluster.kubeconfig, folder, "extender", lease="extender", arguments=arguments
        )
        extender = cls(cluster, folder, port, authority, process)
        (folder / "ca.crt").write_bytes(authority.certificate)
        extender.renew()
        process.start()
        return extender

    def renew(self) -> None:
        """Replace its certificate as the kubelet does."""
        now = dt.datetime.now(dt.UTC)
        write_pair(
            self.folder / "tls", issue_leaf(self.authority, ServingNames(addresses=("127.0.0.1",)), now), now
        )

    def configure(self, **settings: Any) -> None:
        """Start kube-scheduler with the documented configuration."""
        pki = self.cluster.folder / "pki"
        tls = {
            "caFile": self.folder / "ca.crt",
            "certFile": pki / "scheduler.crt",
            "keyFile": pki / "scheduler.key",
        }
        extender = {
            "urlPrefix": f"https://127.0.0.1:{self.port}/v1",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 10,
            "enableHTTPS": True,
            "tlsConfig": {name: str(path) for name, path in tls.items()},
            "httpTimeout": "5s",
            "nodeCacheCapable": True,
            "ignorable": False,
        }
        self.cluster.configure_scheduler(extenders=[extender | settings])

    def reloads(self) -> float:
        return self.process.metrics()[RELOADED]

    def has_reloaded(self, times: float) -> bool:
        return self.reloads() >= times

    def binds(self) -> float:
        return self.process.metrics().get(BOUND, 0)


@pytest.fixture(scope="module")
def extender(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    running = Extender.serving(control_plane, tmp_path_factory.mktemp("extender"))
    running.configure()
    yield running
    running.process.stop()
    control_plane.configure_scheduler()


def released(name: str, node: str, *, gang: int = 0, cpu: str = "1") -> PodBuilder:
    """A pod of kube-scheduler, as the queue releases it."""
    pod = pending(name, cpu).required_terms({"matchFields": [{**PIN, "values": [node]}]})
    pod = pod.annotation("fluxqueue/allocation", "7").annotation("fluxqueue/fluxion-nodes", node)
    return pod.annotation("fluxqueue/gang-size", str(gang)) if gang else pod


def pending(name: str, cpu: str = "1", node: str = "") -> PodBuilder:
    """A foreign pod, which may select a node."""
    pod = make_pod(name).cpu(cpu).with_("spec.terminationGracePeriodSeconds", 0).without("metadata.namespace")
    return pod.with_("spec.nodeSelector", {"kubernetes.io/hostname": node}) if node else pod


def cordon(cluster: ControlPlane, node: str, on: bool = True) -> None:
    cluster.client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on}})


def test_our_pod_goes_to_its_node_and_the_extender_binds_it(extender: Extender, room: Room) -> None:
    before = extender.binds()
    room.create(released("ours", "node-3"))
    room.wait_bound("ours", "node-3")
    wait_until(lambda: extender.binds() > before, "counted", WAIT_S)
    wait_until(lambda: bool(room.events("ours", "Scheduled")), "kube-scheduler's Event", WAIT_S)


def test_a_gang_with_one_blocked_member_starts_only_when_all_can(
    extender: Extender, room: Room, new_node: NewNode
) -> None:
    nodes = [new_node(cpu="2") for _ in range(3)]
    cordon(extender.cluster, nodes[1])
    for rank, node in enumerate(nodes):
        room.create(released(f"g{rank}", node, gang=3))
    room.wait_condition("g0", "Unschedulable", f"pod g1 cannot start: node {nodes[1]} is cordoned")
    room.wait_condition("g2", "Unschedulable", f"pod g1 cannot start: node {nodes[1]} is cordoned")
    room.wait_condition("g1", "Unschedulable")
    assert [room.node_of(f"g{rank}") for rank in range(3)] == ["", "", ""]
    assert any(
        "starts with the others of its group" in event["message"]
        for event in room.events("g0", "FailedScheduling")
    )
    cordon(extender.cluster, nodes[1], False)
    for rank, node in enumerate(nodes):
        room.wait_bound(f"g{rank}", node)


def test_a_gang_waits_for_its_last_pod(extender: Extender, room: Room, new_node: NewNode) -> None:
    nodes = [new_node(cpu="2") for _ in range(2)]
    room.create(released("g0", nodes[0], gang=2))
    room.wait_condition("g0", "Unschedulable", "1 of 2 pods of allocation 7 are released so far")
    room.create(released("g1", nodes[1], gang=2))
    room.wait_bound("g1", nodes[1])
    room.wait_bound("g0", nodes[0])


def test_other_pods_do_not_get_reserved_capacity_until_it_is_free(
    extender: Extender, room: Room, new_node: NewNode
) -> None:
    node = new_node(cpu="2")
    room.create(released("ours", node, cpu="1500m").gate("example.com/licence"))
    room.create(pending("small", "100m", node))
    room.wait_bound("small", node)
    room.create(pending("other", "1", node))
    room.wait_condition("other", "Unschedulable", RESERVED)
    room.ungate("ours")
    room.wait_bound("ours", node)
    room.wait_condition("other", "Unschedulable", "Insufficient cpu")
    extender.cluster.client.request("DELETE", f"{room.path}/pods/ours")
    room.wait_bound("other", node)


def test_a_certificate_is_renewed_under_load_without_a_failure(extender: Extender, room: Room) -> None:
    reloads = extender.reloads()
    names = [f"p{number}" for number in range(60)]
    for number, name in enumerate(names):
        if number % 20 == 10:
            extender.renew()
            reloads += 1
            wait_until(partial(extender.has_reloaded, reloads), "reloaded", WAIT_S)
        room.create(released(name, f"node-{number % 8 + 1}", cpu="10m"))
    for number, name in enumerate(names):
        room.wait_bound(name, f"node-{number % 8 + 1}")
    events = extender.cluster.client.get(f"{room.path}/events", fieldSelector="reason=FailedScheduling")[
        "items"
    ]
    assert not events, [event["message"] for event in events]


def test_only_clients_with_a_certificate_are_served(extender: Extender) -> None:
    context = ssl.create_default_context(cafile=str(extender.folder / "ca.crt"))
    request = urllib.request.Request(f"https://127.0.0.1:{extender.port}/v1/bind", b"{}", method="POST")
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(request, timeout=30, context=context)
    pki = extender.cluster.folder / "pki"
    context.load_cert_chain(pki / "scheduler.crt", pki / "scheduler.key")
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        assert b"cannot be read" in answer.read()


def test_without_the_extender_nothing_starts_unless_it_may_be_ignored(extender: Extender, room: Room) -> None:
    extender.process.process.stop()
    room.create(released("ours", "node-2"))
    room.create(pending("other"))
    room.wait_condition("ours", "SchedulerError", "connection refused")
    room.wait_condition("other", "SchedulerError", "connection refused")
    extender.process.start()
    room.wait_bound("ours", "node-2")
    wait_until(lambda: room.node_of("other") != "", "bound", WAIT_S)

    extender.configure(ignorable=True, nodeCacheCapable=False)
    before = extender.binds()
    room.create(released("whole-nodes", "node-3"))
    room.wait_bound("whole-nodes", "node-3")
    wait_until(lambda: extender.binds() > before, "counted", WAIT_S)
    extender.process.process.stop()
    room.create(released("alone", "node-4"))
    room.wait_bound("alone", "node-4")
    extender.process.start()
    extender.configure()
