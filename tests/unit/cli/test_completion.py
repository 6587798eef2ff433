"""What completes a command line, and the scripts of the shells."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fluxqueue.cli.completion import FILES, NO_FILES, candidates, main
from fluxqueue.cli.plugin import VERBS
from fluxqueue.cli.verbs.completion import _SCRIPTS

NAMES = {
    "workloads": ["job/lammps\tPending Held", "job/amg\tRunning"],
    "queues": ["day", "night"],
    "nodes": ["n1"],
    "namespaces": ["lab", "default"],
    "contexts": ["here"],
}
asked: list[tuple[str, str | None]] = []


def known(kind: str, namespace: str | None) -> list[str]:
    asked.append((kind, namespace))
    return NAMES[kind]


def after(*words: str) -> list[str]:
    """Return the candidates, without their descriptions."""
    return [text.split("\t")[0] for text in candidates(words, known)[0]]


def test_commands_come_with_what_they_do() -> None:
    assert after("") == list(VERBS)
    assert after("his") == ["history"]
    assert candidates(["his"], known)[0] == ["history\twork that has ended, as sacct shows it"]


def test_options_are_those_of_the_command() -> None:
    assert after("jobs", "--so") == ["--sort"]
    assert {"-w", "--watch", "--since", "--format"} <= set(after("jobs", "-"))
    assert after("-n", "jobs", "ver") == ["version"], "the value of an option is no command"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["hold", ""], ["job/lammps", "job/amg"]),
        (["hold", "job/l"], ["job/lammps"]),
        (["jobs", "-q", ""], ["day", "night"]),
        (["jobs", "--queue=n"], ["--queue=night"]),
        (["jobs", "--queue", "=", "n"], ["night"]),
        (["jobs", "--state", "pending,run"], ["pending,running"]),
        (["nodes", "--state", "dr"], ["draining", "drained"]),
        (["nodes", ""], ["n1"]),
        (["queue", ""], ["create", "hold", "resume", "drain"]),
        (["queue", "hold", "n"], ["night"]),
        (["jobs", "-o", "y"], ["yaml"]),
        (["jobs", "-n", "l"], ["lab"]),
        (["jobs", "--context", ""], ["here"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["version", ""], []),
    ],
)
def test_values_are_completed(words: list[str], found: list[str]) -> None:
    assert after(*words) == found


def test_names_are_those_of_the_namespace_that_was_typed() -> None:
    asked.clear()
    after("hold", "-n", "lab", "")
    after("hold", "--namespace=lab", "")
    assert asked == [("workloads", "lab")] * 2


def test_files_are_left_to_the_shell() -> None:
    for words in (["submit", ""], ["submit", "--", "cat", ""], ["jobs", "--kubeconfig", ""]):
        assert candidates(words, known) == ([], FILES)
    assert candidates(["version", ""], known)[1] == NO_FILES


def test_a_cluster_that_cannot_be_reached_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-fluxqueue", "hold", ""])
    assert main() == 0
    assert capsys.readouterr() == (":4\n", "")
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-fluxqueue", "jobs", "--context", ""])
    assert main() == 0
    assert capsys.readouterr() == (":4\n", "")


def _with_program(folder: Path) -> dict[str, str]:
    program = folder / "kubectl_complete-fluxqueue"
    program.write_text(
        "#!/bin/sh\n"
        f'exec {shlex.quote(sys.executable)} -c "from fluxqueue.cli.completion import main; main()" "$@"\n'
    )
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": "/nowhere"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["hist"], "history"),
        (["jobs", "--state", "pen"], "pending"),
        (["jobs", "--state", "=", "pen"], "pending"),
        (["jobs", "--context", "arn", ":", "aws", ":", "ek"], "eks/lab"),
        (["jobs", "--context", "=", "arn", ":"], "aws:eks/lab"),
        (["jobs", "--context", "arn", ":", "aws", "--state", "pen"], "pending"),
        (["jobs", "--context", '"arn'], "arn:aws:eks/lab"),
    ],
)
def test_bash_completes(words: list[str], found: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("contexts: [{name: 'arn:aws:eks/lab'}]\n")
    environ = {**_with_program(tmp_path), "KUBECONFIG": str(tmp_path / "config")}
    line = " ".join(f"'{word}'" for word in ["kubectl-fluxqueue", *words])
    script = (
        f"{_SCRIPTS['bash']}\n"
        f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _kubectl_fluxqueue; echo "${{COMPREPLY[*]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    assert (done.stdout, done.stderr) == (f"{found}\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_can_be_read_by_it(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "script"
    file.write_text(_SCRIPTS[shell])
    assert (
        subprocess.run([shell, "-n", str(file)], capture_output=True, timeout=60, check=False).returncode == 0
    )
