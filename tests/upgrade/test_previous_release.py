"""An upgrade from the previous release and the way back, with work of several kinds that runs and that waits.

The old programs and the old chart build the state: tables of the old schema, objects of the old CRDs,
allocations in annotations. Then they stop, and the present chart and programs start on the same API server
and the same database. For the way back, the tables are restored from a dump of before the upgrade, and the
old programs start again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.builders import Json, make_job, make_minicluster, make_pod, make_queue
from support.end_to_end import Stage
from support.previous_release import PREVIOUS_RELEASE, OldCluster, extract

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.local.binaries import Tool, find_binaries
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.postgres import LocalPostgres
from fluxqueue.local.postgres_binaries import find_postgres
from fluxqueue.queue.store import migrate

NAMESPACE = "team"
NODES = 6
RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREVER = (RUN_SECONDS, "forever")
MIGRATE = "import asyncio, sys; from fluxqueue.queue.store import migrate; asyncio.run(migrate(sys.argv[1]))"
RUNNING = ("gang", "many", "web", "probe", "flux")


class OldApi:
    """kubectl on the old cluster, before there is a cluster of the present release."""

    def __init__(self, environment: Mapping[str, str], kubectl: Path) -> None:
        self._environment = environment
        self._kubectl = kubectl

    def run(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(self._kubectl), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=dict(self._environment),
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, thing: Json) -> Json:
        placed = {**thing, "metadata": {**thing["metadata"], "namespace": NAMESPACE}}
        applied: Json = json.loads(self.run("apply", "-f", "-", "-o", "json", stdin=json.dumps(placed)))
        return applied

    def items(self, resource: str) -> list[Json]:
        listed: list[Json] = json.loads(self.run("get", resource, "-n", NAMESPACE, "-o", "json"))["items"]
        return listed

    def until(self, what: str, holds: Callable[[], object], said: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {said()}"
            time.sleep(0.2)

    def states(self) -> dict[str, str]:
        """Return the state of each FluxJob by the name of its object;
        pods of a Deployment by the Deployment's.
        """
        shown = {}
        for item in self.items(names.FLUXJOBS):
            shown[_name_of(item["spec"]["objectRef"]["name"])] = item.get("status", {}).get("state", "")
        return shown


def _name_of(name: str) -> str:
    """Return the name of an object, or of the Deployment of a pod."""
    return "web" if name.startswith("web-") else name


def work() -> list[Json]:
    """Six nodes of 8 cpu: gang takes two, many and web one each, flux one, probe one; nothing else fits."""
    web = make_pod().cpu("4").annotation(*FOREVER).build()
    template = {
        "metadata": {**web["metadata"], "labels": {"app": "web"}},
        "spec": {**web["spec"], "restartPolicy": "Always"},
    }
    template["metadata"].pop("name", None)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    return [
        make_job("gang").indexed(2).cpu("8").pod_annotation(*FOREVER).build(),
        make_job("many").pods(2, 6).cpu("4").pod_annotation(*FOREVER).build(),
        deployment,
        make_pod("probe").cpu("8").annotation(*FOREVER).build(),
        _minicluster("flux", 2, "4"),
    ]


def waiting_work() -> list[Json]:
    group = ("fluxqueue/pod-group", "pair")
    members = [
        make_pod(f"group-{number}")
        .cpu("8")
        .label(*group)
        .annotation("fluxqueue/pod-group-size", "2")
        .annotation(RUN_SECONDS, "1")
        .build()
        for number in range(2)
    ]
    return [
        make_job("gang-waits").indexed(2).cpu("8").pod_annotation(RUN_SECONDS, "1").build(),
        make_job("held").indexed(1).cpu("1").pod_annotation(RUN_SECONDS, "1").build(),
        make_pod("pod-waits").cpu("8").annotation(RUN_SECONDS, "1").build(),
        *members,
        _minicluster("flux-waits", 2, "8"),
    ]


def _minicluster(name: str, size: int, cpu: str) -> Json:
    made = make_minicluster(name, size, pod={"annotations": {RUN_SECONDS: "forever"}})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return made


@pytest.fixture(scope="module")
def code(service_folder: Path) -> Path:
    folder = service_folder / "previous"
    folder.mkdir()
    if not extract(folder):
        pytest.skip(
            f"this clone does not have the previous release, commit {PREVIOUS_RELEASE}: fetch its history"
        )
    return folder


@pytest.fixture
def old_cluster(service_folder: Path, code: Path, request: pytest.FixtureRequest) -> Iterator[OldCluster]:
    cluster = OldCluster(
        code, service_folder / f"cluster-{request.node.nodeid.rpartition('[')[2].strip(']')[-8:]}"
    )
    cluster.start("--nodes", str(NODES))
    yield cluster
    cluster.stop()


def placed_pods(api: OldApi) -> dict[str, str]:
    """Return the node of each pod that runs, by uid."""
    return {
        item["metadata"]["uid"]: item["spec"]["nodeName"]
        for item in api.items("pods")
        if item["spec"].get("nodeName") and item["status"].get("phase") == "Running"
    }


def test_an_upgrade_keeps_running_work_and_matches_what_waits(old_cluster: OldCluster) -> None:
    api = _api(old_cluster)
    api.run("apply", "-f", "-", stdin=json.dumps(make_queue("night", policy="fcfs", state="open")))
    applied = [api.apply(thing) for thing in work()]
    api.until("all that fits runs", lambda: api.states() == dict.fromkeys(RUNNING, "Running"), api.states)
    applied += [api.apply(thing) for thing in waiting_work()]
    api.until("the others wait", lambda: len(api.states()) == len(RUNNING) + 5, api.states)
    held = next(
        item["metadata"]["name"]
        for item in api.items(names.FLUXJOBS)
        if item["spec"]["objectRef"]["name"] == "held"
    )
    api.run(
        "patch",
        names.FLUXJOBS,
        held,
        "-n",
        NAMESPACE,
        "--type=merge",
        '--patch={"spec":{"hold":true,"priority":7,"queue":"night"}}',
    )
    api.until(
        "the edits are taken",
        lambda: (_status_of(api, held) or {}).get("reason") == "Held",
        lambda: _status_of(api, held),
    )
    pods, states = placed_pods(api), api.states()
    old_cluster.stop()
    with InProcessCluster(old_cluster.folder, ClusterOptions(nodes=NODES)) as cluster:
        stage = Stage(cluster, NAMESPACE)
        for item in applied:
            if item["kind"] != "MiniCluster":
                stage.adopt(item)
        _check_upgraded(stage, pods, states)
        _finish(stage)


@pytest.mark.parametrize("restored", [True, False], ids=["dump", "nothing"])
def test_the_previous_release_goes_on_with_a_former_dump_or_with_empty_tables(
    old_cluster: OldCluster, tmp_path: Path, restored: bool
) -> None:
    api, dump = _api(old_cluster), tmp_path / "before.dump"
    gang, more = (
        make_job("gang").indexed(2).cpu("8").pod_annotation(*FOREVER),
        make_job("later")
        .indexed(1)
        .cpu("8")
        .annotation(names.DURATION_ANNOTATION, "10m")
        .pod_annotation(*FOREVER),
    )
    waits = make_job("waits").indexed(NODES).cpu("8").pod_annotation(RUN_SECONDS, "1")
    api.apply(gang.build())
    api.until("the gang runs", lambda: api.states() == {"gang": "Running"}, api.states)
    api.apply(waits.build())
    api.until("the other Job waits", lambda: api.states().get("waits") == "Pending", api.states)
    old_cluster.stop()
    options = ClusterOptions(nodes=NODES)
    with LocalPostgres(old_cluster.folder / "postgres") as postgres:
        _postgres_program("pg_dump", "--format=custom", f"--file={dump}", postgres.database_dsn("fluxqueue"))
    with InProcessCluster(old_cluster.folder, options) as cluster:
        stage = Stage(cluster, NAMESPACE)
        stage.apply(more.build())
        stage.until_state("later", State.RUNNING)
        pods = placed_pods(api)
        cluster.programs["queue"].stop(graceful=True)
        with psycopg.connect(cluster.database_dsn, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO fluxqueue.migration (name, digest) VALUES ('fluxqueue/9999_new', '')"
            )
            assert "run the newer version" in old_cluster.run_python(MIGRATE, cluster.database_dsn)
            connection.execute("DROP SCHEMA IF EXISTS fluxqueue, procrastinate CASCADE")
        if restored:
            _postgres_program("pg_restore", "--exit-on-error", f"--dbname={cluster.database_dsn}", str(dump))
        _remove_what_only_the_new_chart_has(stage)
    old_cluster.start("--nodes", str(NODES))
    api.until(
        "the work of before and of after the upgrade runs",
        lambda: _running(api) == {"gang", "later"},
        api.states,
    )
    assert placed_pods(api) == pods
    for name in ("gang", "later"):
        api.run("delete", "job", name, "-n", NAMESPACE, "--wait=true", "--timeout=60s")
    api.until("what waited is done", lambda: api.states().get("waits") == "Completed", api.states)


def _running(api: OldApi) -> set[str]:
    return {name for name, state in api.states().items() if state == "Running"}


def _api(old_cluster: OldCluster) -> OldApi:
    """Return kubectl on the old cluster, with the managed namespace."""
    binaries = find_binaries(
        lambda *_: pytest.fail("the Kubernetes programs are built by 'make controlplane'")
    )
    api = OldApi(old_cluster.settings(), Path(binaries[Tool.KUBECTL]))
    api.run("apply", "-f", "-", stdin=json.dumps(_managed_namespace()))
    return api


def _postgres_program(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(find_postgres().program(name)), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _remove_what_only_the_new_chart_has(stage: Stage) -> None:
    """Delete policies and webhook configurations, as ``helm rollback`` does with those that the former chart
    has not; it makes its own.
    """
    kinds = (
        "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,"
        "validatingwebhookconfigurations"
    )
    stage.kubectl("delete", kinds, "--selector=app.kubernetes.io/name=fluxqueue")


def _check_upgraded(stage: Stage, pods: Mapping[str, str], states: Mapping[str, str]) -> None:
    """Check that the tables have the present schema, and that nothing moved, ended or was allocated twice."""
    assert asyncio.run(migrate(stage.cluster.database_dsn)) == []
    stage.until_consistent(60)
    shown = {
        _name_of(fluxjob.spec.object_ref.name): str(fluxjob.status.state) for fluxjob in stage.fluxjobs()
    }
    assert shown == states
    now = {
        pod.metadata.uid: pod.spec.node_name
        for pod in stage.items("pods", Pod)
        if pod.status.phase == "Running"
    }
    assert now == pods
    held = stage.row("held").fluxjob
    assert held is not None
    assert (held.spec.hold, held.spec.priority, held.spec.queue) == (True, 7, "night")
    queue = stage.cluster.control_plane.client.get(f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}/night")
    assert queue["spec"]["policy"] == "fcfs"


def _finish(stage: Stage) -> None:
    """End what runs; what waited starts, and everything ends."""
    stage.kubectl("delete", "minicluster", "flux", "--wait=true", "--timeout=60s")
    stage.kubectl("delete", "deployment", "web")
    stage.succeed("gang")
    stage.kubectl("delete", "job", "many", "--wait=true", "--timeout=60s")
    stage.succeed("probe")
    for name in ("gang-waits", "pod-waits"):
        stage.until_state(name, State.COMPLETED, 90)
    stage.until(
        "the MiniCluster that waited runs",
        lambda: "Running" in _states(stage, "flux-waits"),
        90,
        lambda: _states(stage, "flux-waits"),
    )
    stage.until_consistent(60)
    assert _states(stage, "held") == {"Pending"}
    stage.kubectl("delete", "minicluster", "--all", "--wait=true", "--timeout=60s")
    stage.clear(90)


def _states(stage: Stage, name: str) -> set[str]:
    return {str(fluxjob.status.state) for fluxjob in stage.fluxjobs() if fluxjob.spec.object_ref.name == name}


def _status_of(api: OldApi, name: str) -> Any:
    return next(item.get("status") for item in api.items(names.FLUXJOBS) if item["metadata"]["name"] == name)


def _managed_namespace() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {names.MANAGED_LABEL: "true"}},
    }
