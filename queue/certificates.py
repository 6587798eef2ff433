"""Maintains the certificates of the Services in installations without cert-manager: each has a key of its
own.

The leader checks the Secret and the CA bundle of the webhook configurations at intervals and writes the next
step of the plan (`fluxqueue.certs.webhook_secret`): the bundle first, then the Secret. The plan uses the
bundle of the mutating configuration, and every other webhook, mutating or validating, gets the same bundle in
each check. The other Services have Secrets of their own, which the same authority signs
(`fluxqueue.certs.service_secret`). Every step may be repeated or interrupted. The programs only read the
files that the kubelet mounts.
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
from fluxqueue.certs.authority import Pair, ServingNames, service_names
from fluxqueue.certs.service_secret import service_secret
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
        Of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration whose bundle is
        maintained.
    service
        The webhook's Service, by which the API server calls it.
    other_services
        Other Services; the certificate of each is in a Secret that is called after it, with ``-tls``.
    """

    namespace: str
    secret: str
    configuration: str
    service: str
    other_services: tuple[str, ...] = ()


class CertificateKeeper:
    """Carries out the certificate plan."""

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
                "webhook_configuration.missing",
                name=names.configuration,
                remedy="install the chart again; until then nothing is queued",
            )
            return
        validating = await self._configuration(VALIDATING_WEBHOOKS)
        secret = await self._secret(names.secret)
        serving_names = _serving_names(names, mutating)
        webhooks = mutating.webhooks or []
        bundle = webhooks[0].client_config.ca_bundle if webhooks else b""
        step = plan(secret.data if secret else None, bundle, serving_names, self._clock())
        if step.ca_bundle is not None:
            bundle = step.ca_bundle
        await self._publish(MUTATING_WEBHOOKS, mutating, bundle)
        if validating is not None:
            await self._publish(VALIDATING_WEBHOOKS, validating, bundle)
        if step.secret is not None and not await self._write_secret(names.secret, secret, step.secret):
            return  # an authority that is not stored signs nothing
        if step.reasons:
            log.info(
                "certificate.changed", steps=list(step.reasons), secret=f"{names.namespace}/{names.secret}"
            )
        data = step.secret or (secret.data if secret is not None else None) or {}
        authority = Pair(data["ca.crt"], data["ca.key"])
        for service in names.other_services:
            await self._keep(service, authority, bundle, mutating)

    async def _keep(
        self, service: str, authority: Pair, bundle: bytes, webhooks: WebhookConfiguration
    ) -> None:
        """Write the Secret of another Service, if its certificate has to change."""
        name = f"{service}-tls"
        secret = await self._secret(name)
        serving = ServingNames(
            service_names(service, self._names.namespace).dns, _loopback_addresses(webhooks)
        )
        data = service_secret(
            secret.data if secret is not None else None, authority, bundle, serving, self._clock()
        )
        if data is not None and await self._write_secret(name, secret, data):
            log.info(
                "certificate.changed",
                steps=[f"issued for the Service {service}"],
                secret=f"{self._names.namespace}/{name}",
            )

    async def _secret(self, name: str) -> Secret | None:
        try:
            return await self._api.get(SECRETS, name, self._names.namespace)
        except NotFound:
            return None

    async def _configuration(self, kind: Kind[WebhookConfiguration]) -> WebhookConfiguration | None:
        try:
            return await self._api.get(kind, self._names.configuration)
        except NotFound:
            return None

    async def _publish(
        self, kind: Kind[WebhookConfiguration], configuration: WebhookConfiguration, bundle: bytes
    ) -> None:
        """Write the bundle into all webhooks of a configuration that have another one."""
        others = [
            webhook for webhook in configuration.webhooks or () if webhook.client_config.ca_bundle != bundle
        ]
        if not others:
            return
        encoded = base64.b64encode(bundle).decode()
        body = {
            "webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": encoded}} for webhook in others]
        }
        await self._api.patch(kind, self._names.configuration, body, patch_type=PatchType.STRATEGIC)

    async def _write_secret(self, name: str, present: Secret | None, data: dict[str, bytes]) -> bool:
        """Create or replace the data of a Secret; return False if somebody else wrote it meanwhile:
        it is checked again.
        """
        namespace = self._names.namespace
        encoded: dict[str, str | None] = {
            key: base64.b64encode(value).decode() for key, value in data.items()
        }
        if present is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "type": "Opaque",
                "data": encoded,
            }
            try:
                await self._api.create(SECRETS, body, namespace)
            except AlreadyExists:
                log.info("certificate.secret_exists", effect="it is checked again")
                return False
            return True
        encoded.update({key: None for key in present.data or {} if key not in data})
        body = {"metadata": {"resourceVersion": present.metadata.resource_version}, "data": encoded}
        try:
            await self._api.patch(SECRETS, name, body, namespace=namespace)
        except Conflict:
            log.info("certificate.secret_changed", effect="it is checked again")
            return False
        return True


def _serving_names(webhook_names: WebhookNames, configuration: WebhookConfiguration) -> ServingNames:
    """Return the names of the webhook's Service, and the hosts of URLs in the configuration."""
    names = service_names(webhook_names.service, webhook_names.namespace)
    for host in _hosts(configuration):
        if _is_address(host):
            names = replace(names, addresses=(*names.addresses, host))
        else:
            names = replace(names, dns=(*names.dns, host))
    return names


def _loopback_addresses(configuration: WebhookConfiguration) -> tuple[str, ...]:
    """Return this machine's address, if the webhook is called there:
    on a local cluster the other programs are, too.
    """
    return tuple(
        dict.fromkeys(
            host for host in _hosts(configuration) if _is_address(host) and ip_address(host).is_loopback
        )
    )


def _hosts(configuration: WebhookConfiguration) -> list[str]:
    urls = (urlsplit(webhook.client_config.url or "") for webhook in configuration.webhooks or ())
    return [url.hostname for url in urls if url.hostname]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
