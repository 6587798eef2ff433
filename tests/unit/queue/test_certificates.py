"""The names in the certificate that the queue maintains."""

from __future__ import annotations

import msgspec

from fluxqueue.api.clusterobjects import WebhookConfiguration
from fluxqueue.queue.certificates import WebhookNames, _serving_names


def test_one_certificate_is_valid_for_the_webhook_and_the_other_services() -> None:
    webhook = WebhookNames("fluxqueue-system", "tls", "webhook", "webhook", ("scheduler",))
    document = {"metadata": {"name": "webhook"}, "webhooks": [{"name": "a", "clientConfig": {"url": "https://127.0.0.1:9443/mutate"}}]}
    names = _serving_names(webhook, msgspec.convert(document, WebhookConfiguration))
    assert {"webhook.fluxqueue-system.svc", "scheduler.fluxqueue-system.svc"} <= {*names.dns}
    assert names.addresses == ("127.0.0.1",)
