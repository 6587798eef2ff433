"""Programs are killed, services are unavailable, people change their objects: nothing is lost, nothing runs
twice, nothing is left over.

The tests use a local cluster of their own, because they would disturb other tests: four nodes of 8 cpu. After
every fault the cluster, the queue and the matcher must become consistent again (`invariants`), and nothing
may be left at the end of each test.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from support.builders import JobBuilder, Json, make_job, make_pod
from support.chart_rendering import CHART
from support.end_to_end import Stage, managed_namespace, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.fluxion.messages import JobMode
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.components import Component
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster
from fluxqueue.local.postgres_binaries import find_postgres

RUN_SECONDS = "fluxqueue.local/run-seconds"
THEIRS = "example.com/wait"


@pytest.fixture(scope="module")
def fragile_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    cluster = InProcessCluster(service_folder / "failures", ClusterOptions(nodes=4, durable=False))
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def stage(fragile_cluster: InProcessCluster) -> Iterator[Stage]:
    with managed_namespace(fragile_cluster) as stage:
        yield stage


def job(name: str, nodes: int = 1, seconds: str = "0.5") -> JobBuilder:
    """A Job of whole nodes, one pod on each."""
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)


def gated(thing: JobBuilder, gate: str = THEIRS) -> JobBuilder:
    return thing.with_("spec.template.spec.schedulingGates", [{"name": gate}])


def open_gate(stage: Stage, pod: Pod) -> None:
    """Remove the gate of another controller."""
    left = [{"name": gate.name} for gate in pod.spec.scheduling_gates or () if gate.name != THEIRS]
    stage.kubectl(
        "patch",
        "pod",
        pod.metadata.name,
        "--type=merge",
        "-p",
        json.dumps({"spec": {"schedulingGates": left}}),
    )


def suspend(stage: Stage, name: str, yes: bool = True) -> None:
    stage.kubectl("patch", "job", name, "-p", json.dumps({"spec": {"suspend": yes}}))


def until_held(stage: Stage, name: str, pods: int) -> list[Pod]:
    """Wait until the pods of a Job exist and only the gate of another controller keeps them."""

    def held() -> list[Pod]:
        gated_pods = [
            pod
            for pod in stage.row(name).pods
            if [gate.name for gate in pod.spec.scheduling_gates or ()] == [THEIRS]
        ]
        return gated_pods if len(gated_pods) == pods else []

    return stage.until(f"only {THEIRS} keeps the pods of {name}", held)


def pinned_to(pod: Pod) -> str:
    """Return the one node that a pod may run on."""
    required = (pod.spec.affinity or {})["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((node,),) = [
        [value for field in term["matchFields"] for value in field["values"]]
        for term in required["nodeSelectorTerms"]
    ]
    return str(node)


@contextmanager
def releases_refused(stage: Stage) -> Iterator[None]:
    """Let an admission policy refuse to resume any Job of the namespace,
    so that granted work cannot be released.
    """
    name = f"no-resuming-in-{stage.namespace}"
    held = "oldObject.spec.?suspend.orValue(false) && !object.spec.?suspend.orValue(false)"
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}]
    group = "admissionregistration.k8s.io/v1"
    policy: Json = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [
                {"expression": f"!({held})", "reason": "Forbidden", "message": "nothing is resumed today"}
            ],
        },
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}
    binding: Json = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": here},
    }
    probe = make_job("probe").namespace(stage.namespace).suspended().label(names.MANAGED_LABEL, "false")
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(probe.build()))

    def refused() -> bool:
        done = stage.kubectl(
            "patch", "job", "probe", "--dry-run=server", "-p", '{"spec":{"suspend":false}}', check=False
        )
        return "nothing is resumed today" in done.stderr

    stage.cluster.control_plane.apply(policy, binding)
    try:
        stage.until("resuming is refused", refused)
        yield
    finally:
        stage.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
        stage.until("resuming is allowed again", lambda: not refused())
        stage.kubectl("delete", "job", "probe")


# ---- killed programs ---------------------------------------------------------------------------------------


def test_a_killed_queue_continues_where_it_stopped(stage: Stage) -> None:
    stage.apply(job("runs", 1, "forever").build())
    running = stage.until_state("runs", State.RUNNING)
    stage.apply(gated(job("allocated", 1)).build())
    (held,) = until_held(stage, "allocated", 1)
    with releases_refused(stage):
        stage.apply(job("unreleased", 1).build())
        stage.until_reason("unreleased", "ReleaseFailed")
        before = stage.row("unreleased")
        stage.apply(job("waits", 2).build())
        stage.until_reason("waits", "WaitingForNodes")
        queue = stage.cluster.programs["queue"]
        queue.stop(graceful=False)
    queue.start()
    stage.until_ready("queue")
    stage.until_state("unreleased", State.COMPLETED)
    stage.until_state("waits", State.COMPLETED)
    open_gate(stage, held)
    stage.until_state("allocated", State.COMPLETED)
    still = stage.row("runs")
    assert (still.state, still.hosts, still.pods[0].metadata.uid) == (
        State.RUNNING,
        running.hosts,
        running.pods[0].metadata.uid,
    )
    assert stage.row("allocated").pods[0].metadata.uid == held.metadata.uid
    assert stage.row("unreleased").hosts == before.hosts
    assert wrong([row for row in stage.rows() if row.example.name != "runs"]) == []
    stage.until_consistent()


def test_a_queue_killed_between_grant_and_release_does_nothing_twice(stage: Stage) -> None:
    """The queue is killed as soon as the table has a grant without a release, while more work arrives."""
    midway = "SELECT 1 FROM fluxqueue.allocation WHERE released_at IS NULL AND freed_at IS NULL"
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection,
    ):
        for wave in range(2):
            applied = pool.submit(
                stage.apply_all, *(job(f"burst-{wave}-{number}", 2).cpu("2").build() for number in range(6))
            )
            deadline = time.monotonic() + 20
            # that state lasts some milliseconds: no pause here
            while not connection.execute(midway).fetchone():
                assert time.monotonic() < deadline, "nothing was granted"
            stage.kill("queue")
            applied.result(60)
    rows = stage.until_settled(90)
    assert wrong(rows) == []
    assert [len(row.pods) for row in rows] == [2] * 12
    stage.until_consistent()


def test_a_killed_fluxion_is_filled_with_the_running_work(stage: Stage) -> None:
    stage.apply(job("runs", 2, "forever").build(), job("waits", 4).build())
    stage.until_state("runs", State.RUNNING)
    stage.until_reason("waits", "WaitingForNodes")
    before = stage.row("runs").hosts
    stage.kill("fluxion")
    stage.apply(job("queued-behind", 1).build())
    stage.until_reason("queued-behind", "BlockedByReservation")
    stage.until_consistent()
    assert stage.row("runs").hosts == before
    assert stage.row("waits").ran_on == []
    stage.kubectl("delete", "job", "runs")
    assert wrong([stage.until_state(name, State.COMPLETED) for name in ("waits", "queued-behind")]) == []
    stage.until_consistent()


def test_the_queue_reports_that_fluxion_is_unavailable_and_nothing_is_lost(stage: Stage) -> None:
    fluxion = stage.cluster.programs["fluxion"]
    fluxion.stop(graceful=False)
    try:
        stage.apply(job("patient").build())
        missing = stage.until_missed("fluxion")
        assert str(fluxion.port) in missing
        waits = stage.until_reason("patient", "WaitingForNodes")
        assert waits.status.message.startswith("nothing is started at present: ")
        assert stage.row("patient").ran_on == []
    finally:
        fluxion.start()
    assert wrong([stage.until_state("patient", State.COMPLETED)]) == []
    stage.until_ready("queue")


def test_without_postgres_running_work_continues_and_applied_work_is_kept(stage: Stage) -> None:
    postgres = stage.cluster.postgres
    stage.apply(job("runs", 1, "forever").build())
    stage.until_state("runs", State.RUNNING)
    postgres.stop()
    try:
        stage.apply(job("meanwhile").build())
        missing = stage.until_missed("postgres")
        assert "Postgres" in missing
        assert stage.job("meanwhile").spec.suspend is True
        stage.succeed("runs")
        stage.until("what ran is done", lambda: stage.job("runs").finished)
        stage.apply(job("deleted").build())
        stage.kubectl("delete", "job", "deleted")
        stage.examples.pop()
    finally:
        postgres.start()
    stage.until_state("meanwhile", State.COMPLETED, 60)
    stage.until_state("runs", State.COMPLETED)
    assert wrong(stage.rows()) == []
    stage.until_ready("queue")
    stage.until_consistent()


def test_the_queue_watches_a_killed_api_server_again(stage: Stage) -> None:
    stage.apply(job("runs", 2, "forever").build(), job("waits", 4).build())
    stage.until_state("runs", State.RUNNING)
    stage.until_reason("waits", "WaitingForNodes")
    before = stage.row("runs").hosts
    cluster = stage.cluster.control_plane
    cluster.stop_component(Component.API_SERVER, graceful=False)
    try:
        address = cluster.server.removeprefix("https://")
        stage.until(
            "the queue misses the API server by its address",
            lambda: address in stage.queue_misses().get("api-server", ""),
        )
    finally:
        cluster.start_component(Component.API_SERVER)
    path = f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"
    stage.until("FluxJobs are served again", lambda: cluster.client.reachable(path))
    stage.apply(job("behind").build())
    stage.until_reason("behind", "BlockedByReservation")
    assert stage.row("runs").hosts == before
    stage.until_consistent()
    stage.kubectl("delete", "job", "runs")
    # the controllers of Kubernetes themselves wait up to a minute after a broken watch
    assert wrong([stage.until_state(name, State.COMPLETED, 180) for name in ("waits", "behind")]) == []
    stage.until_ready("queue", "webhook")


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """Postgres has no room for rows: each insert or update fails with the error of a full disk (53100)."""
    full = """
    CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END $$;
    CREATE TRIGGER full_workload BEFORE INSERT OR UPDATE ON fluxqueue.workload EXECUTE FUNCTION public.full();
    CREATE TRIGGER full_transition BEFORE INSERT ON fluxqueue.transition EXECUTE FUNCTION public.full();
    """
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        connection.execute(full.encode())
        try:
            yield
        finally:
            connection.execute("DROP FUNCTION public.full CASCADE")


def test_while_the_disk_of_postgres_is_full_nothing_is_lost_and_work_resumes_later(stage: Stage) -> None:
    stage.apply(job("ends", 1, "forever").build())
    stage.until_state("ends", State.RUNNING)
    queue = stage.cluster.programs["queue"].process
    before = queue.pid
    with disk_full(stage):
        stage.apply(job("meanwhile", 2).build())
        stage.succeed("ends")
        stage.until("the Job has ended", lambda: stage.job("ends").finished)
        stage.until("the queue says why", lambda: "No space left on device" in queue.log_text())
        assert stage.job("meanwhile").spec.suspend is True
    rows = [stage.until_state(name, State.COMPLETED) for name in ("ends", "meanwhile")]
    assert wrong(rows) == []
    assert queue.pid == before, "there was no reason to start anew"
    stage.until_consistent()


@contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    """Postgres only reads, as a standby does, or a server whose administrator has frozen it."""
    with psycopg.connect(stage.cluster.database_dsn, autocommit=True) as connection:
        name = conninfo_to_dict(stage.cluster.database_dsn)["dbname"]
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
        try:
            yield
        finally:
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
            connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())


def test_while_postgres_only_reads_the_queue_waits_and_says_so(stage: Stage) -> None:
    stage.apply(job("ends", 1, "forever").build())
    stage.until_state("ends", State.RUNNING)
    queue = stage.cluster.programs["queue"].process
    before = queue.pid
    with frozen(stage):
        stage.until(
            "the queue says why",
            lambda: "or its administrator has frozen it" in stage.queue_misses().get("postgres", ""),
            90,
            stage.queue_misses,
        )
        stage.apply(job("meanwhile", 2).build())
        stage.succeed("ends")
        stage.until("the Job has ended", lambda: stage.job("ends").finished)
        assert stage.job("meanwhile").spec.suspend is True
    rows = [stage.until_state(name, State.COMPLETED) for name in ("ends", "meanwhile")]
    assert wrong(rows) == []
    assert queue.pid == before, "there was no reason to start anew"
    assert "controller.restarted" not in queue.log_text()
    stage.until_ready("queue")
    stage.until_consistent()


def _run_script(cluster: InProcessCluster, name: str) -> None:
    """Run a script of the chart's Postgres against the cluster's database, as its CronJobs do."""
    folder = cluster.folder / "dumps"
    folder.mkdir(exist_ok=True)
    address = {
        key: str(value) for key, value in conninfo_to_dict(cluster.database_dsn).items() if value is not None
    }
    variables = {
        "PGHOST": address["host"],
        "PGUSER": address["user"],
        "PGDATABASE": address["dbname"],
        "PGPORT": address.get("port", "5432"),
    }
    path = os.pathsep.join((str(find_postgres().folder), os.defpath))
    environment = {"PATH": path, "BACKUPS": str(folder), "KEEP": "2", **variables}
    done = subprocess.run(
        ["sh", CHART / "files" / "postgres" / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


def test_work_released_after_the_restored_backup_of_postgres_is_adopted(stage: Stage) -> None:
    """The steps are those of `docs/postgres.md`, with the scripts of the chart's CronJobs:
    no queue runs during the restore.
    """
    cluster, queue = stage.cluster, stage.cluster.programs["queue"]
    stage.apply(job("before", 1, "forever").build())
    before = stage.until_state("before", State.RUNNING)
    _run_script(cluster, "backup.sh")
    pod = make_pod("pod").cpu("8").with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, "forever")
    stage.apply(job("pinned", 1, "forever").build(), pod.build())
    rows = [stage.until_state(name, State.RUNNING) for name in ("pinned", "pod")]
    queue.stop()
    try:
        _run_script(cluster, "restore.sh")
    finally:
        queue.start()
    stage.until_ready("queue")
    stage.apply(job("fits", 1, "forever").build(), job("waits", 1).build())
    fits = stage.until_state("fits", State.RUNNING)
    stage.until_reason("waits", "WaitingForNodes")
    again = [stage.until_state(name, State.RUNNING) for name in ("before", "pinned", "pod")]
    assert [(row.hosts, row.ran_on) for row in again] == [(row.hosts, row.ran_on) for row in (before, *rows)]
    assert fits.fluxjob is not None
    assert fits.fluxjob.status.jobid not in [row.fluxjob.status.jobid for row in again if row.fluxjob], (
        "an id was given out twice"
    )
    stage.until_consistent()
    stage.kubectl("delete", "job", "pinned")
    stage.until_state("waits", State.COMPLETED)


# ---- the webhook -------------------------------------------------------------------------------------------


def test_without_a_webhook_only_unmanaged_namespaces_accept_jobs(stage: Stage) -> None:
    stage.apply(job("blocks", 4, "forever").build())
    stage.until_state("blocks", State.RUNNING)
    stage.apply(job("released-meanwhile", 2).build())
    stage.until_reason("released-meanwhile", "WaitingForNodes")
    webhook = stage.cluster.programs["webhook"]
    webhook.stop(graceful=False)
    try:
        refused = stage.kubectl(
            "create",
            "-f",
            "-",
            stdin=json.dumps(job("refused").namespace(stage.namespace).build()),
            check=False,
        )
        assert refused.returncode != 0
        assert 'failed calling webhook "mutate.fluxqueue.jobs.converged-computing.org"' in refused.stderr
        assert "connection refused" in refused.stderr
        elsewhere = job("elsewhere").namespace("default").build()
        assert stage.cluster.kubectl("create", "-f", "-", stdin=json.dumps(elsewhere)).returncode == 0
        stage.cluster.kubectl("delete", "job", "elsewhere", "-n", "default")
        stage.kubectl("delete", "job", "blocks")
        stage.until_state("released-meanwhile", State.ALLOCATED)
        assert stage.row("released-meanwhile").pods == ()
    finally:
        webhook.start()
    stage.until_ready("webhook")
    stage.apply(job("refused").build())
    stage.until_state("refused", State.COMPLETED)
    stage.until_state("released-meanwhile", State.COMPLETED, 60)
    assert wrong([stage.row("refused"), stage.row("released-meanwhile")]) == []


def test_a_webhook_whose_certificate_is_deleted_gets_a_new_one(stage: Stage) -> None:
    cluster = stage.cluster
    secrets = cluster.control_plane.client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
    (name,) = [secret["metadata"]["name"] for secret in secrets if "ca.key" in secret.get("data", {})]
    webhook = cluster.programs["webhook"]
    webhook.stop(graceful=False)
    cluster.kubectl("delete", "secret", name, "-n", NAMESPACE)
    webhook.start()
    stage.until_ready("webhook")
    assert cluster.control_plane.client.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}") is not None
    stage.apply(job("admitted").build())
    assert wrong([stage.until_state("admitted", State.COMPLETED)]) == []


# ---- changes by people -------------------------------------------------------------------------------------


def test_a_job_deleted_between_match_and_release_leaves_nothing(stage: Stage) -> None:
    with releases_refused(stage):
        stage.apply(job("matched", 3).build())
        fluxjob = stage.until_reason("matched", "ReleaseFailed")
        assert fluxjob.status.state == State.ALLOCATED
        assert "nothing is resumed today" in fluxjob.status.message
        assert [info.jobid for info in stage.fluxion_jobs()] == [fluxjob.status.jobid]
        stage.kubectl("delete", "job", "matched")
        stage.until_nothing_left()


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_job_deleted_between_release_and_bind_leaves_nothing(cascade: str, stage: Stage) -> None:
    stage.apply(gated(job("released", 3)).build())
    until_held(stage, "released", 3)
    stage.kubectl("delete", "job", "released", f"--cascade={cascade}")
    stage.until_nothing_left()


def test_the_orphaned_pods_of_a_deleted_job_keep_their_slots(stage: Stage) -> None:
    """With ``--cascade=orphan`` the Job is deleted and its pods continue to run.
    Their slots stay booked until they end.
    """
    stage.apply(job("left-behind", 2, "forever").build())
    row = stage.until_state("left-behind", State.RUNNING)
    stage.kubectl("delete", "job", "left-behind", "--cascade=orphan")
    stage.apply(job("waits", 3).build())
    stage.until_reason("waits", "WaitingForNodes")
    allocated = [info for info in stage.fluxion_jobs() if info.mode is JobMode.ALLOCATED]
    assert sorted(share.node for info in allocated for share in info.shares) == sorted(row.hosts)
    stage.kubectl("delete", "pod", *(pod.metadata.name for pod in row.pods))
    assert wrong([stage.until_state("waits", State.COMPLETED)]) == []
    stage.kubectl("delete", "fluxjob", row.fluxjob.metadata.name if row.fluxjob else "", "--ignore-not-found")


def test_a_job_edited_after_its_match_is_matched_with_its_new_request(stage: Stage) -> None:
    with releases_refused(stage):
        stage.apply(job("edited").pods(2, 2).build())
        stage.until_reason("edited", "ReleaseFailed")
        stage.kubectl("patch", "job", "edited", "-p", '{"spec":{"parallelism":1}}')
    row = stage.until_state("edited", State.COMPLETED, 60)
    assert len(row.hosts) == 1
    stage.until(
        "it was requeued for it", lambda: (now := stage.row("edited").fluxjob) and now.status.requeues >= 1
    )
    stage.until_consistent()


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_the_pods_of_a_queued_job_resumed_by_its_user_are_gated_until_its_release(
    mode: str, stage: Stage
) -> None:
    stage.apply(job("blocks", 4, "forever").build())
    stage.until_state("blocks", State.RUNNING)
    stage.apply(job("impatient", 3).with_("spec.completionMode", mode).build())
    stage.until_reason("impatient", "WaitingForNodes")
    suspend(stage, "impatient", False)
    stage.until("its pods are there", lambda: len(stage.row("impatient").pods) == 3)
    assert all(
        pod.spec.gated_by(names.GATE) and not pod.spec.node_name for pod in stage.row("impatient").pods
    )
    assert stage.row("impatient").state == State.PENDING
    stage.kubectl("delete", "job", "blocks")
    assert wrong([stage.until_state("impatient", State.COMPLETED)]) == []


def test_a_running_job_that_its_user_suspends_frees_its_nodes_until_it_is_resumed(stage: Stage) -> None:
    stage.apply(job("paused", 3, "forever").build())
    stage.until_state("paused", State.RUNNING)
    suspend(stage, "paused")
    stage.until_state("paused", State.PENDING)
    stage.until_reason("paused", "UserSuspended")
    stage.until("Fluxion holds nothing", lambda: not stage.fluxion_jobs())
    document = stage.cluster.control_plane.client.get(
        f"/apis/batch/v1/namespaces/{stage.namespace}/jobs/paused"
    )
    for metadata in (document["metadata"], document["spec"]["template"]["metadata"]):
        assert not {*metadata.get("annotations", {}), *metadata.get("labels", {})} & {*names.ALLOCATION_KEYS}
    stage.apply(job("instead", 4).build())
    stage.until_state("instead", State.COMPLETED)
    suspend(stage, "paused", False)
    row = stage.until_state("paused", State.RUNNING)
    assert len(row.hosts) == 3
    assert row.ran_on == row.hosts
    stage.until_consistent()


def test_a_running_job_that_its_user_suspends_and_resumes_at_once_runs_again(stage: Stage) -> None:
    """Until the queue has taken the allocation back, the resumption is refused with the reason;
    from then on it counts.
    """
    stage.apply(job("at-once", 2, "forever").build())
    stage.until_state("at-once", State.RUNNING)
    suspend(stage, "at-once")

    def resumed() -> bool:
        done = stage.kubectl("patch", "job", "at-once", "-p", '{"spec": {"suspend": false}}', check=False)
        assert done.returncode == 0 or "fluxqueue" in done.stderr, done.stderr
        return bool(done.returncode == 0)

    stage.until("the resumption is accepted", resumed)
    stage.until("both pods run again", lambda: len(stage.until_state("at-once", State.RUNNING).hosts) == 2)
    assert not stage.job("at-once").spec.suspend
    stage.until_consistent()


def test_a_job_suspended_before_its_pods_are_bound_frees_its_nodes(stage: Stage) -> None:
    stage.apply(gated(job("paused", 3)).build())
    until_held(stage, "paused", 3)
    suspend(stage, "paused")
    stage.until_reason("paused", "UserSuspended")
    stage.until("Fluxion holds nothing", lambda: not stage.fluxion_jobs())


# ---- gates of other controllers ----------------------------------------------------------------------------


def test_the_gate_of_another_controller_stays_on_a_pod_and_its_slot_is_kept(stage: Stage) -> None:
    pod = (
        make_pod("held")
        .cpu("8")
        .gate(THEIRS)
        .with_("spec.restartPolicy", "Never")
        .annotation(RUN_SECONDS, "0.5")
    )
    stage.apply(pod.build())
    (held,) = until_held(stage, "held", 1)
    row = stage.until_state("held", State.ALLOCATED)
    assert [pinned_to(held)] == row.hosts
    stage.apply(job("takes-the-rest", 3, "forever").build())
    assert stage.until_state("takes-the-rest", State.RUNNING).hosts.count(row.hosts[0]) == 0
    stage.apply(job("waits").build())
    stage.until_reason("waits", "WaitingForNodes")
    open_gate(stage, held)
    assert (
        wrong([stage.until_state("held", State.COMPLETED), stage.until_state("waits", State.COMPLETED)]) == []
    )


@pytest.mark.parametrize("shape", ["pinned", "released pod by pod"])
def test_the_gate_of_another_controller_stays_on_the_pods_of_a_job(shape: str, stage: Stage) -> None:
    group = gated(job("group", 3))
    stage.apply((group if shape == "pinned" else group.annotation(names.REPLACE_ANNOTATION, "pod")).build())
    held = until_held(stage, "group", 3)
    row = stage.until_state("group", State.ALLOCATED)
    assert [pinned_to(pod) for pod in held] == row.hosts
    for pod in held:
        open_gate(stage, pod)
    assert wrong([stage.until_state("group", State.COMPLETED)]) == []
