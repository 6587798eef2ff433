"""Instances that stay after their command, or have none."""

from __future__ import annotations

import pytest
from support.minicluster_pods import pods, wait_until

from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE


def test_a_cluster_without_a_command_stays_until_it_is_stopped() -> None:
    with pods(size=2, interactive=True) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("idle")
        assert cluster.ready(0)
        assert cluster.ready(1)
        assert cluster.calls("broker")[0][1].startswith("--config-path=")
        assert cluster.flux(0, "shutdown").returncode == 0
        assert [cluster.finish(index)[0] for index in (0, 1)] == [0, 0]


def test_an_interactive_cluster_with_a_command_runs_it_and_stays() -> None:
    with pods("echo ran; exit 4", size=1, interactive=True) as cluster:
        process = cluster.start(0)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ran\n"
        while "the command ended with code 4" not in process.stderr.readline():
            pass
        assert cluster.ready(0)
        cluster.stop(0)
        assert cluster.finish(0)[0] == EXIT_REPLACEABLE


@pytest.mark.parametrize("code", [0, 4])
def test_a_session_that_is_shut_down_ends_with_the_code_of_its_command(code: int) -> None:
    with pods(f"echo ran; exit {code}", size=2, interactive=True) as cluster:
        process = cluster.start(0)
        cluster.start(1)
        assert process.stderr is not None
        while f"the command ended with code {code}" not in process.stderr.readline():
            pass
        assert cluster.flux(0, "shutdown").returncode == 0
        assert [cluster.finish(index)[0] for index in (0, 1)] == [code, 0]


def test_a_session_that_is_shut_down_before_its_command_ended_fails() -> None:
    with pods("sleep 60", size=1, interactive=True) as cluster:
        cluster.start(0)
        wait_until(lambda: cluster.calls("submit") != [], "the command runs")
        assert cluster.flux(0, "shutdown").returncode == 0
        code, _, error = cluster.finish(0)
        assert code not in (0, EXIT_REPLACEABLE)
        assert "the instance was shut down before its command ended" in error
