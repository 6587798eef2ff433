from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging, structlog, sys
{before}
from fluxqueue.client.library_logs import use_standard_logging
use_standard_logging()
structlog.get_logger("fluxqueue.kube").info("reflector.listed", objects=3)
structlog.get_logger("fluxqueue.kube").warning("reflector.failed", error="why")
"""


def run(before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_nothing_is_printed_to_the_output_of_the_program() -> None:
    done = run()
    assert done.stdout == ""
    assert "reflector.listed" not in done.stderr
    assert "reflector.failed" in done.stderr


def test_the_program_decides_what_is_logged() -> None:
    done = run("logging.basicConfig(level=logging.DEBUG, format='%(name)s %(message)s')")
    assert "fluxqueue.kube event='reflector.listed' objects=3" in done.stderr


def test_a_configuration_of_the_program_stays() -> None:
    done = run("structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stdout))")
    assert "reflector.listed" in done.stdout
