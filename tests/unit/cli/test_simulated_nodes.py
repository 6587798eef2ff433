import pytest
from support.plugin_server import PluginServer

from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.cli.simulated_nodes import simulated_nodes, why_nothing_runs

REAL = {
    "metadata": {"name": "node-1"},
    "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1"}},
}
KWOK = {"metadata": {"name": "node-2"}, "status": {"nodeInfo": {"containerRuntimeVersion": "kwok://0.8"}}}
ANNOTATED = {"metadata": {"name": "node-3", "annotations": {"kwok.x-k8s.io/node": "fake"}}}


@pytest.fixture
def server() -> PluginServer:
    server = PluginServer()
    for node in (REAL, KWOK, ANNOTATED):
        server.objects[f"/api/v1/nodes/{node['metadata']['name']}"] = node  # type: ignore[index]
    return server


def test_a_node_is_simulated_by_its_runtime_or_its_annotation(server: PluginServer) -> None:
    assert simulated_nodes(server.client, ["node-3", "node-1", "node-2", "", "gone"]) == ["node-2", "node-3"]


def test_the_sentence_names_a_node(server: PluginServer) -> None:
    assert why_nothing_runs(server.client, ["node-2"]).startswith(
        "node node-2 is simulated (kwok), so pods there have states and no containers"
    )
    assert "`fluxqueue local up --nodes processes`" in why_nothing_runs(server.client, ["node-2"])
    assert why_nothing_runs(server.client, ["node-2", "node-3"]).startswith(
        "nodes such as node-2 are simulated"
    )
    assert why_nothing_runs(server.client, ["node-1"]) == ""


def test_who_may_not_read_nodes_is_told_nothing_of_them(server: PluginServer) -> None:
    server.refusals["/api/v1/nodes/node-2"] = ApiRefused(403, "Forbidden", "no")
    assert why_nothing_runs(server.client, ["node-2"]) == ""


def test_few_nodes_are_asked(server: PluginServer) -> None:
    simulated_nodes(server.client, [f"n{number}" for number in range(1000)])
    assert len(server.asked) == 8
