from datetime import UTC, datetime, timedelta

import pytest

from fluxqueue.local.kubelet.pod_status import ContainerRecord, Ended, Running, Waiting
from fluxqueue.local.kubelet.server import log_options, never_ran
from fluxqueue.local.kubelet.sessions import SessionOptions
from fluxqueue.local.kubelet.specs import Container

NOW = datetime(2026, 11, 26, 20, 0, tzinfo=UTC)
UNSTARTED = Ended(128, "StartError", NOW, NOW, "no such file")
ENDED = Ended(1, "Error", NOW, NOW, container_id="process://main/0")


def test_the_options_of_a_log_are_those_of_kubectl() -> None:
    options = log_options(
        {"follow": "true", "tailLines": "3", "sinceSeconds": "60", "timestamps": "true", "limitBytes": "9"},
        NOW,
    )
    assert (options.follow, options.tail, options.timestamps, options.limit_bytes) == (True, 3, True, 9)
    assert options.since == NOW - timedelta(minutes=1)
    assert log_options({"sinceTime": "2026-11-26T19:00:00Z"}, NOW).since == NOW - timedelta(hours=1)
    assert log_options({"stream": "Stderr"}, NOW).stream == "stderr"
    assert log_options({}, NOW) == log_options({"stream": "All"}, NOW)


@pytest.mark.parametrize(
    ("state", "last", "sentence", "former"),
    [
        (UNSTARTED, None, "is terminated: StartError: no such file", ""),
        (
            Waiting("CrashLoopBackOff", "back-off 10s"),
            UNSTARTED,
            *["is terminated: StartError: no such file"] * 2,
        ),
        (
            Waiting("CreateContainerConfigError", "no Secret"),
            None,
            "is waiting to start: CreateContainerConfigError: no Secret",
            "",
        ),
        (Running(NOW), UNSTARTED, "", "is terminated: StartError: no such file"),
        (Waiting("CrashLoopBackOff", "back-off 10s"), ENDED, "", ""),
        (Waiting("PodInitializing"), None, "", ""),
        (ENDED, None, "", ""),
    ],
)
def test_what_never_ran_has_no_log_but_a_reason(
    state: Waiting | Running | Ended, last: Ended | None, sentence: str, former: str
) -> None:
    record = ContainerRecord(Container(name="main"), state, last)
    assert never_ran(record, previous=False) == sentence
    assert never_ran(record, previous=True) == former


@pytest.mark.parametrize("query", [{"tailLines": "x"}, {"sinceTime": "yesterday"}, {"limitBytes": ""}])
def test_invalid_options_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        log_options(query, NOW)


def test_a_terminal_has_no_error_stream_of_its_own() -> None:
    assert SessionOptions.read({"input": "1", "output": "1", "error": "1", "tty": "1"}) == SessionOptions(
        True, True, False, True
    )
    assert SessionOptions.read({"output": "true", "error": "1"}) == SessionOptions(False, True, True, False)
