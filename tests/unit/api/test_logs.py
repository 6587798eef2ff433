from __future__ import annotations

import json
import logging

import pytest
import structlog

from fluxqueue.api.logs import configure_logging
from fluxqueue.client.library_logs import use_standard_logging


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_events_and_records_are_objects_of_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.get_logger().info("queue.started", port=1)
    logging.getLogger("uvicorn").error("no %s", "port")
    event, record = lines(capsys)
    assert {**event, "timestamp": ""} == {
        "event": "queue.started",
        "port": 1,
        "level": "info",
        "timestamp": "",
    }
    assert {**record, "timestamp": ""} == {
        "event": "no port",
        "logger": "uvicorn",
        "level": "error",
        "timestamp": "",
    }


def test_the_level_holds_for_both_and_libraries_are_quiet_below_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("error")
    structlog.get_logger().warning("queue.late")
    logging.getLogger("uvicorn").warning("late")
    configure_logging("debug")
    logging.getLogger("uvicorn").info("a request")
    assert lines(capsys) == []


def test_a_client_in_the_same_process_makes_no_record_go_round(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.reset_defaults()
    use_standard_logging()
    structlog.get_logger("fluxqueue.kube").warning("reflector.failed", error="why")
    (record,) = lines(capsys)
    assert record["event"] == "event='reflector.failed' error='why'"


def test_another_word_is_no_level() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        configure_logging("loud")
