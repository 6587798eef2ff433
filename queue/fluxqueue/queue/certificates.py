"""Maintains the webhook's certificate in installations without cert-manager.

The leader checks the Secret and the CA bundle of the webhook configurations at intervals and writes the next step of the plan
(`fluxqueue.certs.webhook_secret`): the bundle first, then the Secret. The plan uses the bundle of the mutating configuration, and every
other webhook, mutating or validating, gets the same bundle in each check. Every step may be repeated or interrupted. The webhooks
themselves only read the files that the kubelet mounts.
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

__all__ = ["CertificateKeeper", "WebhookNames"]

log = structlog.get_logger()

_CHECK_S = 20.0
_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class WebhookNames:
    """Names of the objects that the certificate is for.

    Attributes
    ----------
    namespace, secret
        Of the Secret that the webhook mounts.
    configuration
        Of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration whose bundle is maintained.
    service
        The webhook's Service, by which the API server calls it.
    other_services
        Other Services that use this certificate.
    """

    namespace: str
    secret: str
    configuration: str
    service: str
    other_services: tuple[str, ...] = ()


class CertificateKeeper:
    """Carries out the certificate plan.

    Parameters
    ----------
    api
        Where Secret and configurations are.
    names
        Their names.
    clock
        The time.
    """

    def __init__(self, api: Api, names: WebhookNames, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._names = names
        self._clock = clock

    async def run(self) -> None:
        """Check and write until cancelled."""
        while True:
            try:
                await self.check()
                pause_s = _CHECK_S
            except ApiError as error:
                log.warning("certificate.check_failed", error=str(error), retry_s=_RETRY_S)
                pause_s = _RETRY_S
            await asyncio.sleep(pause_s)

    async def check(self) -> None:
        """Carry out the next step, if there is one."""
        names = self._names
        mutating = await self._configuration(MUTATING_WEBHOOKS)
        if mutating is None:
            log.warning(
                "webhook_configuration.missing", name=names.configuration, remedy="install the chart again; until then nothing is queued"
            )
            return
        validating = await self._configuration(VALIDATING_WEBHOOKS)
        try:
            secret: Secret | None = await self._api.get(SECRETS, names.secret, names.namespace)
        except NotFound:
            secret = None
        serving_names = _serving_names(names, mutating)
        webhooks = mutating.webhooks or []
        bundle = webhooks[0].client_config.ca_bundle if webhooks else b""
        step = plan(secret.data if secret else None, bundle, serving_names, self._clock())
        if step.ca_bundle is not None:
            bundle = step.ca_bundle
        await self._publish(MUTATING_WEBHOOKS, mutating, bundle)
        if validating is not None:
            await self._publish(VALIDATING_WEBHOOKS, validating, bundle)
        if step.secret is not None:
            await self._write_secret(secret, step.secret)
        if step.reasons:
            log.info("certificate.changed", steps=list(step.reasons), secret=f"{names.namespace}/{names.secret}")

    async def _configuration(self, kind: Kind[WebhookConfiguration]) -> WebhookConfiguration | None:
        try:
            return await self._api.get(kind, self._names.configuration)
        except NotFound:
            return None

    async def _publish(self, kind: Kind[WebhookConfiguration], configuration: WebhookConfiguration, bundle: bytes) -> None:
        """Write the bundle into all webhooks of a configuration that have another one."""
        others = [webhook for webhook in configuration.webhooks or () if webhook.client_config.ca_bundle != bundle]
        if not others:
            return
        encoded = base64.b64encode(bundle).decode()
        body = {"webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": encoded}} for webhook in others]}
        await self._api.patch(kind, self._names.configuration, body, patch_type=PatchType.STRATEGIC)

    async def _write_secret(self, present: Secret | None, data: dict[str, bytes]) -> None:
        names = self._names
        encoded: dict[str, str | None] = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if present is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": names.secret},
                "type": "Opaque",
                "data": encoded,
            }
            try:
                await self._api.create(SECRETS, body, names.namespace)
            except AlreadyExists:
                log.info("certificate.secret_exists", effect="it is checked again")
            return
        encoded.update({key: None for key in present.data or {} if key not in data})
        body = {"metadata": {"resourceVersion": present.metadata.resource_version}, "data": encoded}
        try:
            await self._api.patch(SECRETS, names.secret, body, namespace=names.namespace)
        except Conflict:
            log.info("certificate.secret_changed", effect="it is checked again")


def _serving_names(webhook_names: WebhookNames, configuration: WebhookConfiguration) -> ServingNames:
    """Return the names of the Services, and the hosts of URLs in the configuration."""
    services = (webhook_names.service, *webhook_names.other_services)
    names = ServingNames(dns=tuple(name for service in services for name in service_names(service, webhook_names.namespace).dns))
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
