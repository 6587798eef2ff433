"""What the tests of ``fluxqueue uninstall`` share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def logs_of_the_tests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command leaves the logs of the test process alone:
    loggers remember the stream they first wrote to.
    """
    monkeypatch.setattr("fluxqueue.cli.uninstall.command.configure_logging", lambda _level: None)
