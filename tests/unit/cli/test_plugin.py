from pathlib import Path

import pytest

from fluxqueue.cli import plugin, sessions


@pytest.fixture(autouse=True)
def nobody_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster by accident."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(["jbos"], "there is no command 'jbos': did you mean jobs?", id="a slip"),
        pytest.param(
            ["jobs", "--state", "asleep"],
            "asleep is not a state; there are pending, allocated",
            id="no such state",
        ),
        pytest.param(
            ["jobs", "-o", "toml"],
            "-o/--output takes wide, json, yaml, name or custom-columns=TITLE:PATH, not 'toml'",
            id="no such form",
        ),
        pytest.param(["jobs", "--colour"], "does not understand '--colour'", id="no such flag"),
        pytest.param(["jobs", "-q"], "-q/--queue needs a value", id="a flag without its value"),
        pytest.param(
            ["prioritize", "x", "high"],
            "the priority is a whole number at the end, such as kubectl fluxqueue prioritize lammps 10: "
            "'high' is none",
            id="no number",
        ),
        pytest.param(
            ["prioritize", "10", "lammps"], "a whole number at the end, such as", id="the number first"
        ),
        pytest.param(
            ["prioritize", "x"],
            "a whole number at the end, such as kubectl fluxqueue prioritize lammps 10",
            id="which priority?",
        ),
        pytest.param(
            ["prioritize"],
            "prioritize needs N, such as kubectl fluxqueue prioritize lammps 10",
            id="prioritize what?",
        ),
        pytest.param(
            ["move", "x"],
            "move needs -q/--queue, such as kubectl fluxqueue move lammps -q night",
            id="move where?",
        ),
        pytest.param(
            ["cancel", "-q", "night", "--state", ""],
            "--state is empty: give a value, or leave it out",
            id="an unset variable",
        ),
        pytest.param(
            ["cancel", "--state", "pending", "-q", ""],
            "-q is empty: give a value, or leave it out",
            id="an unset queue",
        ),
        pytest.param(["hold", "-l", "", "-q", "a"], "-l is empty", id="unset labels"),
        pytest.param(
            ["jobs", "--since", "0001-01-01"], "--since is a time such as", id="a time before all calendars"
        ),
        pytest.param(
            ["explain"], "explain needs NAME, such as kubectl fluxqueue explain lammps", id="explain what?"
        ),
    ],
)
def test_a_command_line_it_does_not_understand_is_exit_1_and_one_sentence_of_ours(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        plugin.main(argv)
    assert caught.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert line.endswith(" --help')")
    assert not any(word in line for word in ("argument", "invalid", "unrecognized"))


@pytest.mark.parametrize(
    "argv",
    [
        ["jobs"],
        ["explain", "x"],
        ["queues"],
        ["reservations"],
        ["shares"],
        ["priority"],
        ["hold", "x"],
        ["prioritize", "x", "y", "-3"],
        ["move", "x", "y", "-q", "z"],
    ],
)
def test_without_a_cluster_it_says_what_to_give(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(argv) == 1
    assert capsys.readouterr().err.startswith("error: no kubeconfig at ")


def test_flags_may_stand_before_and_after_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["--kubeconfig", "/nonexistent-1", "jobs"]) == 1
    assert plugin.main(["jobs", "--kubeconfig", "/nonexistent-2"]) == 1
    assert capsys.readouterr().err == "".join(
        f"error: stat /nonexistent-{n}: no such file or directory\n" for n in (1, 2)
    )


def test_the_version_of_the_client_needs_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["version"]) == 1
    assert capsys.readouterr().out.startswith("Client Version: v")


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main([]) == 0
    assert "explain" in capsys.readouterr().out


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sessions, "connection", interrupted)
    assert plugin.main(["jobs"]) == 130


def test_an_unexpected_failure_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sessions, "connection", broken)
    assert plugin.main(["jobs"]) == 1
    assert capsys.readouterr().err.startswith(
        "kubectl fluxqueue failed unexpectedly: ZeroDivisionError: why (traceback in "
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("squeue", "there is no command 'squeue': here it is jobs"),
        ("sbatch", "there is no command 'sbatch': here it is submit"),
        ("job", "there is no command 'job': did you mean jobs?"),
        ("exlain", "there is no command 'exlain': did you mean explain?"),
        ("xyzzy", "there is no command 'xyzzy': there are submit, jobs, "),
    ],
)
def test_a_command_that_does_not_exist_is_told_with_the_one_that_is_meant(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        plugin.main([typed])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", sorted(plugin.VERBS))
def test_the_help_of_every_command_has_an_example(verb: str) -> None:
    assert f"example: kubectl fluxqueue {verb}" in " ".join(plugin.verb_parser(verb).format_help().split())


def test_help_and_version_are_there_as_people_type_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        plugin.main(["help", "jobs"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: kubectl fluxqueue jobs")
    with pytest.raises(SystemExit):
        plugin.main(["help"])
    assert "COMMAND" in capsys.readouterr().out
    assert plugin.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kubectl-fluxqueue ")
