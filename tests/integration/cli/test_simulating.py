"""`fluxqueue simulate --from-cluster` against a real API server."""

from __future__ import annotations

import pytest

from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.queue.simulator.main import main


def test_it_says_who_would_start_when_and_changes_nothing(
    cluster: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/apis/jobs.converged-computing.org/v1alpha1/fluxjobs"
    before = {
        job["metadata"]["name"]: job["metadata"]["resourceVersion"]
        for job in cluster.client.get(path)["items"]
    }
    words = [
        "--from-cluster",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--policy",
        "conservative",
        "--add-nodes",
        "2",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 nodes, 1 running, 1 pending")
    plans = [line.split("  ")[0] for line in said.split("plan ")[1].splitlines()[1:5]]
    assert plans == ["as it is", "conservative", "as it is, +2", "conservative, +2"]
    assert "default/waiting" in said
    after = {
        job["metadata"]["name"]: job["metadata"]["resourceVersion"]
        for job in cluster.client.get(path)["items"]
    }
    assert after == before


def test_without_an_api_server_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from-cluster", "--kubeconfig", "/nowhere/config"]) == 2
    assert "/nowhere/config" in capsys.readouterr().err
