"""What the command line of the scheduler refuses."""

from __future__ import annotations

import pytest

from fluxqueue.scheduler_plugin.main import main


def test_an_extender_that_would_serve_everybody_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--extender-port", "0"]) == 2
    assert "--extender-port needs --extender-client-ca" in capsys.readouterr().err
