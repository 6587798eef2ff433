import json

import pytest
import yaml
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.cli import plugin
from fluxqueue.cli.verbs import queue
from fluxqueue.kube.kubeconfig import Connection

PATH = f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    server = PluginServer()
    monkeypatch.setattr(queue, "connection_of", lambda _: Connection("https://x"))
    monkeypatch.setattr(queue, "ApiClient", lambda _: server)
    return server


def test_a_queue_is_created_with_what_is_given(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--policy conservative --priority 10 --max-priority 20 --default-duration 30m --max-duration 12h "
        "--preemption lowerPriority"
    )
    assert (
        plugin.main(
            [
                "queue",
                "create",
                "night",
                *words.split(),
                "--node-selector",
                "disk=ssd",
                "--of-namespace",
                "science",
            ]
        )
        == 0
    )
    ((_, path, manifest),) = server.written
    assert (path, manifest["metadata"]["name"]) == (PATH, "night")
    assert manifest["spec"] == {
        "policy": "conservative",
        "priority": 10,
        "maxPriority": 20,
        "defaultDurationSeconds": 1800,
        "maxDurationSeconds": 43200,
        "preemption": "lowerPriority",
        "nodeSelector": {"disk": "ssd"},
        "namespaces": {"names": ["science"]},
    }
    assert capsys.readouterr().out == "fluxqueue/night created\n"


def test_a_dry_run_shows_the_queue(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["queue", "create", "a", "--dry-run", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "FluxQueue"
    assert plugin.main(["queue", "create", "a", "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"] == {"name": "a"}
    assert plugin.main(["queue", "create", "a", "--dry-run"]) == 0
    assert server.written == []
    assert plugin.main(["queue", "create", "a", "--dry-run=server"]) == 0
    assert [verb for verb, _, _ in server.written] == ["POST?dryRun"]


def test_a_state_takes_names_only(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["queue", "hold", "a", "--priority", "1"]) == 1
    assert (
        capsys.readouterr().err
        == "error: queue hold takes names only; kubectl edit fluxqueue changes the other fields\n"
    )
    assert server.written == []


def test_what_cannot_be_read_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["stop", "a"], "ACTION takes create, hold, resume, drain, not 'stop'"),
        (["create", "a", "--node-selector", "x"], "is a label such as disk=ssd: 'x' is none"),
        (["create", "a", "--max-duration", "x"], "'x' is not a duration"),
    ):
        with pytest.raises(SystemExit):
            plugin.main(["queue", *words])
        assert message in capsys.readouterr().err
