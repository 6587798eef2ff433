import builtins
import sys
from typing import Any

import pytest

from fluxqueue.cli import plugin


def test_without_a_terminal_it_names_the_command_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["top"]) == 1
    assert (
        capsys.readouterr().err
        == "error: top needs a terminal: kubectl fluxqueue jobs -w prints a line for each change\n"
    )


def test_without_textual_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delitem(sys.modules, "fluxqueue.cli.top", raising=False)
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "textual":
            raise ModuleNotFoundError("no textual", name="textual")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert plugin.main(["top"]) == 1
    assert (
        capsys.readouterr().err == "error: top needs the package textual: pip install 'fluxqueue-hpc[top]'\n"
    )


@pytest.mark.parametrize("text", ["0", "soon", "1e9"])
def test_a_refresh_that_makes_no_sense_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["top", "--refresh", text])
    assert f"--refresh is a number of seconds from 0.2 to 3600: {text!r} is none" in capsys.readouterr().err
