"""The limits of the ports are those that docs/security.md names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.api import descriptors
from fluxqueue.dashboard import service as dashboard
from fluxqueue.queue.admin import access, server
from fluxqueue.rest import bounded
from fluxqueue.scheduler_plugin.extender import server as extender
from fluxqueue.serving import health
from fluxqueue.serving.connections import ConnectionLimits, Stage

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "security.md").read_text().split())
WEBHOOK = ConnectionLimits()
ALL = (health.LIMITS, server.LIMITS, dashboard.LIMITS, extender._LIMITS, bounded.LIMITS, WEBHOOK)
REVIEWS = {4: "four", 5: "five"}


def test_no_port_has_more_connections_than_the_page_says() -> None:
    health_port, metrics_port, others = (
        f"{each.connections:,}" for each in (health.LIMITS, server.LIMITS, WEBHOOK)
    )
    said = (
        f"at most {health_port} connections to a health port, {metrics_port} to a metrics port, "
        f"{others} to the webhook, the extender and"
    )
    assert said in PAGE
    assert {each.connections for each in (extender._LIMITS, dashboard.LIMITS)} == {WEBHOOK.connections}
    assert f"always {descriptors.RESERVED} fewer than files may be open" in PAGE
    assert f"at most {descriptors._MOST_FILES:,}" in PAGE


@pytest.mark.parametrize("limits", ALL)
def test_every_step_of_a_connection_ends_as_the_page_says(limits: ConnectionLimits) -> None:
    assert "the handshake and the head of a request 5 to 10 s, silence 5 s (health) to 180 s (webhook" in PAGE
    assert 5 <= limits.allowed_s(Stage.HANDSHAKE) == limits.allowed_s(Stage.RECEIVING) <= 10
    assert health.LIMITS.idle_s == 5 <= limits.idle_s <= 180 == WEBHOOK.idle_s == extender._LIMITS.idle_s
    assert all(limits.allowed_s(stage) < float("inf") for stage in Stage)


def test_as_few_tokens_are_reviewed_as_the_page_says() -> None:
    kept, refused = f"{access._ALLOWED_S:g} s", f"{access._REFUSED_S:g} s"
    assert (
        f"keeps the answer for {kept} (a refusal for {refused}), at most {access._MOST_KEPT} of each" in PAGE
    )
    each, all_of_them = REVIEWS[int(access._EACH.per_s)], f"{access._STRANGERS.per_s:g}"
    assert (
        f"at most {each} tokens a second from one address, {all_of_them} from all, and "
        f"{REVIEWS[access._STRANGERS_AT_ONCE]} at the"
    ) in PAGE
    assert f"within the last {'ten' if access._KNOWN_S == 600 else '?'} minutes" in PAGE
    assert server.LIMITS.one_request
