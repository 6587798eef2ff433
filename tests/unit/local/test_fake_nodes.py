"""What nodes of a local cluster say of themselves after they were others."""

from typing import Any, cast

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.fake_nodes import FakeNodes, FakeNodeShape, node_object
from fluxqueue.local.kubelet.machine import node_info


class Server:
    """Has nodes, and keeps what is patched."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = nodes
        self.patched: dict[str, Any] = {}

    def get(self, path: str) -> Any:
        assert path == "/api/v1/nodes"
        return {"items": self.nodes}

    def request(self, verb: str, path: str, body: Any) -> None:
        assert verb == "PATCH"
        self.patched[path] = body


def test_nodes_that_ran_processes_say_that_they_are_simulated_now() -> None:
    shape = FakeNodeShape()
    ran, simulated = node_object(2, shape), node_object(3, shape)
    ran["status"]["nodeInfo"] = node_info("v1.36.3")
    server = Server(ran, simulated)
    FakeNodes(cast(ApiServerClient, server), shape).simulate()
    status = server.patched.pop("/api/v1/nodes/node-2/status")["status"]
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("kwok://")
    assert status["addresses"][0] == {"type": "InternalIP", "address": "10.128.0.2"}
    assert status["daemonEndpoints"] is None, "its kubelet listens nowhere"
    assert server.patched == {}
