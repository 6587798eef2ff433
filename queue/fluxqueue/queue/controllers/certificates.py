"""Keeps the webhook's certificate where no cert-manager does.

The leader looks every so often at the Secret and at the bundle of the webhook configurations and writes the next step of the plan
(`fluxqueue.certs.webhook_secret`): bundle first, then Secret. The plan is made by the bundle of the mutating configuration, and every
other webhook, mutating or validating, is brought to the same bundle at each look. Every step may be repeated or interrupted. The webhooks
themselves only read the files the kubelet mounts.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

import structlog

from fluxqueue.api.clusterobjects import Secret, WebhookConfiguration
from fluxqueue.certs.authority import ServingNames, service_names
from fluxqueue.certs.webhook_secret import plan
from fluxqueue.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from fluxqueue.kube.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Kind
from fluxqueue.kube.transport import Api, PatchType

__all__ = ["CertificateKeeper", "WebhookPlace"]

log = structlog.get_logger()

_LOOK_S = 10.0
_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """Where the webhook's certificate lives.

    Attributes
    ----------
    namespace, secret
        Of the Secret the webhook mounts.
    configuration
        Name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration whose bundle is kept.
    service
        The webhook's Service: what the API server calls it.
    """

    namespace: str
    secret: str
    configuration: str
    service: str


class CertificateKeeper:
    """Carries out the certificate plan.

    Parameters
    ----------
    api
        Where Secret and configuration are.
    place
        Their names.
    clock
        The time.
    """

    def __init__(self, api: Api, place: WebhookPlace, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._place = place
        self._clock = clock

    async def run(self) -> None:
        """Look and write until cancelled."""
        while True:
            try:
                await self.look()
                pause_s = _LOOK_S
            except ApiError as error:
                log.warning("the webhook's certificate could not be looked after", error=str(error), retry_s=_RETRY_S)
                pause_s = _RETRY_S
            await asyncio.sleep(pause_s)

    async def look(self) -> None:
        """Make the next step, if there is one."""
        place = self._place
        mutating = await self._configuration(MUTATING_WEBHOOKS)
        if mutating is None:
            log.warning(
                "the webhook configuration is missing: install the chart again, until then nothing is queued", name=place.configuration
            )
            return
        validating = await self._configuration(VALIDATING_WEBHOOKS)
        try:
            secret: Secret | None = await self._api.get(SECRETS, place.secret, place.namespace)
        except NotFound:
            secret = None
        names = _serving_names(place, mutating)
        webhooks = mutating.webhooks or []
        standing = webhooks[0].client_config.ca_bundle if webhooks else b""
        step = plan(secret.data if secret else None, standing, names, self._clock())
        bundle = standing if step.ca_bundle is None else step.ca_bundle
        await self._publish(MUTATING_WEBHOOKS, mutating, bundle)
        if validating is not None:
            await self._publish(VALIDATING_WEBHOOKS, validating, bundle)
        if step.secret is not None:
            await self._write_secret(secret, step.secret)
        if step.reasons:
            log.info("webhook certificate", steps=list(step.reasons), secret=f"{place.namespace}/{place.secret}")

    async def _configuration(self, kind: Kind[WebhookConfiguration]) -> WebhookConfiguration | None:
        try:
            return await self._api.get(kind, self._place.configuration)
        except NotFound:
            return None

    async def _publish(self, kind: Kind[WebhookConfiguration], configuration: WebhookConfiguration, bundle: bytes) -> None:
        """Make all webhooks of a configuration trust the same."""
        others = [webhook for webhook in configuration.webhooks or () if webhook.client_config.ca_bundle != bundle]
        if not others:
            return
        encoded = base64.b64encode(bundle).decode()
        body = {"webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": encoded}} for webhook in others]}
        await self._api.patch(kind, self._place.configuration, body, patch_type=PatchType.STRATEGIC)

    async def _write_secret(self, present: Secret | None, data: dict[str, bytes]) -> None:
        place = self._place
        encoded: dict[str, str | None] = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if present is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": place.secret},
                "type": "Opaque",
                "data": encoded,
            }
            try:
                await self._api.create(SECRETS, body, place.namespace)
            except AlreadyExists:
                log.info("somebody else made the Secret: looking again")
            return
        encoded.update({key: None for key in present.data or {} if key not in data})
        body = {"metadata": {"resourceVersion": present.metadata.resource_version}, "data": encoded}
        try:
            await self._api.patch(SECRETS, place.secret, body, namespace=place.namespace)
        except Conflict:
            log.info("somebody else changed the Secret: looking again")


def _serving_names(place: WebhookPlace, configuration: WebhookConfiguration) -> ServingNames:
    """The Service's names, and the hosts of URLs where the configuration uses them."""
    names = service_names(place.service, place.namespace)
    for webhook in configuration.webhooks or ():
        host = urlsplit(webhook.client_config.url or "").hostname
        if not host:
            continue
        try:
            ip_address(host)
        except ValueError:
            names = replace(names, dns=(*names.dns, host))
        else:
            names = replace(names, addresses=(*names.addresses, host))
    return names
