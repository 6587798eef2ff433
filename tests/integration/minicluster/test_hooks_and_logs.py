"""Hooks that people wrote, and what a pod logs."""

from __future__ import annotations

from support.minicluster_pods import pods


def test_hooks_run_in_their_order_and_where_they_belong() -> None:
    hooks = {
        "init": "echo init",
        "pre": "export SEEN='from pre'; echo pre",
        "brokerPre": "echo broker",
        "workerPre": "echo worker",
        "post": "echo post",
        "prefix": "env WRAPPED=1",
    }
    with pods("bash -c 'echo \"$SEEN $WRAPPED\"'", size=2, commands=hooks) as cluster:
        codes, outputs, _ = cluster.run()
        assert codes == [0, 0]
        assert outputs[0].splitlines() == ["init", "pre", "broker", "from pre 1", "post"]
        assert outputs[1].splitlines() == ["init", "pre", "worker", "post"]


def test_a_failing_hook_is_reported_and_ends_a_strict_pod() -> None:
    hooks = {"pre": "false\necho still here\nfalse"}
    with pods("true", size=1, commands=hooks) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs) == ([0], ["still here\n"])
        assert "commands.pre ended with code 1" in errors[0]
    with pods("true", size=1, commands=hooks, logging={"strict": True}) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs) == ([1], [""])
        assert "commands.pre failed with code 1" in errors[0]


def test_quiet_is_the_applications_output_alone() -> None:
    with pods(
        "echo answer", size=2, commands={"pre": "echo noise; echo noise >&2"}, logging={"quiet": True}
    ) as cluster:
        codes, outputs, errors = cluster.run()
        assert (codes, outputs, errors) == ([0, 0], ["answer\n", ""], ["", ""])
        assert "-Slog-stderr-level=0" in cluster.calls("start")[0]


def test_timed_logs_the_duration_of_start_and_submit() -> None:
    with pods("true", size=1, logging={"timed": True}) as cluster:
        error = cluster.run()[2][0]
        assert "FLUXTIME fluxstart wall time 0:" in error
        assert "FLUXTIME fluxsubmit wall time 0:" in error


def test_a_broker_without_flux_reports_the_remedy() -> None:
    with pods("true", size=1, flux={"container": {"disable": True}}) as cluster:
        codes, _, errors = cluster.run(PATH="/usr/bin:/bin")
        assert codes == [127]
        assert "use an image with Flux" in errors[0]
