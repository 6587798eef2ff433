from pathlib import Path

import pytest
from support.memory_api import MemoryApi

from fluxqueue.cli.uninstall.helm_release import HelmFailed, has_record, helm_command, run_helm
from fluxqueue.cli.uninstall.installation import Installation

OURS = Installation("hpc", "batch", "batch-fluxqueue")


def install_helm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a helm on the PATH that does this."""
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_helm_has_a_record_of_its_own_releases_only() -> None:
    cluster = MemoryApi()
    assert not await has_record(cluster.api, OURS)
    labels = {"owner": "helm", "name": "batch"}
    cluster.put(
        "secrets", {"metadata": {"name": "sh.helm.release.v1.batch.v1", "namespace": "hpc", "labels": labels}}
    )
    assert await has_record(cluster.api, OURS)
    assert not await has_record(cluster.api, Installation("hpc", "other", "other-fluxqueue"))


def test_the_command_reaches_the_same_cluster() -> None:
    assert helm_command(OURS) == ["helm", "uninstall", "batch", "--namespace", "hpc"]
    assert helm_command(OURS, "admin.conf", "site")[5:] == [
        "--kubeconfig",
        "admin.conf",
        "--kube-context",
        "site",
    ]


async def test_it_runs_where_there_is_a_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not await run_helm(helm_command(OURS))
    install_helm(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/said')
    assert await run_helm(helm_command(OURS))
    assert (tmp_path / "said").read_text() == "uninstall batch --namespace hpc\n"


async def test_what_helm_says_when_it_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_helm(tmp_path, monkeypatch, "echo 'Error: a lock\nis held' >&2; exit 1")
    with pytest.raises(
        HelmFailed, match=r"^'helm uninstall batch --namespace hpc' failed: Error: a lock is held$"
    ):
        await run_helm(helm_command(OURS))
