from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder, make_node, make_pod
from support.queue_builders import a_pod

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.api.storedjson import StoredJson
from fluxqueue.queue.noderules.node_checks import closed, node_rules, obstacle, without_pin


def node(**changes: Any) -> Node:
    builder = make_node("n1").allocatable(cpu="4", memory="8Gi", pods="10").label("disk", "ssd")
    for path, value in changes.items():
        builder = builder.with_(path.replace("__", "."), value)
    return msgspec.convert(builder.build(), Node)


def on_n1(builder: PodBuilder, uid: str = "other") -> Pod:
    return a_pod(builder.on_node("n1"), uid=uid)


def taint(key: str, effect: str) -> list[dict[str, str]]:
    return [{"key": key, "value": "", "effect": effect}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({}, "", id="as it was"),
        pytest.param({"spec__unschedulable": True}, "node n1 is cordoned", id="cordoned"),
        pytest.param(
            {"status__conditions": [{"type": "Ready", "status": "Unknown"}]},
            "node n1 is not ready",
            id="not ready",
        ),
        pytest.param(
            {"metadata__deletionTimestamp": "2026-01-01T00:00:00Z"}, "node n1 is being deleted", id="going"
        ),
        pytest.param({"spec__taints": taint("gpu", "NoSchedule")}, "the taint gpu=:NoSchedule", id="tainted"),
        pytest.param({"spec__taints": taint("out", "NoExecute")}, "the taint out=:NoExecute", id="evicting"),
        pytest.param({"spec__taints": taint("slow", "PreferNoSchedule")}, "", id="only rather not"),
        pytest.param(
            {"spec__taints": taint("node.kubernetes.io/disk-pressure", "NoSchedule")},
            "disk-pressure",
            id="under pressure",
        ),
        pytest.param(
            {
                "status__conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "MemoryPressure", "status": "True"},
                ]
            },
            "memory-pressure",
            id="before its taint",
        ),
        pytest.param(
            {"metadata__labels": {"disk": "hdd"}}, "the labels that the pod requires", id="relabelled"
        ),
    ],
)
def test_a_node_that_changed_under_a_slot_says_why_it_takes_no_pod(
    changes: dict[str, Any], said: str
) -> None:
    pod = a_pod(make_pod().cpu("1").with_("spec.nodeSelector", {"disk": "ssd"}))
    found = closed(node(**changes), pod.spec)
    assert said in found
    assert bool(said) == bool(found)
    assert obstacle(node(**changes), pod.spec, ()) == found


def test_a_tolerated_taint_and_a_tolerated_cordon_are_none() -> None:
    tolerations = [
        {"key": "gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    ]
    pod = a_pod(make_pod().with_("spec.tolerations", tolerations))
    assert closed(node(spec__unschedulable=True, spec__taints=taint("gpu", "NoSchedule")), pod.spec) == ""


def test_a_missing_node_takes_nothing() -> None:
    assert (
        closed(None, a_pod(make_pod()).spec)
        == obstacle(None, a_pod(make_pod()).spec, ())
        == "the node does not exist"
    )


def test_a_node_that_filled_up_says_what_is_short() -> None:
    pod = a_pod(make_pod().cpu("2"))
    assert obstacle(node(), pod.spec, [on_n1(make_pod().cpu("2"))]) == ""
    assert obstacle(node(), pod.spec, [on_n1(make_pod().cpu("3"))]) == "node n1 has too little cpu left"
    assert obstacle(node(), pod.spec, [on_n1(make_pod().cpu("3").phase("Succeeded"))]) == ""
    assert (
        obstacle(node(status__allocatable={"cpu": "4", "pods": "1"}), pod.spec, [on_n1(make_pod())])
        == "node n1 has too little pods left"
    )


def test_a_host_port_that_is_taken_is_an_obstacle() -> None:
    def opening(port: int) -> PodBuilder:
        return make_pod().host_ports(port)

    assert (
        obstacle(node(), a_pod(opening(8080)).spec, [on_n1(opening(8080))])
        == "port 8080/TCP of node n1 is taken"
    )
    assert (
        obstacle(
            node(), a_pod(opening(8080)).spec, [on_n1(opening(8081)), on_n1(opening(8080).phase("Failed"))]
        )
        == ""
    )


def test_a_port_on_one_address_leaves_the_others_free() -> None:
    def opening(address: str) -> PodBuilder:
        return make_pod().with_(
            "spec.containers",
            [{"name": "main", "ports": [{"hostPort": 80, "containerPort": 80, "hostIP": address}]}],
        )

    assert obstacle(node(), a_pod(opening("10.0.0.1")).spec, [on_n1(opening("10.0.0.2"))]) == ""
    assert "80/TCP" in obstacle(node(), a_pod(opening("10.0.0.1")).spec, [on_n1(opening("10.0.0.1"))])
    assert "80/TCP" in obstacle(node(), a_pod(opening("10.0.0.1")).spec, [on_n1(opening(""))])
    assert "80/TCP" in obstacle(node(), a_pod(opening("0.0.0.0")).spec, [on_n1(opening("10.0.0.1"))])


def test_the_port_of_an_init_container_is_taken_only_while_it_stays() -> None:
    ports = [{"hostPort": 80, "containerPort": 80}]
    init = make_pod().with_("spec.initContainers", [{"name": "init", "ports": ports}])
    sidecar = make_pod().with_(
        "spec.initContainers", [{"name": "init", "ports": ports, "restartPolicy": "Always"}]
    )
    assert obstacle(node(), a_pod(make_pod().host_ports(80)).spec, [on_n1(init)]) == ""
    assert "80/TCP" in obstacle(node(), a_pod(make_pod().host_ports(80)).spec, [on_n1(sidecar)])


def test_a_pod_that_asks_for_nothing_fits_where_all_is_taken() -> None:
    full = [on_n1(make_pod().cpu("4").memory("8Gi"))]
    assert obstacle(node(), a_pod(make_pod().cpu("0")).spec, full) == ""
    assert obstacle(node(), a_pod(make_pod().memory("1")).spec, full) == "node n1 has too little memory left"


def test_what_is_asked_for_is_counted_in_whole_millicores_of_each_pod() -> None:
    small = [on_n1(make_pod().cpu("0.0001"), uid=str(number)) for number in range(3)]
    narrow = node(status__allocatable={"cpu": "4m", "pods": "10"})
    assert obstacle(narrow, a_pod(make_pod().cpu("1m")).spec, small) == ""
    assert obstacle(narrow, a_pod(make_pod().cpu("2m")).spec, small) == "node n1 has too little cpu left"


def resized(wanted: str, granted: str, has: str, condition: dict[str, str] | None = None) -> PodBuilder:
    status = {"name": "main", "allocatedResources": {"cpu": granted}, "resources": {"requests": {"cpu": has}}}
    pod = make_pod().cpu(wanted).with_("status.containerStatuses", [status])
    return (
        pod
        if condition is None
        else pod.with_("status.conditions", [{"type": "PodResizePending", "status": "True", **condition}])
    )


@pytest.mark.parametrize(
    ("present", "left"),
    [
        pytest.param(resized("1", "1", "1"), "3", id="at rest"),
        pytest.param(resized("2", "1", "1"), "2", id="growing"),
        pytest.param(resized("1", "3", "3"), "1", id="shrinking"),
        pytest.param(resized("1", "1", "2"), "2", id="granted and not done"),
        pytest.param(resized("9", "1", "2", {"reason": "Infeasible"}), "2", id="a resize that cannot be"),
        pytest.param(resized("3", "1", "2", {"reason": "Deferred"}), "1", id="a resize that is put off"),
    ],
)
def test_a_pod_that_is_resized_counts_with_the_most_it_may_have(present: PodBuilder, left: str) -> None:
    assert obstacle(node(), a_pod(make_pod().cpu(left)).spec, [on_n1(present)]) == ""
    assert (
        obstacle(node(), a_pod(make_pod().cpu(f"{left}.001")).spec, [on_n1(present)])
        == "node n1 has too little cpu left"
    )


def test_a_number_in_a_label_is_compared() -> None:
    def more_than(cores: str) -> PodBuilder:
        return make_pod().required_terms(
            {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": [cores]}]}
        )

    big = node(metadata__labels={"cores": "64"})
    assert closed(big, a_pod(more_than("32")).spec) == ""
    assert "labels" in closed(big, a_pod(more_than("64")).spec)


def test_a_released_pod_could_go_to_any_node_its_own_rules_allow() -> None:
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    assert "labels" in closed(node(), a_pod(make_pod().required_terms(pinned)).spec)
    assert closed(node(), without_pin(a_pod(make_pod().required_terms(pinned)).spec)) == ""
    assert closed(node(), without_pin(a_pod(make_pod().required_terms({**ssd, **pinned})).spec)) == ""
    relabelled = node(metadata__labels={"disk": "hdd"})
    assert "labels" in closed(
        relabelled, without_pin(a_pod(make_pod().required_terms({**ssd, **pinned})).spec)
    )


def test_the_rules_of_a_pod_that_names_hundreds_of_nodes_can_be_compared() -> None:
    terms = [
        {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/hostname",
                    "operator": "In",
                    "values": [f"node-{n}" for n in range(500)],
                }
            ]
        }
    ]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    spec = a_pod(make_pod()).spec
    kept = msgspec.structs.replace(spec, affinity=StoredJson(msgspec.json.encode(affinity)))
    assert node_rules(kept) == node_rules(msgspec.structs.replace(spec, affinity=affinity))
    assert node_rules(kept) != node_rules(spec)


def test_a_resource_that_devices_stand_for_is_checked_where_the_kubelet_reports_it() -> None:
    gpu = "example.com/gpu"
    pod = a_pod(
        make_pod().with_("spec.containers", [{"name": "main", "resources": {"requests": {gpu: "2"}}}])
    )
    assert obstacle(node(), pod.spec, ()) == f"node n1 has too little {gpu} left"
    assert obstacle(node(), pod.spec, (), from_devices={gpu}) == ""
    reports = node(status__allocatable={"pods": "10", gpu: "1"})
    assert obstacle(reports, pod.spec, (), from_devices={gpu}) == f"node n1 has too little {gpu} left"
