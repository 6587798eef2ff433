"""Our checks against kube-scheduler: pods that it binds must fit, pods that it leaves must not, in hundreds
of small random worlds.

The worlds are created while nobody schedules, and read by our caches. Then the real scheduler is started on
them. So both decide about the same objects, and neither sees the other's work. A pod whose claims are still
to be provided for passes the filters and fails only when its volumes do not come; the scheduler says so with
another reason.

``FLUXQUEUE_ORACLE_CASES`` sets how many worlds, ``FLUXQUEUE_ORACLE_SEED`` which; both are printed, and every
case can be made again by its number.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.scheduler_oracle import SHARED, Case, make_case, stages

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.local.binaries import Tool
from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import Process
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.checks import FitResult, FitStatus, check_gang

log = structlog.get_logger()

CASES = int(os.environ.get("FLUXQUEUE_ORACLE_CASES", "120"))
SEED = int(os.environ.get("FLUXQUEUE_ORACLE_SEED", "1"))
BATCH = 250
WAIT_S = 120
AT_ONCE = 32
VOLUMES_TIMEOUT_S = 1

CLASSES = (
    ("is cordoned", "were unschedulable"),
    ("has the taint", "untolerated taint"),
    ("does not have the labels", "didn't match Pod's node affinity/selector"),
    ("port ", "didn't have free ports"),
    ("too little pods", "Too many pods"),
    ("too little example.com/gpu", "Insufficient example.com/gpu"),
    ("too little cpu", "Insufficient cpu"),
    ("too little memory", "Insufficient memory"),
    ("too little ephemeral-storage", "Insufficient ephemeral-storage"),
    ("takes no more volumes", "exceed max volume count"),
    ("cannot be reached", "didn't match PersistentVolume's node affinity"),
    ("finds no free volume", "didn't find available persistent volumes to bind"),
    ("allows no volumes", "didn't find available persistent volumes to bind"),
    ("is being made for node", "didn't find available persistent volumes to bind"),
    ("by the label", "had no available volume zone"),
    ("topologySpreadConstraints", "topology spread constraints"),
    ("podAntiAffinity of another", "existing pods anti-affinity rules"),
    ("podAntiAffinity of the pod", "didn't match pod anti-affinity rules"),
    ("required podAffinity", "didn't match pod affinity rules"),
)
"""Words of our sentence, mapped to words of kube-scheduler's message."""
ALWAYS_FIRST = ("persistentvolume", "PersistentVolumeClaims")
"""Messages of kube-scheduler about claims before it checks any node."""


@pytest.fixture(scope="module")
def oracle(service_folder: Path) -> Iterator[ControlPlane]:
    """etcd and the API server without controllers: nodes stay as written."""
    cluster = ControlPlane(service_folder / "oracle", nodes=0)
    cluster.start()
    for component in (Component.SCHEDULER, Component.KWOK, Component.CONTROLLER_MANAGER):
        cluster.stop_component(component, graceful=False)
    yield cluster
    cluster.destroy()


def stock_scheduler(cluster: ControlPlane, folder: Path) -> Process:
    """kube-scheduler with its default plugins and a short wait for volumes."""
    arguments = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "VolumeBindingArgs",
        "bindTimeoutSeconds": VOLUMES_TIMEOUT_S,
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(cluster.folder / "scheduler.kubeconfig"),
            "qps": 1000,
            "burst": 2000,
        },
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "pluginConfig": [{"name": "VolumeBinding", "args": arguments}],
            }
        ],
    }
    path = folder / "oracle-scheduler.json"
    path.write_text(json.dumps(config))
    return Process(
        "oracle-scheduler",
        [cluster.binaries[Tool.SCHEDULER], f"--config={path}", "--secure-port=0"],
        folder / "oracle-scheduler.log",
    )


async def write(api: Api, method: str, path: str, body: dict[str, Any]) -> bool:
    kind = PatchType.MERGE.value if method == "PATCH" else "application/json"
    try:
        await api.request(method, path, body=body, content_type=kind)
    except ApiError as error:
        if error.status not in (403, 404, 409, 422) or (method == "POST" and not path.endswith("/pods")):
            raise
        return False
    return True


async def gather(requests: Sequence[tuple[str, str, dict[str, Any]]], api: Api) -> list[bool]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(method: str, path: str, body: dict[str, Any]) -> bool:
        async with limit:
            return await write(api, method, path, body)

    return await asyncio.gather(*(one(*request) for request in requests))


async def create(api: Api, cases: list[Case]) -> list[Case]:
    """Create the worlds; return those whose pod the API server accepted."""
    lost: set[int] = set()
    for stage in stages(cases):
        done = await gather([("POST", path, body) for _, path, body in stage], api)
        lost |= {
            case.number
            for (case, _, body), ok in zip(stage, done, strict=True)
            if not ok and body["metadata"]["name"] == case.pod
        }
        if stage is not None and any(path == "/api/v1/nodes" for _, path, _ in stage):
            await gather([("PATCH", path, body) for case in cases for path, body in case.node_specs], api)
    await gather([("PATCH", path, body) for case in cases for path, body in case.statuses], api)
    await gather([("DELETE", path, {}) for case in cases for path in case.deletions], api)
    return [case for case in cases if case.number not in lost]


@asynccontextmanager
async def watched(api: Api) -> AsyncIterator[SchedulerCaches]:
    caches = SchedulerCaches(api)
    watching = asyncio.create_task(caches.watches.run())
    try:
        await asyncio.wait_for(caches.watches.synced(), WAIT_S)
        yield caches
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def ours(api: Api, cases: list[Case]) -> dict[int, FitResult]:
    """Return the result of our checks for each pod."""
    async with watched(api) as caches:
        found = {}
        for case in cases:
            pod = caches.pods.get(case.namespace, case.pod)
            assert pod is not None
            found[case.number] = check_gang([(pod, case.node)], caches)[pod.metadata.uid]
        return found


async def stocks(api: Api, cases: list[Case]) -> dict[int, str]:
    """Return kube-scheduler's message for each pod; empty if its filters accept the node."""
    answers: dict[int, str] = {}
    deadline = asyncio.get_running_loop().time() + WAIT_S
    wanted = {case.namespace: case for case in cases}
    while len(answers) < len(cases):
        assert asyncio.get_running_loop().time() < deadline, (
            f"{len(cases) - len(answers)} pods have no answer"
        )
        for pod in await api.list(PODS):
            case = wanted.get(pod.metadata.namespace)
            if case is not None and pod.metadata.name == case.pod and (answer := answered(pod)) is not None:
                answers[case.number] = answer
        await asyncio.sleep(0.2)
    return answers


def answered(pod: Pod) -> str | None:
    if pod.spec.node_name:
        return ""
    condition = pod.status.condition("PodScheduled")
    if condition is None or condition.status != "False":
        return None
    if condition.reason == "SchedulerError":
        return "" if "binding volumes" in condition.message else f"error: {condition.message}"
    return condition.message


def disagreement(finding: FitResult, answer: str) -> str:
    """Return how our result and kube-scheduler's differ for a pod; empty if they agree."""
    fits = finding.status is FitStatus.FITS
    if fits != (answer == ""):
        return f"we: {finding.status} {finding.message!r}; the scheduler: {answer!r}"
    if finding.status is FitStatus.REFUSED:
        theirs = next((theirs for own, theirs in CLASSES if own in finding.message), None)
        if (theirs is None or theirs not in answer) and not any(words in answer for words in ALWAYS_FIRST):
            return f"for another reason: we {finding.message!r}; the scheduler: {answer!r}"
    return ""


async def test_our_checks_agree_with_the_stock_scheduler(oracle: ControlPlane, tmp_path: Path) -> None:
    log.info("oracle.begun", seed=SEED, cases=CASES)
    differ: dict[int, str] = {}
    verdicts: Counter[str] = Counter()
    async with Api.connect(oracle.kubeconfig, max_in_flight=AT_ONCE) as api:
        await gather([("POST", path, body) for path, body in SHARED], api)
        numbers = [*range(CASES)]
        for start in range(0, CASES, BATCH):
            cases = await create(api, [make_case(SEED, number) for number in numbers[start : start + BATCH]])
            findings = await ours(api, cases)
            scheduler = stock_scheduler(oracle, tmp_path)
            scheduler.start()
            try:
                answers = await stocks(api, cases)
            finally:
                scheduler.stop(0)
            await gather(
                [
                    ("DELETE", path, {})
                    for case in cases
                    for path in (f"/api/v1/nodes/{node}" for node in nodes_of(case))
                ],
                api,
            )
            verdicts.update(findings[case.number].status for case in cases)
            differ |= {
                case.number: why
                for case in cases
                if (why := disagreement(findings[case.number], answers[case.number]))
            }
    log.info("oracle.compared", verdicts=dict(verdicts), differ=len(differ))
    assert not differ, "\n".join(
        f"seed {SEED} case {number}: {why}" for number, why in sorted(differ.items())[:40]
    )
    assert sum(verdicts.values()) > 0.7 * CASES, "the API server took too few of the pods"
    assert min(verdicts[FitStatus.FITS], verdicts[FitStatus.REFUSED]) > 0.1 * CASES


def nodes_of(case: Case) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in case.node_specs]


def test_a_case_is_made_again_from_its_number() -> None:
    number = random.Random(SEED).randrange(1000)
    assert make_case(SEED, number) == make_case(SEED, number)
