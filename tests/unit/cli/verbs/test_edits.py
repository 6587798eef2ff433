import pytest
from support.plugin_server import PluginServer, fluxjob, fluxjobs_path

from fluxqueue.cli import plugin
from fluxqueue.cli.verbs import edits
from fluxqueue.kube.kubeconfig import Connection


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    server = PluginServer().has_jobs(
        fluxjob("a", state="Pending"),
        fluxjob("b", state="Pending", queue="night"),
        fluxjob("c", state="Running"),
        fluxjob("d", state="Completed"),
    )
    monkeypatch.setattr(edits, "connection_of", lambda _: Connection("https://x"))
    monkeypatch.setattr(edits, "ApiClient", lambda _: server)
    return server


def test_an_empty_queue_is_no_queue(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["move", "job/a", "-q", ""]) == 1
    assert server.written == []
    assert "the name of the queue is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        pytest.param(["hold", "--all", "--yes"], "ab", id="only what waits is held"),
        pytest.param(["cancel", "--all", "--yes"], "abc", id="what has not ended is cancelled"),
        pytest.param(["cancel", "--state", "running"], "c", id="one needs no question"),
        pytest.param(["hold", "-q", "night"], "b", id="of a queue"),
        pytest.param(["move", "--from", "night", "-q", "default"], "b", id="from a queue to another"),
        pytest.param(["prioritize", "--all", "-y", "5"], "ab", id="all with a number"),
        pytest.param(["release", "--all"], "", id="what is not held needs no release"),
    ],
)
def test_a_selection_changes_what_it_hits_and_what_can_change(
    words: list[str], changed: str, server: PluginServer
) -> None:
    assert plugin.main(words) == 0
    paths = [path for _, path, _ in server.written]
    assert paths == [f"{fluxjobs_path()}/job-{name}-1a2b3" for name in changed]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cancel", "--all"], "error: this would cancel 3 workloads: add --yes"),
        (
            ["hold"],
            (
                "error: hold needs NAME, or a selection (-l, --queue, --state, --all), "
                "such as kubectl fluxqueue hold lammps"
            ),
        ),
        (["hold", "a", "--all"], "error: hold takes names or a selection, not both"),
        (["hold", "a", "-A"], "error: -A is for a selection"),
        (["prioritize", "10"], "error: prioritize needs NAME, or a selection"),
    ],
)
def test_what_is_unclear_changes_nothing(
    words: list[str], message: str, server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(words) == 1
    assert capsys.readouterr().err.startswith(message)
    assert server.written == []
