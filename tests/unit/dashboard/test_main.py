from pathlib import Path

import pytest

from fluxqueue.dashboard.main import _parser, _settings, main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("fluxqueue dashboard: ")
    return said


def test_impersonation_is_only_for_people_of_a_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    assert "give --proxy-secret-file too" in refused(capsys, "--impersonate")


def test_a_short_or_missing_secret_is_refused_without_showing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    assert "cannot be read" in refused(capsys, "--proxy-secret-file", str(secret))
    secret.write_text("hunter2\n")
    said = refused(capsys, "--proxy-secret-file", str(secret))
    assert "shorter than 16 characters" in said
    assert "hunter2" not in said


def test_without_a_configuration_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "missing") in refused(capsys, "--kubeconfig", str(tmp_path / "missing"))


def test_settings_are_those_of_the_command_line(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    arguments = [
        "--level",
        "zone",
        "--level",
        "",
        "--queue-url",
        "https://q",
        "--release",
        "r",
        "--namespace",
        "n",
    ]
    settings = _settings(
        _parser().parse_args(
            [*arguments, "--proxy-secret-file", str(secret), "--proxy-user-header", "X-User"]
        )
    )
    assert settings.levels == ("zone",)
    assert (settings.queue.url, settings.queue.release, settings.queue.namespace) == ("https://q", "r", "n")
    assert settings.proxy is not None
    assert (settings.proxy.secret, settings.proxy.user_header) == ("0123456789abcdef", "x-user")
