from __future__ import annotations

import html
from datetime import UTC, datetime

import msgspec

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.client.explanations import explained

NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)


def fluxjob(**status: str) -> FluxJob:
    ref = {"kind": "Job", "name": "a", "uid": "u"}
    return msgspec.convert(
        {
            "metadata": {"name": "fj", "namespace": "team"},
            "spec": {"objectRef": ref, "pods": 1},
            "status": status,
        },
        FluxJob,
    )


def test_a_reason_without_a_message_has_its_general_meaning() -> None:
    explanation = explained(fluxjob(state="Pending", reason="QueueHeld"), None, [], NOW)
    assert explanation.why == "its queue is held or drained"
    assert "kubectl fluxqueue move" in explanation.remedy


def test_work_that_does_not_wait_needs_no_remedy() -> None:
    explanation = explained(fluxjob(state="Completed", reason="Held"), None, [], NOW)
    assert (explanation.why, explanation.remedy) == ("", "")
    assert str(explanation) == explanation.text
    assert explanation._repr_html_() == f"<pre>{html.escape(explanation.text)}</pre>"


def test_a_reason_of_a_newer_version_is_shown_as_it_is() -> None:
    explanation = explained(
        fluxjob(state="Pending", reason="Moonphase", message="the moon is full"), None, [], NOW
    )
    assert explanation.why == "the moon is full"
