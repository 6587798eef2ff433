import pytest
from support.node_work import node
from support.plugin_server import PluginServer, fluxjobs_path

from fluxqueue.cli import plugin
from fluxqueue.cli.verbs import nodes
from fluxqueue.kube.kubeconfig import Connection


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    server = (
        PluginServer().has("/api/v1/nodes", node("n1"), node("n2", cordoned=True)).has(fluxjobs_path(None))
    )
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(nodes, "connection_of", lambda _: Connection("https://x"))
    monkeypatch.setattr(nodes, "ApiClient", lambda _: server)
    return server


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["nodes", "--no-headers"], ["idle", "1"]),
        (["nodes", "--no-headers", "--state", "drained"], ["drained", "1"]),
        (["nodes", "--no-headers", "n2"], ["n2", "drained"]),
        (["nodes", "--no-headers", "--each"], ["n1", "idle"]),
        (["graph"], ["PLACE", "USE"]),
    ],
)
def test_prints_groups_nodes_and_a_tree(
    words: list[str], first: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(words) == 0
    assert capsys.readouterr().out.split()[:2] == first


def test_nothing_is_said_on_standard_error(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.has("/api/v1/nodes")
    assert plugin.main(["nodes"]) == 0
    assert capsys.readouterr() == ("", "No nodes found\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nodes", "--state", "asleep"], "asleep is no state of nodes; there are idle"),
        (["graph", "--levels", "rack"], "--levels has pairs such as rack=example.com/rack: 'rack' does not"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        plugin.main(words)
    assert message in capsys.readouterr().err


def test_a_level_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["graph", "--depth", "row", "--levels", "rack=x"]) == 1
    assert capsys.readouterr().err == "error: --depth 'row' is no level: there are rack, node\n"
