"""Two queues whose Postgres is behind PgBouncer with transaction pooling: work runs, and goes on after a
failover and a restart of both.

The tests use a local cluster of their own. Its queues reach Postgres by the pooler, and directly only for
what needs a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support.builders import JobBuilder, make_job
from support.end_to_end import Stage, managed_namespace
from support.poolers import Pooler, pooler_of
from support.replicas import asked, leader, queues

from fluxqueue.api.fluxjobs import State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.postgres import LocalPostgres


@pytest.fixture(scope="module")
def server(service_folder: Path) -> Iterator[LocalPostgres]:
    server = LocalPostgres(service_folder / "behind-a-pooler", durable=False)
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="module")
def database_pooler(server: LocalPostgres, service_folder: Path) -> Iterator[Pooler]:
    with pooler_of(server, service_folder) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    server: LocalPostgres, database_pooler: Pooler, service_folder: Path
) -> Iterator[InProcessCluster]:
    direct = server.database_dsn("fluxqueue")
    variables = {"DATABASE_URL": database_pooler.dsn(direct), "DATABASE_DIRECT_URL": direct}
    options = ClusterOptions(nodes=4, queue_replicas=2, dsn=server.dsn)
    cluster = InProcessCluster(service_folder / "pooled", options, extra_environment=variables)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(cluster: InProcessCluster) -> Iterator[Stage]:
    # where this is developed there is no pooler to try it with
    with managed_namespace(cluster, statements=False) as stage:
        stage.until(
            "both queues are ready, and one leads", lambda: _roles(cluster) == ["follower", "leader"], 60
        )
        yield stage


def _roles(cluster: InProcessCluster) -> list[str]:
    return sorted(answer["role"] for name in queues(cluster) if (answer := asked(cluster, name))["ready"])


def _job(name: str) -> JobBuilder:
    return make_job(name).indexed(2).cpu("8").pod_annotation("fluxqueue.local/run-seconds", "1")


def test_work_runs_and_only_what_needs_a_session_is_direct(stage: Stage, server: LocalPostgres) -> None:
    stage.apply(*(_job(f"job-{number}").build() for number in range(4)))
    for number in range(4):
        stage.until_state(f"job-{number}", State.COMPLETED, 60)
    with psycopg.connect(server.dsn) as connection:
        query = (
            "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = 'fluxqueue' GROUP BY 1"
        )
        sessions: dict[str, int] = dict(connection.execute(query).fetchall())
    assert sessions["fluxqueue"] <= 4, "more sessions than the pooler has: some were direct"
    assert sessions.keys() == {"fluxqueue", "fluxqueue-tasks"}


def test_the_other_queue_takes_over_through_the_pooler(stage: Stage) -> None:
    former = leader(stage.cluster)
    assert former is not None
    stage.cluster.programs[former].stop(graceful=False)
    try:
        (other,) = [name for name in queues(stage.cluster) if name != former]
        stage.until(f"{other} leads", lambda: asked(stage.cluster, other)["role"] == "leader", 30)
        stage.apply(_job("after-failover").build())
        stage.until_state("after-failover", State.COMPLETED, 60)
    finally:
        stage.cluster.programs[former].start()


def test_work_goes_on_after_a_restart_of_pooler_and_postgres(
    stage: Stage, server: LocalPostgres, database_pooler: Pooler
) -> None:
    database_pooler.process.stop()
    server.stop()
    server.start()
    database_pooler.process.start()
    stage.apply(_job("after-restart").build())
    stage.until_state("after-restart", State.COMPLETED, 90)
    stage.until_consistent()
