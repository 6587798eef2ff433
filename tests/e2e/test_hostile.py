"""A user with the role ``edit`` writes whatever the API server lets through. Nobody else notices.

`make test-hostile` does it for ten minutes: HOSTILE_SECONDS. HOSTILE_SEED repeats a run, as far as programs
beside it allow.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.builders import Json, make_job
from support.end_to_end import Stage
from support.gang_discovery import until_followed
from support.gang_standins import serve
from support.hostile import Attack
from support.hostile_gangs import GANG_KINDS, NATIVE_KIND
from support.kubernetes_gates import NATIVE_FLAGS, NATIVE_GATES, NATIVE_VERSION
from support.replicas import metrics
from support.statements import statements_checked

from fluxqueue.api import names
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import NAMESPACE, InProcessCluster

RUN_SECONDS = "fluxqueue.local/run-seconds"
SHORT_S = 40.0
MALLORY, OWN = "mallory", ("node-1", "node-2")
JOBSETS = "jobsets.jobset.x-k8s.io"
NATIVE = [NATIVE_KIND] if NATIVE_VERSION is not None else []
LONG = 120.0
_RESTARTS = re.compile(r"^fluxqueue_controller_restarts_total\{controller=\"([^\"]*)\"\} (\S+)", re.MULTILINE)
_FAILED = re.compile(
    r"\b(controller\.restarted|cache\.\w+_failed|control_task\.failed|batch\.key_failed|batch\.failed|workqueue\.failed|release\.broken"
    r"|start\.check_broken|reason\.unstorable|reflector\.undecodable|reflector\.failed)\b"
)


@pytest.fixture(scope="module")
def cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """Four nodes, of which two take only pods that tolerate their taint."""
    read = [*sorted(GANG_KINDS.keys() - {JOBSETS}), *NATIVE]
    config = {"devices": True, "pinWindowSeconds": 2, "successorGraceSeconds": 10}
    options = ClusterOptions(
        nodes=4,
        durable=False,
        values={"queue": {"config": config}, "gangs": {"resources": read}},
        feature_gates=NATIVE_GATES,
        api_server_flags=NATIVE_FLAGS,
    )
    made = InProcessCluster(service_folder / "hostile", options)
    made.start()
    for name, (version, kind) in GANG_KINDS.items():
        serve(made, name, version, kind)
    until_followed(made, read)
    for node in OWN:
        taint = {"key": "own", "value": "yes", "effect": "NoSchedule"}
        patch = {"metadata": {"labels": {"own": "yes"}}, "spec": {"taints": [taint]}}
        made.control_plane.client.request("PATCH", f"/api/v1/nodes/{node}", patch)
    yield made
    made.destroy()


class Stranger(threading.Thread):
    """Somebody in another namespace, who runs one Job after the other.

    Attributes
    ----------
    waits_s
        From the creation of each Job to its release.
    slow
        Those that waited longer than a second, with the time of their release.
    problem
        Why a Job was not released or did not end; empty if all did.
    job
        The present one.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="stranger", daemon=True)
        self.waits_s: list[float] = []
        self.slow: list[str] = []
        self.problem = ""
        self.job: Json | None = None
        self.stopped = threading.Event()
        self._client = stage.cluster.control_plane.client
        self._namespace = stage.namespace
        self._jobs = f"/apis/batch/v1/namespaces/{stage.namespace}/jobs"

    def run(self) -> None:
        try:
            while not self.stopped.is_set() and not self.problem:
                self._run_one(f"own-{len(self.waits_s)}")
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def _run_one(self, name: str) -> None:
        body = make_job(name).namespace(self._namespace).cpu("1").pod_annotation(RUN_SECONDS, "1").build()
        body["spec"]["template"]["spec"] |= {
            "nodeSelector": {"own": "yes"},
            "tolerations": [{"key": "own", "operator": "Exists"}],
        }
        self.job, began = self._client.request("POST", self._jobs, body), time.monotonic()
        while (now := self._client.get(f"{self._jobs}/{name}"))["spec"].get("suspend"):
            if time.monotonic() - began > LONG:
                self.problem = f"{name} was not released in {LONG:g} s: {now}"
                return
            time.sleep(0.02)
        self.waits_s.append(time.monotonic() - began)
        if self.waits_s[-1] > 1:
            self.slow.append(
                f"{datetime.now(UTC):%H:%M:%S} {name} was released after {self.waits_s[-1]:.1f} s"
            )
        while not any(
            each["type"] == "Complete"
            for each in self._client.get(f"{self._jobs}/{name}")["status"].get("conditions") or ()
        ):
            if time.monotonic() - began > 2 * LONG:
                self.problem = f"{name} did not complete"
                return
            time.sleep(0.1)


def managed(cluster: InProcessCluster, name: str) -> Stage:
    body = {"metadata": {"name": name, "labels": {names.MANAGED_LABEL: "true"}}}
    cluster.control_plane.client.request("POST", "/api/v1/namespaces", body)
    stage = Stage(cluster, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    stage.until(
        "the default service account is there", lambda: cluster.control_plane.client.find(account) is not None
    )
    return stage


def let_edit(stage: Stage, user: str) -> None:
    """Give a user the role ``edit``, and the same rights on the kinds of gangs,
    which a cluster adds to that role.
    """
    client, group = stage.cluster.control_plane.client, "rbac.authorization.k8s.io"
    path = f"/apis/{group}/v1/namespaces/{stage.namespace}"
    kinds = [name.partition(".") for name in (*GANG_KINDS, *NATIVE)]
    rules = [
        {"apiGroups": [of], "resources": [plural], "verbs": ["create", "delete", "get", "list", "patch"]}
        for plural, _, of in kinds
    ]
    client.request("POST", f"{path}/roles", {"metadata": {"name": "gangs"}, "rules": rules})
    for kind, name in (("ClusterRole", "edit"), ("Role", "gangs")):
        body = {
            "metadata": {"name": f"{user}-{name}"},
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        client.request("POST", f"{path}/rolebindings", body)


def leader(cluster: InProcessCluster) -> tuple[int | None, str]:
    lease = cluster.control_plane.client.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/fluxqueue-queue"
    )
    return cluster.programs["queue"].process.pid, lease["spec"]["holderIdentity"]


def test_hostile_objects_of_one_user_stop_neither_the_leader_nor_anybody_elses_work(
    cluster: InProcessCluster,
) -> None:
    anew = 137711 if "CI" in os.environ else random.SystemRandom().randrange(10**6)
    seed, seconds = (
        int(os.environ.get("HOSTILE_SEED") or anew),
        float(os.environ.get("HOSTILE_SECONDS", SHORT_S)),
    )
    print(f"hostile objects: HOSTILE_SEED={seed}")  # noqa: T201  # to repeat it
    theirs, others = managed(cluster, "theirs"), managed(cluster, "others")
    let_edit(theirs, MALLORY)
    attack, stranger, before = (
        Attack(cluster.control_plane.client, theirs.namespace, MALLORY, seed),
        Stranger(others),
        leader(cluster),
    )
    stranger.start()

    def check() -> None:
        assert not stranger.problem, stranger.problem
        assert leader(cluster) == before, "\n".join(
            cluster.programs["queue"].process.log.read_text(errors="replace").splitlines()[-60:]
        )

    # the short form has other objects in each run
    with statements_checked(cluster) if seconds > SHORT_S else contextlib.nullcontext():
        attack.go(seconds, check, lambda: stranger.job)
        already = len(stranger.waits_s)
        others.until(
            "a Job is released after it",
            lambda: len(stranger.waits_s) > already + 1 or stranger.problem,
            2 * LONG,
        )
    stranger.stopped.set()
    stranger.join(2 * LONG)
    check()
    log = cluster.programs["queue"].process.log_text()
    if "HOSTILE_SECONDS" in os.environ:
        report(attack, stranger, log)
    assert {
        name: count for name, count in _RESTARTS.findall(metrics(cluster, "queue").decode()) if float(count)
    } == {}
    assert attack.accepted.total() > seconds
    assert {"POST podgroups", "POST jobsets"} <= attack.accepted.keys()  # intact ones, at the beginning
    assert "controller.restarted" not in log
    assert "cache.handler_failed" not in log
    assert "cache.index_failed" not in log
    assert [fluxjob.metadata.name for fluxjob in others.fluxjobs() if fluxjob.status.requeues] == []


def report(attack: Attack, stranger: Stranger, log: str) -> None:
    """Print what was sent, how long the stranger's Jobs waited, and what failed."""
    waits = sorted(stranger.waits_s)
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"\naccepted {dict(attack.accepted)}\nrefused {dict(attack.refused)}")  # noqa: T201
    print(f"{len(waits)} Jobs of the stranger, released after p50 {p50:.3f} s, p99 {p99:.3f} s")  # noqa: T201
    print(f"failures in the log {dict(Counter(_FAILED.findall(log)))}")  # noqa: T201
    print(*stranger.slow, sep="\n")  # noqa: T201
    print(*[line[:600] for line in log.splitlines() if _FAILED.search(line)][:20], sep="\n")  # noqa: T201
