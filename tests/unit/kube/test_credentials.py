"""How a pod proves who it is: by what the kubelet mounts, read without any library of Kubernetes."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fluxqueue.certs.authority import make_authority
from fluxqueue.kube import credentials
from fluxqueue.kube.credentials import Credentials, NoConfiguration


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a pod, for a process of this test."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(make_authority("api", datetime.now(UTC)).certificate)
    return tmp_path


async def test_a_pod_speaks_by_its_token_and_trusts_the_authority_beside_it(mounted: Path) -> None:
    found = await Credentials.load()
    assert found.host == "https://10.0.0.1:443"
    assert await found.authorization() == "Bearer first"
    assert [each["subject"] for each in found.tls.get_ca_certs()] == [((("commonName", "api"),),)]
    assert (found.proxy, found.server_hostname) == (None, None)


async def test_an_address_of_ipv6_is_written_in_brackets(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert (await Credentials.load()).host == "https://[fd00::1]:443"


async def test_a_refused_token_is_read_again_and_a_deleted_one_is_still_used(mounted: Path) -> None:
    found = await Credentials.load()
    (mounted / "token").write_text("second")
    assert await found.renew("Bearer first")
    assert await found.authorization() == "Bearer second"
    (mounted / "token").unlink()
    assert not await found.renew("Bearer second")
    assert await found.authorization() == "Bearer second"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [("token", "", "token is empty"), ("ca.crt", None, "No such file"), ("token", None, "token")],
)
async def test_a_missing_mount_is_reported_at_the_start(
    mounted: Path, file: str, text: str | None, why: str
) -> None:
    if text is None:
        (mounted / file).unlink()
    else:
        (mounted / file).write_text(text)
    with pytest.raises(NoConfiguration, match=why):
        await Credentials.load()


def test_no_service_imports_the_official_client() -> None:
    program = (
        "import sys, fluxqueue.kube.transport, fluxqueue.webhook.watch; print('kubernetes' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        == "False\n"
    )


async def test_without_an_identity_only_the_address_and_the_authority_are_left(mounted: Path) -> None:
    found = await Credentials.load()
    bare = await found.without_identity()
    assert (bare.host, await bare.authorization()) == (found.host, None)
    assert [each["subject"] for each in bare.tls.get_ca_certs()] == [((("commonName", "api"),),)]
    assert await found.authorization() == "Bearer first"
