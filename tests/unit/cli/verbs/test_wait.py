import pytest
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.cli import plugin
from fluxqueue.cli.verbs import wait
from fluxqueue.kube.kubeconfig import Connection


def test_waits_for_all_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    server = PluginServer().has_jobs(
        fluxjob("a", state="Completed"), fluxjob("b", state="Failed", message="exit 1")
    )
    monkeypatch.setattr(wait, "connection_of", lambda _: Connection("https://x"))
    monkeypatch.setattr(wait, "ApiClient", lambda _: server)
    assert plugin.main(["wait", "a"]) == 0
    assert plugin.main(["wait", "a", "b", "--timeout", "1m"]) == 1
    assert capsys.readouterr().out == "job/a completed\njob/a completed\njob/b failed: exit 1\n"


def test_a_goal_is_one_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["wait", "a", "--for", "ever"])
    assert "--for takes started, finished, not 'ever'" in capsys.readouterr().err
