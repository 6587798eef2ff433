"""What is missing is said in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fluxqueue.local.nodes import requirements
from fluxqueue.local.nodes.requirements import image_obstacle, node_obstacle


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def install(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_without_root_nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert node_obstacle().startswith("real nodes need root")
    assert image_obstacle().startswith("images of real nodes are built by root only")


def test_missing_programs_are_named_by_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "ip", "nsenter", "unshare", "mount", "conntrack")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        node_obstacle()
        == "real nodes need programs that are missing here: install the packages iptables nftables runc"
    )
    assert image_obstacle() == (
        "building images needs programs that are missing here: install the packages buildah debootstrap tar"
    )


def test_missing_cni_plugins_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "runc", "nft", "iptables", "conntrack", "ip", "nsenter", "unshare", "mount")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "_CNI_FOLDERS", (str(tmp_path / "none"),))
    assert "install the package containernetworking-plugins" in node_obstacle()


def test_refused_namespaces_are_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path, "runc", "nft", "iptables", "conntrack", "ip", "nsenter", "mount", *requirements._CNI_PLUGINS
    )
    unshare = tmp_path / "unshare"
    unshare.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "_CNI_FOLDERS", (str(tmp_path),))
    assert node_obstacle().endswith("which cannot be made here: unshare failed: Operation not permitted")
