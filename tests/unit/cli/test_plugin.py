from pathlib import Path

import pytest

from fluxqueue.cli import plugin


@pytest.fixture(autouse=True)
def nobody_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster by accident."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["jbos"], "error: argument COMMAND: invalid choice: 'jbos'", id="a slip"),
        pytest.param(["jobs", "--state", "asleep"], "asleep is not a state; there are pending, allocated", id="no such state"),
        pytest.param(["jobs", "-o", "toml"], "error: argument -o/--output: invalid choice", id="no such form"),
        pytest.param(["prioritize", "x", "high"], "error: argument N: invalid int value: 'high'", id="no number"),
        pytest.param(["move", "x"], "error: the following arguments are required: -q/--queue", id="move where?"),
        pytest.param(["explain"], "error: the following arguments are required: NAME", id="explain what?"),
    ],
)
def test_a_command_line_it_does_not_understand_is_exit_1_and_a_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        plugin.main(argv)
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert said in err
    assert "--help' for usage" in err


@pytest.mark.parametrize("argv", [["jobs"], ["explain", "x"], ["queues"], ["hold", "x"], ["prioritize", "x", "-3"]])
def test_without_a_cluster_it_says_what_to_give(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(argv) == 1
    assert capsys.readouterr().err.startswith("error: no kubeconfig at ")


def test_flags_may_stand_before_and_after_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["--kubeconfig", "/nonexistent-1", "jobs"]) == 1
    assert plugin.main(["jobs", "--kubeconfig", "/nonexistent-2"]) == 1
    assert capsys.readouterr().err == "".join(f"error: stat /nonexistent-{n}: no such file or directory\n" for n in (1, 2))


def test_the_version_of_the_client_needs_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["version"]) == 1
    assert capsys.readouterr().out.startswith("Client Version: v")


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main([]) == 0
    assert "explain" in capsys.readouterr().out


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plugin, "connection", interrupted)
    assert plugin.main(["jobs"]) == 130


def test_what_nobody_expected_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(plugin, "connection", broken)
    assert plugin.main(["jobs"]) == 1
    assert capsys.readouterr().err.startswith("kubectl fluxqueue failed unexpectedly: ZeroDivisionError: why (traceback in ")
