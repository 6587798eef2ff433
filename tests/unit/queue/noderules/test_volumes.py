from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.builders import make_job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.graphnames import label_property
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fluxqueue.fluxion.graph.constraints import NodeSubject, read_constraint
from fluxqueue.kube.object_cache import ObjectCache
from fluxqueue.queue.cluster.storage import ClusterStorage
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.constraints import InexpressibleConstraint
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.noderules.volumes import NO_VOLUMES, VolumeNeeds, volume_needs

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
ON_B = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}
        ]
    }
}
ON_C = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["c"]}]}
        ]
    }
}
DRIVER = "ebs.csi.aws.com"


def put(store: ObjectCache[Any], kind: type[Any], name: str, namespace: str = "", **body: Any) -> None:
    meta = {
        "name": name,
        "uid": f"{kind.__name__}-{namespace}-{name}",
        "resourceVersion": "1",
        "namespace": namespace,
    }
    metadata = {**meta, **body.pop("metadata", {})}
    store.apply(msgspec.convert({"metadata": metadata, **body}, kind))


class Cluster(ClusterStorage):
    """Claims, volumes and classes by their names, in namespace ns."""

    def has_claim(
        self, name: str, volume: str = "", storage_class: str | None = "fast", phase: str = "", **more: Any
    ) -> Cluster:
        spec = {"volumeName": volume, "storageClassName": storage_class, **more.pop("spec", {})}
        put(
            self.claims,
            PersistentVolumeClaim,
            name,
            "ns",
            spec=spec,
            status={"phase": phase or ("Bound" if volume else "Pending")},
            **more,
        )
        return self

    def has_volume(self, name: str, affinity: Any = None, phase: str = "Bound", **spec: Any) -> Cluster:
        labels = spec.pop("labels", {})
        body = {"nodeAffinity": affinity, "storageClassName": "fast", "capacity": {"storage": "10Gi"}, **spec}
        put(
            self.volumes,
            PersistentVolume,
            name,
            metadata={"labels": labels},
            spec=body,
            status={"phase": phase},
        )
        return self

    def has_class(
        self, name: str = "fast", mode: str = "WaitForFirstConsumer", provisioner: str = DRIVER, **more: Any
    ) -> Cluster:
        put(self.classes, StorageClass, name, volumeBindingMode=mode, provisioner=provisioner, **more)
        return self

    def has_limit(self, node: str, count: int | None, driver: str = DRIVER) -> Cluster:
        allocatable = {"count": count} if count is not None else {}
        put(self.csi_nodes, CSINode, node, spec={"drivers": [{"name": driver, "allocatable": allocatable}]})
        return self


def using(*claims: str) -> PodSpec:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return msgspec.convert({"volumes": volumes}, PodSpec)


def needs(cluster: Cluster, *claims: str) -> VolumeNeeds:
    return volume_needs(using(*claims), "ns", cluster)


def test_a_pod_without_claims_asks_nothing_of_volumes() -> None:
    spec = msgspec.convert(
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}]}, PodSpec
    )
    assert volume_needs(spec, "ns", Cluster()) is NO_VOLUMES


def test_a_bound_volume_is_reached_from_the_nodes_of_its_affinity_only() -> None:
    found = needs(Cluster().has_claim("data", "pv").has_volume("pv", ON_B), "data")
    assert found.rules == ({"properties": ["kubernetes.io/hostname=b"]},)
    assert found.waits == ""


@pytest.mark.parametrize(
    ("labels", "reaches"),
    [
        pytest.param({ZONE: "eu-1a"}, True, id="of its zone"),
        pytest.param({ZONE: "eu-1b"}, True, id="of its other zone"),
        pytest.param({ZONE: "eu-1c"}, False, id="of another zone"),
        pytest.param({REGION: "eu"}, False, id="of a region only"),
        pytest.param({OLD_ZONE: "eu-1a"}, False, id="with the label of former versions only"),
        pytest.param({"disk": "ssd"}, True, id="without any zone, which kube-scheduler accepts"),
    ],
)
def test_a_volume_with_a_zone_in_its_labels_is_reached_from_a_node(
    labels: dict[str, str], reaches: bool
) -> None:
    found = needs(Cluster().has_claim("data", "pv").has_volume("pv", labels={ZONE: "eu-1a__ eu-1b"}), "data")
    properties = {**labels, **{label_property(key, value): "" for key, value in labels.items()}}
    constraint = read_constraint(dict(found.rules[0]))
    assert constraint is not None
    assert constraint.accepts(NodeSubject("n1", properties)) == reaches


def test_the_zone_of_a_volume_that_no_claim_has_does_not_count() -> None:
    """The scheduler reads the labels of bound volumes only."""
    cluster = Cluster().has_claim("data").has_class(provisioner="kubernetes.io/no-provisioner")
    assert needs(cluster.has_volume("pv", phase="Available", labels={ZONE: "eu-1a"}), "data") == VolumeNeeds()


def test_a_volume_whose_affinity_compares_numbers_is_reached_from_these_nodes_only() -> None:
    greater = {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["5"]}]}]
        }
    }
    found = needs(Cluster().has_claim("data", "pv").has_volume("pv", greater), "data")
    assert found.rules == ({"greater": ["size", "5"]},)


def test_a_volume_that_is_made_for_its_pod_may_be_in_the_topologies_of_its_class() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["eu-1a", "eu-1b"]}]}]
    found = needs(Cluster().has_claim("data").has_class(allowedTopologies=allowed), "data")
    assert found.rules == ({"or": [{"properties": [f"{ZONE}=eu-1a"]}, {"properties": [f"{ZONE}=eu-1b"]}]},)
    assert needs(Cluster().has_claim("data").has_class(), "data") == VolumeNeeds()


def test_a_volume_that_is_being_made_for_a_node_is_there() -> None:
    selected = {"annotations": {"volume.kubernetes.io/selected-node": "b"}}
    assert needs(Cluster().has_claim("data", metadata=selected).has_class(), "data").rules == (
        {"hostlist": ["b"]},
    )
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["eu-1a"]}]}]
    found = needs(Cluster().has_claim("data", metadata=selected).has_class(allowedTopologies=allowed), "data")
    assert found.rules == ({"hostlist": ["b"]}, {"properties": [f"{ZONE}=eu-1a"]})


def test_free_and_large_enough_static_volumes_decide_about_the_node() -> None:
    local = Cluster().has_class(provisioner="kubernetes.io/no-provisioner")
    local.has_claim(
        "data", spec={"resources": {"requests": {"storage": "5Gi"}}, "accessModes": ["ReadWriteOnce"]}
    )
    assert "finds no free volume of the StorageClass fast that is large enough" in needs(local, "data").waits
    local.has_volume("small", ON_C, "Available", capacity={"storage": "1Gi"}, accessModes=["ReadWriteOnce"])
    local.has_volume(
        "others",
        ON_C,
        "Available",
        claimRef={"namespace": "ns", "name": "other"},
        accessModes=["ReadWriteOnce"],
    )
    local.has_volume("taken", ON_C, "Bound", accessModes=["ReadWriteOnce"])
    assert needs(local, "data").waits
    local.has_volume("large", ON_B, "Available", accessModes=["ReadWriteOnce"])
    found = needs(local, "data")
    assert (found.waits, found.rules) == ("", ({"properties": ["kubernetes.io/hostname=b"]},))


@pytest.mark.parametrize(
    ("cluster", "waits"),
    [
        pytest.param(Cluster(), "ns/data does not exist: create it", id="missing"),
        pytest.param(
            Cluster().has_claim("data", storage_class=None), "ns/data has no volume yet", id="without a class"
        ),
        pytest.param(
            Cluster().has_claim("data").has_class(mode="Immediate"),
            "ns/data has no volume yet",
            id="unbound, immediate",
        ),
        pytest.param(
            Cluster().has_claim("data"),
            "ns/data is of the StorageClass fast, which does not exist",
            id="of no class there is",
        ),
        pytest.param(
            Cluster().has_claim("data", "pv"),
            "ns/data is bound to the volume pv, which does not exist",
            id="bound to nothing",
        ),
        pytest.param(
            Cluster().has_claim("data", "pv", phase="Lost"), "ns/data has lost its volume pv", id="lost"
        ),
        pytest.param(
            Cluster().has_claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            "ns/data is being deleted",
            id="going",
        ),
    ],
)
def test_a_claim_that_says_nothing_of_nodes_yet_is_waited_for_by_name(cluster: Cluster, waits: str) -> None:
    assert f"PersistentVolumeClaim {waits}" in needs(cluster, "data").waits


def ephemeral(storage_class: str | None) -> PodSpec:
    template = {"spec": {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}}
    return msgspec.convert(
        {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}, PodSpec
    )


def test_of_a_generic_ephemeral_volume_only_the_class_counts() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["eu-1a"]}]}]
    cluster = Cluster().has_class(allowedTopologies=allowed).has_limit("a", 3)
    found = volume_needs(ephemeral("fast"), "ns", cluster)
    assert found.rules == ({"properties": [f"{ZONE}=eu-1a"]},)
    assert found.requests == {f"volumes/csi/{DRIVER}": 1}
    assert (
        "is of the StorageClass slow, which does not exist"
        in volume_needs(ephemeral("slow"), "ns", cluster).waits
    )
    assert "there is no default one" in volume_needs(ephemeral(None), "ns", cluster).waits
    cluster.has_class(
        "standard", metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    )
    assert volume_needs(ephemeral(None), "ns", cluster).waits == ""


def test_volumes_count_against_the_limit_of_their_driver_where_any_node_has_one() -> None:
    cluster = (
        Cluster()
        .has_claim("a", "pv")
        .has_volume("pv", csi={"driver": DRIVER})
        .has_claim("b")
        .has_class()
        .has_limit("n", None)
    )
    assert needs(cluster, "a", "b").requests == {}
    cluster.has_limit("m", 16)
    assert needs(cluster, "a", "b").requests == {f"volumes/csi/{DRIVER}": 2}
    assert (cluster.limits("m"), cluster.limits("n")) == ({f"volumes:csi:{DRIVER}": 16}, {})
    cluster.csi_nodes.replace([])
    assert needs(cluster, "a", "b").requests == {}


def described(cluster: Cluster, pods: int, *claims: str) -> NewWorkload:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    builder = (
        make_job()
        .namespace("ns")
        .indexed(pods)
        .cpu("1")
        .suspended()
        .annotation("fluxqueue/suspended-by", "webhook")
    )
    found = describe_job(a_job(builder.with_("spec.template.spec.volumes", volumes)), around(storage=cluster))
    assert found is not None
    return found


def test_the_rules_and_counts_of_volumes_are_in_the_request_of_a_job() -> None:
    cluster = (
        Cluster().has_claim("data", "pv").has_volume("pv", ON_B, csi={"driver": DRIVER}).has_limit("n", 3)
    )
    spec = json.loads(described(cluster, 1, "data").jobspec)
    assert spec["attributes"]["system"]["constraints"] == {
        "and": [{"tolerates": []}, {"properties": ["kubernetes.io/hostname=b"]}]
    }
    assert {"type": f"volumes:csi:{DRIVER}", "count": 1} in spec["resources"][0]["with"]


def test_pods_that_share_a_claim_ask_for_its_volume_once_on_each_node() -> None:
    cluster = Cluster().has_claim("data", "pv").has_volume("pv", csi={"driver": DRIVER}).has_limit("n", 3)
    spec = json.loads(described(cluster, 2, "data").jobspec)
    assert spec["attributes"]["system"]["domains"] == [{"once": {f"volumes:csi:{DRIVER}": 1}}]
    assert not any(each["type"] == f"volumes:csi:{DRIVER}" for each in spec["resources"][0]["with"])


def test_a_job_whose_claim_is_missing_waits_with_the_claim_in_its_reason() -> None:
    found = described(Cluster(), 1, "data")
    assert found.reason is Reason.WAITING_FOR_VOLUMES
    assert "PersistentVolumeClaim ns/data does not exist" in found.message


def test_a_gang_that_shares_a_claim_for_one_pod_is_refused_and_a_single_pod_is_not() -> None:
    cluster = Cluster().has_claim("data", "pv", spec={"accessModes": ["ReadWriteOncePod"]}).has_volume("pv")
    refused = described(cluster, 2, "data")
    assert refused.reason is Reason.INVALID_REQUEST
    assert "PersistentVolumeClaim ns/data is ReadWriteOncePod" in refused.message
    assert described(cluster, 1, "data").reason is Reason.NONE


def test_a_volume_that_is_kept_for_a_claim_decides_where_it_can_be() -> None:
    cluster = Cluster().has_class(provisioner="kubernetes.io/no-provisioner").has_claim("data")
    cluster.has_volume("near", ON_B, "Available").has_volume(
        "kept", ON_C, "Available", claimRef={"namespace": "ns", "name": "data"}
    )
    assert needs(cluster, "data").rules == ({"properties": ["kubernetes.io/hostname=c"]},)


def test_a_free_volume_must_be_selected_by_expressions_too_and_be_of_the_mode() -> None:
    not_old = {"matchExpressions": [{"key": "age", "operator": "NotIn", "values": ["old"]}]}
    cluster = (
        Cluster()
        .has_class(provisioner="kubernetes.io/no-provisioner")
        .has_claim("data", spec={"selector": not_old})
    )
    cluster.has_volume("old", ON_B, "Available", labels={"age": "old"}).has_volume(
        "raw", ON_B, "Available", volumeMode="Block"
    )
    assert "finds no free volume" in needs(cluster, "data").waits
    assert needs(cluster.has_volume("new", ON_C, "Available"), "data").rules == (
        {"properties": ["kubernetes.io/hostname=c"]},
    )


def test_a_pod_with_too_many_claims_is_refused_since_each_is_compared_with_all_free_volumes() -> None:
    cluster = Cluster().has_class(provisioner="kubernetes.io/no-provisioner")
    names = [f"c{number}" for number in range(65)]
    for name in names:
        cluster.has_claim(name, spec={"resources": {"requests": {"storage": "1Gi"}}})
    for number in range(300):
        on = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{number}"]}
        cluster.has_volume(
            f"v{number:03}",
            {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}},
            phase="Available",
        )
    with pytest.raises(
        InexpressibleConstraint,
        match=r"spec\.volumes: a pod has 65 claims and ephemeral volumes, the most is 64",
    ):
        needs(cluster, *names)
    assert len(needs(cluster, "c0").rules[0]["or"]) == 200
    found = needs(cluster, *names[:64])
    assert len(found.rules) == 64
    assert len(json.dumps(found.rules)) < 65_536, "all become a part of one request"


@pytest.mark.parametrize(
    "selector",
    [
        {
            "matchExpressions": [
                {"key": f"k{number}", "operator": "NotIn", "values": ["x"]} for number in range(65)
            ]
        },
        {
            "matchExpressions": [
                {"key": "k", "operator": "In", "values": [f"x{number}" for number in range(65)]}
            ]
        },
    ],
)
def test_a_claim_with_a_longer_selector_than_any_has_is_refused(selector: dict[str, Any]) -> None:
    cluster = (
        Cluster()
        .has_class(provisioner="kubernetes.io/no-provisioner")
        .has_claim("c", spec={"selector": selector})
    )
    with pytest.raises(
        InexpressibleConstraint,
        match="PersistentVolumeClaim ns/c: its selector has 65 requirements, the most is 64",
    ):
        needs(cluster, "c")
