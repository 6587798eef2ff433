"""The names in the certificate that the queue maintains."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from support.memory_api import MemoryApi

from fluxqueue.api.clusterobjects import WebhookConfiguration
from fluxqueue.queue.certificates import CertificateKeeper, WebhookNames, _serving_names


def test_the_webhook_s_certificate_is_valid_for_no_other_service() -> None:
    webhook = WebhookNames("fluxqueue-system", "tls", "webhook", "webhook", ("scheduler",))
    document = {
        "metadata": {"name": "webhook"},
        "webhooks": [{"name": "a", "clientConfig": {"url": "https://127.0.0.1:9443/mutate"}}],
    }
    names = _serving_names(webhook, msgspec.convert(document, WebhookConfiguration))
    assert "webhook.fluxqueue-system.svc" in names.dns
    assert not any("scheduler" in name for name in names.dns)
    assert names.addresses == ("127.0.0.1",)


async def test_each_service_gets_a_secret_with_a_key_of_its_own() -> None:
    server, names = (
        MemoryApi(),
        WebhookNames("fluxqueue-system", "webhook-tls", "webhook", "webhook", ("queue", "dashboard")),
    )
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        server.put(plural, {"metadata": {"name": "webhook"}, "webhooks": [{"name": "a", "clientConfig": {}}]})
    keeper = CertificateKeeper(server.api, names, lambda: datetime(2030, 1, 1, tzinfo=UTC))
    await keeper.check()
    secrets = {
        name: server.get("secrets", f"{name}-tls", "fluxqueue-system")["data"]
        for name in ("webhook", "queue", "dashboard")
    }
    assert len({each["tls.key"] for each in secrets.values()}) == 3
    assert {name for name, each in secrets.items() if "ca.key" in each} == {"webhook"}
    assert {each["ca.crt"] for each in secrets.values()} == {secrets["webhook"]["ca.crt"]}
    await keeper.check()
    assert server.get("secrets", "queue-tls", "fluxqueue-system")["data"] == secrets["queue"]
