import msgspec
import pytest
from support.plugin_server import PluginServer

from fluxqueue.api.pods import Pod
from fluxqueue.cli.api_client import ApiRefused, ObjectNotFound
from fluxqueue.cli.pod_metrics import PodUse, read_use, use_in

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
UID = {"batch.kubernetes.io/controller-uid": "u1"}


def pod(name: str, phase: str = "Running", labels: dict[str, str] | None = None, node: str = "node-1") -> Pod:
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    return msgspec.convert(
        {"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}, Pod
    )


def measured(name: str, *usage: tuple[str, str]) -> dict[str, object]:
    containers = [
        {"name": str(at), "usage": {"cpu": cpu, "memory": memory}} for at, (cpu, memory) in enumerate(usage)
    ]
    return {"metadata": {"name": name}, "containers": containers}


def test_the_containers_of_all_pods_of_a_job_are_added_up() -> None:
    server = PluginServer().has(
        f"{METRICS}?batch.kubernetes.io/controller-uid=u1",
        measured("a", ("1500m", "1Gi"), ("250000000n", "512Mi")),
        measured("b", ("2", "1Gi")),
        measured("stranger", ("9", "9Gi")),
    )
    use = read_use(
        server.client, "default", [pod("a", labels=UID), pod("b", labels=UID), pod("c", "Pending", UID)]
    )
    assert use == PodUse(2, 3.75, 2.5 * 2**30)


def test_pods_without_a_common_label_are_asked_one_by_one() -> None:
    server = PluginServer()
    server.objects[f"{METRICS}/a"] = measured("a", ("100m", "64Mi"))
    server.refusals[f"{METRICS}/b"] = ObjectNotFound(404, "NotFound", "podmetrics b not found")
    assert read_use(server.client, "default", [pod("a"), pod("b")]) == PodUse(1, 0.1, 64 * 2**20)


def test_figures_that_cannot_be_read_are_no_figures() -> None:
    server = PluginServer().has(
        METRICS + "?batch.kubernetes.io/controller-uid=u1",
        measured("a", ("many", "1Gi")),
        {"metadata": 7},
        measured("b", ("-1", "1Gi")),
    )
    assert (
        "nothing is measured yet"
        in read_use(server.client, "default", [pod("a", labels=UID), pod("b", labels=UID)]).unknown
    )


def test_without_a_metrics_api_it_says_who_installs_one() -> None:
    assert "serves no metrics" in read_use(PluginServer().client, "default", [pod("a", labels=UID)]).unknown


def test_on_simulated_nodes_it_says_so() -> None:
    server = PluginServer()
    server.objects["/api/v1/nodes/node-1"] = {
        "status": {"nodeInfo": {"containerRuntimeVersion": "kwok://0.8"}}
    }
    assert "is simulated (kwok)" in read_use(server.client, "default", [pod("a", labels=UID)]).unknown


def test_who_is_refused_where_nothing_is_served_is_not_sent_for_a_right() -> None:
    server = PluginServer()
    server.refusals[METRICS] = ApiRefused(403, "Forbidden", "no")
    assert "serves no metrics" in read_use(server.client, "default", [pod("a", labels=UID)]).unknown


@pytest.mark.parametrize(
    ("status", "says"), [(403, "--clusterrole=view --user=YOU"), (503, "does not answer")]
)
def test_a_refusal_is_a_sentence(status: int, says: str) -> None:
    server = PluginServer()
    server.objects["/apis/metrics.k8s.io"] = {"kind": "APIGroup"}
    server.refusals[METRICS] = ApiRefused(status, "Refused", "no")
    assert says in read_use(server.client, "default", [pod("a", labels=UID)]).unknown


def test_without_a_running_pod_nothing_is_asked() -> None:
    server = PluginServer()
    assert read_use(server.client, "default", [pod("a", "Pending")]).unknown == "none of its pods runs"
    assert server.asked == []


@pytest.mark.parametrize(
    "amount", ['"1E"', "1e400", "1e308", f'"{"9" * 400}"', '"9999999999999E"', '"NaN"', '"-1"']
)
def test_impossible_figures_are_no_measurement(amount: str) -> None:
    answer = f'{{"metadata":{{"name":"a"}},"containers":[{{"usage":{{"cpu":{amount},"memory":{amount}}}}}]}}'
    found = use_in([answer.encode()], [pod("a")])
    assert found is None or max(found.cores, found.memory) <= 2**60


@pytest.mark.parametrize("around", ['{"other":%s}', '{"items":%s}', '{"items":[{"other":%s}]}'])
def test_an_answer_that_is_nested_too_deeply_measures_nothing(around: str) -> None:
    assert use_in([(around % ("[" * 100_000 + "]" * 100_000)).encode()], [pod("a")]) is None
