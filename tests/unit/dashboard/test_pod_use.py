from typing import Any

import pytest
from support.dashboard_site import PeopleApi

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import Pod, PodSpec, PodStatus
from fluxqueue.cli.pod_metrics import PodUse
from fluxqueue.dashboard.pod_use import read_pod_use
from fluxqueue.kube.errors import ServerError

GROUP = "/apis/metrics.k8s.io"
METRICS = f"{GROUP}/v1beta1/namespaces/blue/pods"


def pod(name: str, phase: str = "Running") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="blue", uid=name),
        spec=PodSpec(node_name="node-1"),
        status=PodStatus(phase=phase),
    )


def measured(name: str, cpu: str, memory: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "containers": [{"usage": {"cpu": cpu, "memory": memory}}]}


async def read(api: PeopleApi, *pods: Pod) -> PodUse | None:
    api.person("alice")
    return await read_pod_use(api.with_token("token-of-alice"), "blue", pods)


async def test_what_runs_is_measured_and_what_is_not_yet_is_left_out() -> None:
    api = PeopleApi(objects={f"{METRICS}/a": measured("a", "250m", "1Gi")})
    assert await read(api, pod("a"), pod("b"), pod("c", "Pending")) == PodUse(1, 0.25, 2**30)
    assert await read(PeopleApi(), pod("c", "Pending")) is None


@pytest.mark.parametrize(
    ("objects", "refused", "says"),
    [
        ({}, False, "serves no metrics"),
        ({}, True, "serves no metrics"),
        ({GROUP: {}}, False, "nothing is measured yet"),
        ({GROUP: {}}, True, "--clusterrole=view --user=YOU"),
        ({f"{METRICS}/a": ServerError(503, "", "no endpoints")}, False, "does not answer (no endpoints)"),
        (
            {"/api/v1/nodes/node-1": {"status": {"nodeInfo": {"containerRuntimeVersion": "kwok://1"}}}},
            False,
            "kwok",
        ),
    ],
)
async def test_without_figures_a_sentence_says_why(objects: dict[str, Any], refused: bool, says: str) -> None:
    api = PeopleApi(objects=objects, refused={("alice", f"{METRICS}/a")} if refused else set())
    found = await read(api, pod("a"))
    assert found is not None
    assert says in found.unknown
