"""Programs die, services go away, people change their minds: nothing is lost, nothing runs twice, nothing leaks.

On a plane of its own, because other tests could not stand it: four nodes of 8 cpu. After every blow the cluster, the queue and the matcher
must come to tell the same story again (`invariants`), and at the end of each test nothing may be left of it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from builders import JobBuilder, Json, make_job, make_pod
from end_to_end import Stage, managed_namespace, wrong

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.objects import Pod
from fluxqueue.fluxion.messages import Mode
from fluxqueue.local.controlplane import Component
from fluxqueue.local.inprocess import NAMESPACE, InProcessPlane, PlaneOptions
from fluxqueue.local.postgres import find_postgres

RUN_SECONDS = "fluxqueue.local/run-seconds"
THEIRS = "example.com/wait"


@pytest.fixture(scope="module")
def fragile_plane(service_folder: Path) -> Iterator[InProcessPlane]:
    plane = InProcessPlane(service_folder / "failures", PlaneOptions(nodes=4, durable=False))
    plane.start()
    yield plane
    plane.destroy()


@pytest.fixture
def stage(fragile_plane: InProcessPlane) -> Iterator[Stage]:
    with managed_namespace(fragile_plane) as stage:
        yield stage


def job(name: str, nodes: int = 1, seconds: str = "1") -> JobBuilder:
    """Whole nodes, one pod on each."""
    return make_job(name).indexed(nodes).cpu("8").pod_annotation(RUN_SECONDS, seconds)


def gated(thing: JobBuilder, gate: str = THEIRS) -> JobBuilder:
    return thing.with_("spec.template.spec.schedulingGates", [{"name": gate}])


def open_gate(stage: Stage, pod: Pod) -> None:
    """Somebody else removes his gate."""
    left = [{"name": gate.name} for gate in pod.spec.scheduling_gates or () if gate.name != THEIRS]
    stage.kubectl("patch", "pod", pod.metadata.name, "--type=merge", "-p", json.dumps({"spec": {"schedulingGates": left}}))


def suspend(stage: Stage, name: str, yes: bool = True) -> None:
    stage.kubectl("patch", "job", name, "-p", json.dumps({"spec": {"suspend": yes}}))


def until_held(stage: Stage, name: str, pods: int) -> list[Pod]:
    """Wait until a Job's pods are there, and nothing but somebody else's gate keeps them."""

    def held() -> list[Pod]:
        found = [pod for pod in stage.row(name).pods if [gate.name for gate in pod.spec.scheduling_gates or ()] == [THEIRS]]
        return found if len(found) == pods else []

    return stage.until(f"only {THEIRS} keeps the pods of {name}", held)


def pinned_to(pod: Pod) -> str:
    """The one node a pod may run on."""
    required = (pod.spec.affinity or {})["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((node,),) = [[value for field in term["matchFields"] for value in field["values"]] for term in required["nodeSelectorTerms"]]
    return str(node)


@contextmanager
def releases_refused(stage: Stage) -> Iterator[None]:
    """Someone's admission policy lets no Job of the namespace be resumed: what is granted cannot be released."""
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
            "validations": [{"expression": f"!({held})", "reason": "Forbidden", "message": "nothing is resumed today"}],
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
        done = stage.kubectl("patch", "job", "probe", "--dry-run=server", "-p", '{"spec":{"suspend":false}}', check=False)
        return "nothing is resumed today" in done.stderr

    stage.plane.control_plane.apply(policy, binding)
    try:
        stage.until("resuming is refused", refused)
        yield
    finally:
        stage.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
        stage.until("resuming is allowed again", lambda: not refused())
        stage.kubectl("delete", "job", "probe")


# ---- programs that die -----------------------------------------------------------------------------------------------------------------


def test_a_queue_that_is_killed_goes_on_where_it_stopped(stage: Stage) -> None:
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
        queue = stage.plane.programs["queue"]
        queue.stop(graceful=False)
    queue.start()
    stage.until_ready("queue")
    stage.until_state("unreleased", State.COMPLETED, 15)
    stage.until_state("waits", State.COMPLETED)
    open_gate(stage, held)
    stage.until_state("allocated", State.COMPLETED)
    still = stage.row("runs")
    assert (still.state, still.hosts, still.pods[0].metadata.uid) == (State.RUNNING, running.hosts, running.pods[0].metadata.uid)
    assert stage.row("allocated").pods[0].metadata.uid == held.metadata.uid
    assert stage.row("unreleased").hosts == before.hosts
    assert wrong([row for row in stage.rows() if row.example.name != "runs"]) == []
    stage.until_consistent()


def test_a_queue_that_is_killed_while_it_stores_and_releases_does_nothing_twice(stage: Stage) -> None:
    """Struck as soon as the table shows a grant that is not noted as released, while more work comes in."""
    midway = "SELECT 1 FROM fluxqueue.allocation WHERE released_at IS NULL AND freed_at IS NULL"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(stage.plane.database_dsn, autocommit=True) as connection:
        for wave in range(2):
            applied = pool.submit(stage.apply_all, *(job(f"burst-{wave}-{number}", 2).cpu("2").build() for number in range(6)))
            deadline = time.monotonic() + 20
            while not connection.execute(midway).fetchone():  # it lasts some milliseconds: no pause here
                assert time.monotonic() < deadline, "nothing was granted"
            stage.kill("queue")
            applied.result(60)
    rows = stage.until_settled(90)
    assert wrong(rows) == []
    assert [len(row.pods) for row in rows] == [2] * 12
    stage.until_consistent()


def test_fluxion_killed_is_filled_with_what_runs(stage: Stage) -> None:
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
    stage.until_state("queued-behind", State.COMPLETED)
    assert wrong([stage.row("waits"), stage.row("queued-behind")]) == []
    stage.until_consistent()


def test_the_queue_says_that_fluxion_is_away_and_nothing_is_lost(stage: Stage) -> None:
    fluxion = stage.plane.programs["fluxion"]
    fluxion.stop(graceful=False)
    try:
        stage.apply(job("patient").build())
        missing = stage.until_missed("fluxion")
        assert str(fluxion.port) in missing
        assert stage.row("patient").ran_on == []
    finally:
        fluxion.start()
    assert wrong([stage.until_state("patient", State.COMPLETED)]) == []
    stage.until_ready("queue")


def test_while_postgres_is_away_what_runs_goes_on_and_what_is_applied_is_kept(stage: Stage) -> None:
    postgres = stage.plane.postgres
    stage.apply(job("runs", 1, "8").build())
    stage.until_state("runs", State.RUNNING)
    postgres.stop()
    try:
        stage.apply(job("meanwhile").build())
        missing = stage.until_missed("postgres")
        assert "Postgres" in missing
        assert stage.job("meanwhile").spec.suspend is True
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


def test_an_api_server_that_is_killed_is_watched_again(stage: Stage) -> None:
    stage.apply(job("runs", 2, "forever").build(), job("waits", 4).build())
    stage.until_state("runs", State.RUNNING)
    stage.until_reason("waits", "WaitingForNodes")
    before = stage.row("runs").hosts
    plane = stage.plane.control_plane
    plane.stop_component(Component.API_SERVER, graceful=False)
    try:
        address = plane.server.removeprefix("https://")
        stage.until("the queue misses the API server by its address", lambda: address in stage.queue_misses().get("api-server", ""))
    finally:
        plane.start_component(Component.API_SERVER)
    path = f"/apis/{names.API_VERSION}/{names.FLUXJOBS}"
    stage.until("FluxJobs are served again", lambda: plane.client.reachable(path))
    stage.apply(job("behind").build())
    stage.until_reason("behind", "BlockedByReservation", 60)
    assert stage.row("runs").hosts == before
    stage.until_consistent()
    stage.kubectl("delete", "job", "runs")
    stage.until_state("behind", State.COMPLETED, 60)
    assert wrong([stage.row("waits"), stage.row("behind")]) == []
    stage.until_ready("queue", "webhook")


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """Postgres has no room for rows: each write of one ends as the server ends it then (53100)."""
    full = """
    CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER full_workload BEFORE INSERT OR UPDATE ON fluxqueue.workload EXECUTE FUNCTION public.full();
    CREATE TRIGGER full_transition BEFORE INSERT ON fluxqueue.transition EXECUTE FUNCTION public.full();
    """
    with psycopg.connect(stage.plane.database_dsn, autocommit=True) as connection:
        connection.execute(full.encode())
        try:
            yield
        finally:
            connection.execute("DROP FUNCTION public.full CASCADE")


def test_while_postgres_has_no_room_nothing_is_lost_and_afterwards_all_goes_on(stage: Stage) -> None:
    stage.apply(job("ends", 1, "2").build())
    stage.until_state("ends", State.RUNNING)
    queue = stage.plane.programs["queue"].process
    before = queue.pid
    with disk_full(stage):
        stage.apply(job("meanwhile", 2).build())
        stage.until("the Job has ended", lambda: stage.job("ends").finished)
        stage.until("the queue says why", lambda: "No space left on device" in queue.log_text())
        assert stage.job("meanwhile").spec.suspend is True
    rows = [stage.until_state(name, State.COMPLETED) for name in ("ends", "meanwhile")]
    assert wrong(rows) == []
    assert queue.pid == before, "there was no reason to start anew"
    stage.until_consistent()


def test_work_released_since_the_backup_that_postgres_is_restored_from_is_adopted(stage: Stage) -> None:
    """As `docs/reliability.md` tells it: no queue runs while the database is restored."""
    plane, queue = stage.plane, stage.plane.programs["queue"]
    stage.apply(job("before", 1, "forever").build())
    before = stage.until_state("before", State.RUNNING)
    backup = plane.folder / "backup.dump"
    postgres = find_postgres()
    subprocess.run([postgres.program("pg_dump"), "--format=custom", f"--file={backup}", plane.database_dsn], check=True, timeout=60)
    pod = make_pod("pod").cpu("8").with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, "forever")
    stage.apply(job("pinned", 1, "forever").build(), pod.build())
    rows = [stage.until_state(name, State.RUNNING) for name in ("pinned", "pod")]
    queue.stop()
    try:
        with psycopg.connect(plane.database_dsn, autocommit=True) as connection:
            connection.execute("DROP SCHEMA fluxqueue, procrastinate CASCADE")
        program = postgres.program("pg_restore")
        subprocess.run([program, "--exit-on-error", f"--dbname={plane.database_dsn}", backup], check=True, timeout=60)
    finally:
        queue.start()
    stage.until_ready("queue")
    stage.apply(job("fits", 1, "forever").build(), job("waits", 1).build())
    fits = stage.until_state("fits", State.RUNNING)
    stage.until_reason("waits", "WaitingForNodes")
    again = [stage.until_state(name, State.RUNNING) for name in ("before", "pinned", "pod")]
    assert [(row.hosts, row.ran_on) for row in again] == [(row.hosts, row.ran_on) for row in (before, *rows)]
    assert fits.fluxjob is not None
    assert fits.fluxjob.status.jobid not in [row.fluxjob.status.jobid for row in again if row.fluxjob], "an id was given out twice"
    stage.until_consistent()
    stage.kubectl("delete", "job", "pinned")
    stage.until_state("waits", State.COMPLETED)


# ---- the webhook -----------------------------------------------------------------------------------------------------------------------


def test_without_a_webhook_managed_namespaces_take_no_jobs_and_others_do(stage: Stage) -> None:
    stage.apply(job("blocks", 4, "forever").build())
    stage.until_state("blocks", State.RUNNING)
    stage.apply(job("released-meanwhile", 2).build())
    stage.until_reason("released-meanwhile", "WaitingForNodes")
    webhook = stage.plane.programs["webhook"]
    webhook.stop(graceful=False)
    try:
        refused = stage.kubectl("create", "-f", "-", stdin=json.dumps(job("refused").namespace(stage.namespace).build()), check=False)
        assert refused.returncode != 0
        assert 'failed calling webhook "mutate.fluxqueue.jobs.converged-computing.org"' in refused.stderr
        assert "connection refused" in refused.stderr
        elsewhere = job("elsewhere").namespace("default").build()
        assert stage.plane.kubectl("create", "-f", "-", stdin=json.dumps(elsewhere)).returncode == 0
        stage.plane.kubectl("delete", "job", "elsewhere", "-n", "default")
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


def test_a_webhook_that_lost_its_certificate_gets_a_new_one(stage: Stage) -> None:
    plane = stage.plane
    secrets = plane.control_plane.client.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
    (name,) = [secret["metadata"]["name"] for secret in secrets if "tls.crt" in secret.get("data", {})]
    webhook = plane.programs["webhook"]
    webhook.stop(graceful=False)
    plane.kubectl("delete", "secret", name, "-n", NAMESPACE)
    webhook.start()
    stage.until_ready("webhook")
    assert plane.control_plane.client.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}") is not None
    stage.apply(job("admitted").build())
    assert wrong([stage.until_state("admitted", State.COMPLETED)]) == []


# ---- people that change their minds ----------------------------------------------------------------------------------------------------


def test_a_job_deleted_after_it_was_matched_and_before_it_is_released_leaves_nothing(stage: Stage) -> None:
    with releases_refused(stage):
        stage.apply(job("matched", 3).build())
        fluxjob = stage.until_reason("matched", "ReleaseFailed")
        assert fluxjob.status.state == State.ALLOCATED
        assert "nothing is resumed today" in fluxjob.status.message
        assert [info.jobid for info in stage.fluxion_jobs()] == [fluxjob.status.jobid]
        stage.kubectl("delete", "job", "matched")
        stage.until_nothing_left()


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_job_deleted_after_it_was_released_and_before_it_is_bound_leaves_nothing(cascade: str, stage: Stage) -> None:
    stage.apply(gated(job("released", 3)).build())
    until_held(stage, "released", 3)
    stage.kubectl("delete", "job", "released", f"--cascade={cascade}")
    stage.until_nothing_left()


def test_the_pods_of_a_job_deleted_without_them_keep_their_places(stage: Stage) -> None:
    """``--cascade=orphan``: the Job goes, its pods run on, and what they stand on stays taken until they end."""
    stage.apply(job("left-behind", 2, "forever").build())
    row = stage.until_state("left-behind", State.RUNNING)
    stage.kubectl("delete", "job", "left-behind", "--cascade=orphan")
    stage.apply(job("waits", 3).build())
    stage.until_reason("waits", "WaitingForNodes")
    allocated = [info for info in stage.fluxion_jobs() if info.mode is Mode.ALLOCATED]
    assert sorted(share.node for info in allocated for share in info.shares) == sorted(row.hosts)
    stage.kubectl("delete", "pod", *(pod.metadata.name for pod in row.pods))
    assert wrong([stage.until_state("waits", State.COMPLETED)]) == []
    stage.kubectl("delete", "fluxjob", row.fluxjob.metadata.name if row.fluxjob else "", "--ignore-not-found")


def test_a_job_edited_after_it_was_matched_is_matched_as_it_is_then(stage: Stage) -> None:
    with releases_refused(stage):
        stage.apply(job("edited").pods(2, 2).build())
        stage.until_reason("edited", "ReleaseFailed")
        stage.kubectl("patch", "job", "edited", "-p", '{"spec":{"parallelism":1}}')
    row = stage.until_state("edited", State.COMPLETED, 60)
    assert len(row.hosts) == 1
    assert row.fluxjob is not None
    assert row.fluxjob.status.requeues == 1
    stage.until_consistent()


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_queued_job_resumed_by_its_user_comes_gated_and_is_let_go_onto_its_places(mode: str, stage: Stage) -> None:
    stage.apply(job("blocks", 4, "forever").build())
    stage.until_state("blocks", State.RUNNING)
    stage.apply(job("impatient", 3).with_("spec.completionMode", mode).build())
    stage.until_reason("impatient", "WaitingForNodes")
    suspend(stage, "impatient", False)
    stage.until("its pods are there", lambda: len(stage.row("impatient").pods) == 3)
    assert all(pod.spec.gated_by(names.GATE) and not pod.spec.node_name for pod in stage.row("impatient").pods)
    assert stage.row("impatient").state == State.PENDING
    stage.kubectl("delete", "job", "blocks")
    assert wrong([stage.until_state("impatient", State.COMPLETED)]) == []


def test_a_running_job_suspended_by_its_user_gives_its_nodes_back_until_he_resumes_it(stage: Stage) -> None:
    stage.apply(job("paused", 3, "forever").build())
    stage.until_state("paused", State.RUNNING)
    suspend(stage, "paused")
    stage.until_state("paused", State.PENDING)
    stage.until_reason("paused", "UserSuspended")
    stage.until("Fluxion holds nothing", lambda: not stage.fluxion_jobs())
    document = stage.plane.control_plane.client.get(f"/apis/batch/v1/namespaces/{stage.namespace}/jobs/paused")
    for metadata in (document["metadata"], document["spec"]["template"]["metadata"]):
        assert not {*metadata.get("annotations", {}), *metadata.get("labels", {})} & {*names.ALLOCATION_KEYS}
    stage.apply(job("instead", 4).build())
    stage.until_state("instead", State.COMPLETED)
    suspend(stage, "paused", False)
    row = stage.until_state("paused", State.RUNNING)
    assert len(row.hosts) == 3
    assert row.ran_on == row.hosts
    stage.until_consistent()


def test_a_job_suspended_before_its_pods_are_bound_gives_its_nodes_back(stage: Stage) -> None:
    stage.apply(gated(job("paused", 3)).build())
    until_held(stage, "paused", 3)
    suspend(stage, "paused")
    stage.until_reason("paused", "UserSuspended")
    stage.until("Fluxion holds nothing", lambda: not stage.fluxion_jobs())


# ---- gates of others -------------------------------------------------------------------------------------------------------------------


def test_somebody_elses_gate_stays_on_a_pod_and_its_place_is_kept(stage: Stage) -> None:
    pod = make_pod("held").cpu("8").gate(THEIRS).with_("spec.restartPolicy", "Never").annotation(RUN_SECONDS, "1")
    stage.apply(pod.build())
    (held,) = until_held(stage, "held", 1)
    row = stage.until_state("held", State.ALLOCATED)
    assert [pinned_to(held)] == row.hosts
    stage.apply(job("takes-the-rest", 3, "forever").build())
    assert stage.until_state("takes-the-rest", State.RUNNING).hosts.count(row.hosts[0]) == 0
    stage.apply(job("waits").build())
    stage.until_reason("waits", "WaitingForNodes")
    open_gate(stage, held)
    assert wrong([stage.until_state("held", State.COMPLETED), stage.until_state("waits", State.COMPLETED)]) == []


@pytest.mark.parametrize("shape", ["pinned", "released pod by pod"])
def test_somebody_elses_gate_stays_on_a_jobs_pods_and_their_places_are_kept(shape: str, stage: Stage) -> None:
    group = gated(job("group", 3))
    stage.apply((group if shape == "pinned" else group.annotation(names.REPLACE_ANNOTATION, "pod")).build())
    held = until_held(stage, "group", 3)
    row = stage.until_state("group", State.ALLOCATED)
    assert [pinned_to(pod) for pod in held] == row.hosts
    for pod in held:
        open_gate(stage, pod)
    assert wrong([stage.until_state("group", State.COMPLETED)]) == []
