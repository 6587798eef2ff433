"""The webhook is ready only once it can be called by its own name,
with the authority that came with its certificate.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.webhook_process import (
    WAIT_S,
    WebhookProcess,
    make_leaf,
    new_authority,
    now,
    running_webhook,
    trusting_anybody,
)

from fluxqueue.certs.pairs import write_pair

TLS = trusting_anybody()


async def ready(webhook: WebhookProcess, *, ok: bool, because: str = "") -> None:
    """Wait until readiness is as it should be, with this in its sentence."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await webhook.ask(TLS, "GET", "/readyz")
            if (answer.status == 200) is ok and because in answer.body.decode():
                return
            await asyncio.sleep(0.05)


async def test_a_certificate_of_another_authority_or_name_is_named_until_it_is_replaced(
    tmp_path: Path,
) -> None:
    trusted, other = new_authority(), new_authority()
    (tmp_path / "ca.crt").write_bytes(trusted.certificate)
    write_pair(tmp_path, make_leaf(other), now())
    async with running_webhook(tmp_path, "--server-name", "localhost") as webhook:
        await ready(webhook, ok=False, because="a call to itself as localhost fails: ")
        await webhook.logged("certificate.unusable")
        write_pair(tmp_path, make_leaf(trusted), now())
        await ready(webhook, ok=True)
        (tmp_path / "ca.crt").write_bytes(b"not PEM")
        await ready(webhook, ok=False, because="holds no PEM certificate")
        (tmp_path / "ca.crt").write_bytes(trusted.certificate)
        await ready(webhook, ok=True)
    async with running_webhook(tmp_path, "--server-name", "fluxqueue-webhook.elsewhere.svc") as webhook:
        await ready(
            webhook, ok=False, because="certificate is not valid for 'fluxqueue-webhook.elsewhere.svc'"
        )


async def test_a_refused_pair_does_not_end_the_readiness_of_the_one_in_use(tmp_path: Path) -> None:
    authority, other = new_authority(), new_authority()
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path, "--server-name", "127.0.0.1") as webhook:
        await ready(webhook, ok=True)
        (tmp_path / "ca.crt").write_bytes(other.certificate)
        (tmp_path / "tls.key").unlink()
        (tmp_path / "tls.key").write_bytes(make_leaf(other).key)
        await webhook.logged("certificate.refused")
        await ready(webhook, ok=True)
        assert not [line for line in webhook.lines if line["event"] == "certificate.unusable"]
