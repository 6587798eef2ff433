import pytest

from fluxqueue.cli import plugin


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["completion", shell]) == 0
    assert "kubectl_complete-fluxqueue" in capsys.readouterr().out


def test_another_shell_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["completion", "csh"])
    assert "SHELL takes bash, fish, zsh, not 'csh'" in capsys.readouterr().err
