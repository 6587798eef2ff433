from __future__ import annotations

import base64
import datetime as dt
import stat
from pathlib import Path

import msgspec

from fluxqueue.local.kubeconfigs import write_certificate_kubeconfig, write_token_kubeconfig
from fluxqueue.local.pki import Authority

SERVER = "https://127.0.0.1:20443"


def test_a_client_certificate_travels_in_the_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", dt.datetime.now(dt.UTC))
    pair = authority.issue_client("admin", "kubernetes-admin")
    path = write_certificate_kubeconfig(tmp_path / "admin.kubeconfig", SERVER, authority.bundle, pair)
    config = msgspec.json.decode(path.read_bytes())
    (user,), (cluster,), (context,) = config["users"], config["clusters"], config["contexts"]
    assert base64.b64decode(user["user"]["client-certificate-data"]) == pair.certificate.read_bytes()
    assert base64.b64decode(user["user"]["client-key-data"]) == pair.key.read_bytes()
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == authority.bundle.read_bytes()
    assert cluster["cluster"]["server"] == SERVER
    assert context["name"] == config["current-context"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"], "namespace": "default"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_comes_with_the_namespace_it_works_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", dt.datetime.now(dt.UTC))
    path = write_token_kubeconfig(
        tmp_path / "queue.kubeconfig", SERVER, authority.bundle, "a.b.c", "fluxqueue-system"
    )
    config = msgspec.json.decode(path.read_bytes())
    assert config["users"][0]["user"] == {"token": "a.b.c"}
    assert config["contexts"][0]["context"]["namespace"] == "fluxqueue-system"
