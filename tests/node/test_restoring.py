"""The bundled Postgres in real containers: who is admitted, its backup,
and its restore under a queue with running work; `helm test`.
"""

from __future__ import annotations

import json

import pytest
from support.chart_rendering import NAMESPACE, RELEASE
from support.real_nodes import NodeStage, RealCluster

from fluxqueue.api.fluxjobs import State

POSTGRES = "fluxqueue-postgres"


@pytest.fixture(scope="module")
def backed_up(release: RealCluster) -> RealCluster:
    """The release, with backups from now on."""
    release.upgrade(postgres={"backup": {"enabled": True}})
    return release


def _run_job(cluster: RealCluster, cron_job: str, name: str) -> str:
    cluster.kubectl("-n", NAMESPACE, "create", "job", f"--from=cronjob/{POSTGRES}-{cron_job}", name)
    ended = ("Complete", "Failed")

    def conditions() -> list[str]:
        status = cluster.get("job", name, "-n", NAMESPACE).get("status", {})
        return [
            each["type"]
            for each in status.get("conditions", [])
            if each["status"] == "True" and each["type"] in ended
        ]

    output = cluster.until(f"the Job {name} has ended", conditions, 120)
    said = cluster.kubectl("-n", NAMESPACE, "logs", f"job/{name}").stdout
    assert output == ["Complete"], said
    return str(said)


def test_helm_test_asks_every_program(release: RealCluster) -> None:
    done = release.nodes.helm(
        "test", RELEASE, "--namespace", NAMESPACE, "--logs", "--timeout", "3m", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok    ") == 3


def test_the_queue_s_role_is_no_superuser(release: RealCluster) -> None:
    asked = "SELECT json_object_agg(rolname, rolsuper) FROM pg_roles WHERE rolcanlogin"
    said = release.kubectl(
        "-n", NAMESPACE, "exec", f"{POSTGRES}-0", "--", "psql", "-U", "postgres", "-At", "-c", asked
    )
    assert json.loads(said.stdout) == {"postgres": True, "fluxqueue": False}
    encrypted = (
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'fluxqueue'"
    )
    said = release.kubectl(
        "-n", NAMESPACE, "exec", f"{POSTGRES}-0", "--", "psql", "-U", "postgres", "-At", "-c", encrypted
    )
    assert said.stdout.strip() == "t"


def test_a_backup_is_restored_while_work_runs(backed_up: RealCluster, stage: NodeStage) -> None:
    """The steps are those of docs/postgres.md."""
    stage.apply(stage.make_job("before", "while :; do sleep 1; done"))
    before = stage.until_state("before", State.RUNNING, 60)
    assert "fluxqueue-" in _run_job(backed_up, "backup", "backup-now")
    stage.apply(stage.make_job("since", "while :; do sleep 1; done"))
    since = stage.until_state("since", State.RUNNING, 60)
    backed_up.kubectl("-n", NAMESPACE, "scale", "deployment", "fluxqueue-queue", "--replicas=0")
    backed_up.until("the queue is gone", lambda: not backed_up.pods("queue"), 60)
    assert "restored fluxqueue-" in _run_job(backed_up, "restore", "restore-1")
    backed_up.kubectl("-n", NAMESPACE, "scale", "deployment", "fluxqueue-queue", "--replicas=2")
    backed_up.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/fluxqueue-queue", "--timeout=120s")
    again = [stage.until_state(name, State.RUNNING, 60) for name in ("before", "since")]
    assert [(row.jobid, row.ran_on) for row in again] == [(row.jobid, row.ran_on) for row in (before, since)]
    stage.until_consistent()
