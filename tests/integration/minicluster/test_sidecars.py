"""Sidecars with Flux on their path."""

from __future__ import annotations

from typing import Any

from support.minicluster_builders import minicluster
from support.minicluster_pods import WAIT_S, Pods


def sidecar_cluster(**sidecar: Any) -> Pods:
    runner = {"image": "app:1", "command": "sleep 60", "runFlux": True}
    return Pods(
        minicluster(
            size=1, containers=[runner, {"name": "side", "image": "side:1", **sidecar}], formTimeoutSeconds=5
        )
    )


def test_a_sidecar_waits_for_the_broker_and_speaks_to_it() -> None:
    with sidecar_cluster(
        command="flux ping --count=1 0; echo code $?",
        commands={"pre": "echo pre", "servicePre": "echo service"},
    ) as cluster:
        assert cluster.init(0) == 0
        side = cluster.start(0, "side", script="start.sh")
        cluster.start(0)
        assert side.stdout is not None
        assert [side.stdout.readline() for _ in range(3)] == ["pre\n", "service\n", "code 0\n"]
        assert side.poll() is None
        side.terminate()
        assert side.wait(WAIT_S) == 0
        side.communicate()


def test_a_sidecar_that_fails_ends_with_its_code() -> None:
    with sidecar_cluster(command="exit 6; true") as cluster:
        cluster.set(fq_patience=0)
        side = cluster.start(0, "side", script="start.sh")
        _, error = side.communicate(timeout=WAIT_S)
        assert side.returncode == 6
        assert "sidecar side ended with code 6" in error
