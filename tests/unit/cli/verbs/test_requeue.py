import pytest
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.cli import plugin
from fluxqueue.cli.verbs import requeue
from fluxqueue.kube.kubeconfig import Connection


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    server = PluginServer().has_jobs(
        fluxjob("a", state="Pending"), fluxjob("b", state="Running"), fluxjob("c", state="Running")
    )
    monkeypatch.setattr(requeue, "connection_of", lambda _: Connection("https://x"))
    monkeypatch.setattr(requeue, "ApiClient", lambda _: server)
    return server


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: requeue needs NAME, or a selection"),
        (["b", "--all"], "error: requeue takes names or a selection, not both"),
        (["a"], "error: job/a waits already\n"),
        (["--all"], "error: this would stop and requeue 2 workloads: add --yes"),
    ],
)
def test_what_is_unclear_stops_nothing(
    words: list[str], message: str, server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(["requeue", *words]) == 1
    assert capsys.readouterr().err.startswith(message)
    assert server.written == []


def test_a_selection_without_jobs_that_run_is_no_error(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(["requeue", "--state", "pending"]) == 0
    assert capsys.readouterr().out == "Nothing that is selected can be requeued.\n"
    assert server.written == []
