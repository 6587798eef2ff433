"""What explain says about a foreign matcher: by the condition of the queue, and nothing without one."""

from __future__ import annotations

import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec
from fluxqueue.api.fluxqueues import FOREIGN_MATCHER_LOSES, FluxQueue, FluxQueueStatus
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta
from fluxqueue.cli import matchers
from fluxqueue.cli.api_client import ApiClient, ClusterError

CLIENT = object.__new__(ApiClient)


def queue(name: str, message: str = "") -> FluxQueue:
    conditions = [ObjectCondition(type="Starting", status="True", message="work is started when it fits")]
    if message:
        conditions.append(
            ObjectCondition(type="PolicyInForce", status="False", reason="ForeignMatcher", message=message)
        )
    return FluxQueue(metadata=ObjectMeta(name=name), status=FluxQueueStatus(conditions=conditions))


def job(of: str) -> FluxJob:
    return FluxJob(spec=FluxJobSpec(queue=of))


def test_the_condition_of_the_queue_is_shown_else_that_all_queues_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matchers, "list_queues", lambda _client: [queue("gpu", "no backfill")])
    notes = matchers.matcher_notes_of(CLIENT)
    assert notes(job("gpu")) == "no backfill"
    assert notes(job("default")) == FOREIGN_MATCHER_LOSES


def test_nothing_is_said_of_our_own_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "list_queues", lambda _client: [queue("gpu")])
    assert matchers.matcher_notes_of(CLIENT)(job("gpu")) == ""


def test_whoever_may_not_read_queues_gets_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: ApiClient) -> list[FluxQueue]:
        raise ClusterError("forbidden")

    monkeypatch.setattr(matchers, "list_queues", refuse)
    assert matchers.matcher_notes_of(CLIENT)(job("gpu")) == ""
