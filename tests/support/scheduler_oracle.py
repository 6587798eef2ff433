"""Random cases for a scheduler, small and independent: a few nodes, the pods on them, and one pod with a
candidate node.

Each case has namespaces, nodes and values of topology labels of its own, so hundreds of cases exist in one
cluster and none changes the answer of another. The pod is restricted to its node by the node's name in each
term of node affinity, or by taints on the other nodes. The second way exists because with the first one only
that node would count for spread. A case depends on a seed and its number alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

ZONE = "case/zone"
HOST = "kubernetes.io/hostname"
PUBLIC_ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"
PROVISIONER = "provisioner.example.com"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

SHARED: tuple[tuple[str, Json], ...] = (
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": "heavy"},
            "handler": "heavy",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
        },
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "meek"}, "value": 0, "preemptionPolicy": "Never"},
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "late"},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "late-in-a"},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": PUBLIC_ZONE, "values": ["a"]}]}],
        },
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": "at-once"}, "provisioner": PROVISIONER, "volumeBindingMode": "Immediate"},
    ),
)
"""Objects that all cases use."""


ASPECTS = ("taints", "labels", "ports", "resources", "affinity", "spread", "volumes", "disturbances")
"""Each case uses some of these: with all of them hardly any pod would fit anywhere."""


@dataclass
class Case:
    """One case.

    Attributes
    ----------
    creations
        Path and object, in groups: each may need those before it.
    statuses
        Path and status to write afterwards.
    deletions
        Paths of objects that are being deleted.
    node
        The name of the candidate node.
    """

    number: int
    namespace: str
    node: str = ""
    pod: str = "candidate"
    creations: list[list[tuple[str, Json]]] = field(default_factory=lambda: [[], [], []])
    node_specs: list[tuple[str, Json]] = field(default_factory=list)
    statuses: list[tuple[str, Json]] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)

    def add(self, stage: int, path: str, body: Json) -> None:
        self.creations[stage].append((path, body))


def make_case(seed: int, number: int) -> Case:
    """Return the case with this number."""
    return CaseMaker(random.Random(f"{seed}/{number}"), number, str(number)).make()


class CaseMaker:
    """Makes one case.

    Parameters
    ----------
    rng
        Makes all choices.
    number
        Of the case.
    mark
        Part of all names that must differ between cases.
    """

    TAINTS: tuple[tuple[str, str], ...] = (
        ("gpu", "yes"),
        ("gpu", "no"),
        ("gpu", ""),
        ("team", "a"),
        ("node.kubernetes.io/disk-pressure", ""),
        ("node.kubernetes.io/not-ready", ""),
        ("node.kubernetes.io/unschedulable", ""),
    )
    NODES: tuple[int, ...] = (1, 1, 2, 3)

    def __init__(self, rng: random.Random, number: int, mark: str) -> None:
        self._rng = rng
        self._number = mark
        self._case = Case(number, f"case-{mark}")
        self._nodes: list[Json] = []
        self._names = (f"thing-{mark}-{serial}" for serial in itertools.count())
        self._spread_tie = False
        self._about = {*rng.sample(ASPECTS, rng.choice((1, 1, 2, 2, 3)))}

    def make(self) -> Case:
        case, rng = self._case, self._rng
        for name in self._namespaces():
            labels = {"group": f"g{self._number}", "side": name.rpartition("-")[2]}
            case.add(0, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            case.add(1, f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        self._nodes = [self._node(index) for index in range(rng.choice(self.NODES))]
        case.node = self._nodes[0]["metadata"]["name"]
        self._spread_tie = self._tied()
        for node in self._nodes:
            self._put_node(node)
        for index in range(rng.choice((0, 1, 2, 2, 3, 4))):
            self._bound_pod(f"bound-{index}")
        self._candidate()
        return case

    def _tied(self) -> bool:
        return len(self._nodes) > 1 and self._chance(0.9 if "spread" in self._about else 0.3)

    def _namespaces(self) -> list[str]:
        return [self._case.namespace, f"{self._case.namespace}-b"]

    def _chance(self, share: float, about: str = "") -> bool:
        return (not about or about in self._about) and self._rng.random() < share

    # ---- nodes ---------------------------------------------------------------------------------------------

    def _node(self, index: int) -> Json:
        rng, name = self._rng, f"case-{self._number}-n{index}"
        labels = {"case": self._number, HOST: name}
        if self._chance(0.85):
            labels[ZONE] = f"{self._number}-{rng.choice('ab')}"
        if self._chance(0.5):
            labels[PUBLIC_ZONE] = rng.choice("ab")
        if self._chance(0.7):
            labels["disk"] = rng.choice(("ssd", "hdd"))
        if self._chance(0.7):
            labels["cores"] = rng.choice(("4", "64", "four", "007", "9223372036854775808"))
        tight = "resources" in self._about
        sizes = {
            "cpu": rng.choice(("1", "2", "1500m", "4", "2000m")) if tight else "64",
            "memory": rng.choice(("1Gi", "2Gi", "1500M", "4Gi")) if tight else "64Gi",
            "pods": rng.choice(("2", "3", "10", "10", "10", "10")) if tight else "10",
            "ephemeral-storage": rng.choice(("1Gi", "10Gi")) if tight else "64Gi",
        }
        if self._chance(0.5, "resources"):
            sizes["example.com/gpu"] = rng.choice(("0", "1", "2"))
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": sizes,
                "allocatable": sizes,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }

    def _put_node(self, node: Json) -> None:
        rng, name = self._rng, node["metadata"]["name"]
        taints = {}
        for _ in range(rng.choice((0, 1, 1, 2)) if "taints" in self._about else 0):
            key, value = rng.choice(self.TAINTS)
            effect = rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
            taints[key, effect] = {"key": key, "value": value, "effect": effect}
        spec: Json = {"taints": [*taints.values()]}
        if self._chance(0.25, "taints"):
            spec["unschedulable"] = True
        if self._spread_tie and name != self._case.node:
            spec["taints"].append({"key": "tie", "value": "", "effect": "NoSchedule"})
        self._case.add(0, "/api/v1/nodes", node)
        self._case.node_specs.append((f"/api/v1/nodes/{name}", {"spec": spec}))
        if self._chance(0.4):
            drivers = [
                {
                    "name": each,
                    "nodeID": name,
                    "topologyKeys": [],
                    "allocatable": {"count": rng.choice((1, 1, 2))},
                }
                for each in self._drivers()
            ]
            self._case.add(
                1,
                "/apis/storage.k8s.io/v1/csinodes",
                {"metadata": {"name": name}, "spec": {"drivers": drivers}},
            )

    def _drivers(self) -> list[str]:
        return [each for each in (DRIVER, PROVISIONER) if self._chance(0.7)]

    # ---- pods ----------------------------------------------------------------------------------------------

    def _bound_pod(self, name: str) -> None:
        case, rng = self._case, self._rng
        namespace = rng.choices(self._namespaces(), (4, 1))[0]
        node = rng.choice((self._nodes[0], rng.choice(self._nodes)))["metadata"]["name"]
        pod = self._pod(name, namespace)
        pod["spec"]["nodeName"] = node
        if self._chance(0.35, "affinity"):
            pod["spec"]["affinity"] = {"podAntiAffinity": self._required(self._terms())}
        if self._chance(0.4, "volumes"):
            pod["spec"]["volumes"] = [self._claimed(self._bound_claim(namespace, self._chance(0.3)))]
        path = f"/api/v1/namespaces/{namespace}/pods"
        case.add(2, path, pod)
        fate = rng.random()
        if "disturbances" not in self._about and "resources" not in self._about:
            return
        if fate < 0.1:
            case.statuses.append(
                (f"{path}/{name}/status", {"status": {"phase": rng.choice(("Succeeded", "Failed"))}})
            )
        elif fate < 0.2:
            case.deletions.append(f"{path}/{name}")
        elif fate < 0.35:
            case.statuses.append((f"{path}/{name}/status", {"status": self._resized(pod)}))

    def _resized(self, pod: Json) -> Json:
        rng = self._rng

        def amounts() -> Json:
            return {
                "cpu": rng.choice(("50m", "300m", "700m", "1200m")),
                "memory": rng.choice(("32Mi", "600Mi", "1100Mi")),
            }

        statuses = []
        for container in pod["spec"]["containers"]:
            status = {
                "name": container["name"],
                "ready": True,
                "restartCount": 0,
                "image": "i",
                "imageID": "i",
                "allocatedResources": amounts(),
            }
            if self._chance(0.85):
                status["resources"] = {"requests": amounts()}
            statuses.append(status)
        pod_status: Json = {"phase": "Running", "containerStatuses": statuses}
        if self._chance(0.5):
            condition = {
                "type": "PodResizePending",
                "status": "True",
                "reason": rng.choice(("Infeasible", "Deferred")),
            }
            pod_status["conditions"] = [condition]
        return pod_status

    def _pod(self, name: str, namespace: str) -> Json:
        rng = self._rng
        labels = {"app": rng.choice("abc")}
        if self._chance(0.6):
            labels["tier"] = rng.choice("xy")
        containers = [self._container(f"c{index}", 80 + index) for index in range(rng.choice((1, 1, 2)))]
        spec: Json = {"containers": containers, "terminationGracePeriodSeconds": 600}
        if self._chance(0.25):
            spec["initContainers"] = [
                self._init_container(f"i{index}", 82 + index) for index in range(rng.choice((1, 2, 3)))
            ]
        if self._chance(0.08):
            spec["runtimeClassName"] = "heavy"
        if self._chance(0.12):
            spec["resources"] = {
                "requests": rng.choice(({"cpu": "1500m"}, {"memory": "1Gi"}, {"cpu": "3", "memory": "3Gi"}))
            }
        if self._chance(0.05):
            spec["hostNetwork"] = True
            for container in (*containers, *spec.get("initContainers", ())):
                container["ports"] = [
                    {"containerPort": port["containerPort"]} for port in container.get("ports", ())
                ]
        return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}

    def _container(self, name: str, port: int) -> Json:
        rng = self._rng
        requests: Json = {}
        if self._chance(0.7):
            requests["cpu"] = rng.choice(("0", "100m", "250m", "500m", "500m", "1", "1.5"))
        if self._chance(0.5):
            requests["memory"] = rng.choice(("64Mi", "512Mi", "512Mi", "1Gi"))
        if self._chance(0.15):
            requests["ephemeral-storage"] = rng.choice(("100Mi", "1Gi", "2Gi"))
        limits = {}
        if self._chance(0.2, "resources"):
            limits["example.com/gpu"] = requests["example.com/gpu"] = rng.choice(("1", "1", "2"))
        if self._chance(0.05):
            limits["cpu"] = "1500m"
        container: Json = {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}
        if self._chance(0.5, "ports"):
            opened: Json = {
                "containerPort": port,
                "hostPort": port,
                "protocol": rng.choice(("TCP", "TCP", "UDP")),
            }
            if self._chance(0.6):
                opened["hostIP"] = rng.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0", "127.0.0.1"))
            container["ports"] = [opened]
        return container

    def _init_container(self, name: str, port: int) -> Json:
        container = self._container(name, self._rng.choice((port, 80)) if name == "i0" else port)
        if self._chance(0.4):
            container["restartPolicy"] = "Always"
        return container

    def _candidate(self) -> None:
        case, rng = self._case, self._rng
        pod = self._pod(case.pod, case.namespace)
        spec = pod["spec"]
        spec["priorityClassName"] = "meek"
        if self._chance(0.8, "taints"):
            spec["tolerations"] = [self._toleration() for _ in range(rng.choice((1, 2)))]
        if self._chance(0.3, "labels"):
            spec["nodeSelector"] = {rng.choice(("disk", "disk", "cores")): rng.choice(("ssd", "hdd", "4"))}
        affinity: Json = {}
        terms = (
            [self._node_term() for _ in range(rng.choice((1, 1, 2)))] if self._chance(0.8, "labels") else []
        )
        terms = self._restricted(spec, terms)
        if terms:
            affinity["nodeAffinity"] = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        if self._chance(0.4, "affinity"):
            affinity["podAffinity"] = self._required(self._terms())
        if self._chance(0.3, "affinity"):
            affinity["podAntiAffinity"] = self._required(self._terms())
        spec["affinity"] = affinity
        if self._chance(0.9, "spread"):
            spec["topologySpreadConstraints"] = [
                self._spread(key) for key in rng.sample((ZONE, HOST), rng.choice((1, 1, 2)))
            ]
        if self._chance(0.9, "volumes"):
            spec["volumes"] = [self._claimed(self._any_claim()) for _ in range(rng.choice((1, 1, 2)))]
        self._put_work(pod)

    def _restricted(self, spec: Json, terms: list[Json]) -> list[Json]:
        """Restrict the candidate to its node; return the terms of its node affinity."""
        case = self._case
        if self._spread_tie:
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "case": self._number}
            return terms
        pin = {"key": "metadata.name", "operator": "In", "values": [case.node]}
        return [{**term, "matchFields": [*term.get("matchFields", ()), pin]} for term in terms or [{}]]

    def _put_work(self, pod: Json) -> None:
        self._case.add(2, f"/api/v1/namespaces/{self._case.namespace}/pods", pod)

    def _toleration(self) -> Json:
        rng = self._rng
        toleration: Json = rng.choice(
            (
                {"operator": "Exists"},
                {"key": "gpu", "operator": "Exists"},
                {"key": "gpu", "value": "yes"},
                {"key": "gpu", "operator": "Equal", "value": "no"},
                {"key": "gpu"},
                {"key": "team", "operator": "Exists"},
                {"key": "team", "value": "b"},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            )
        )
        if self._spread_tie and "key" not in toleration:
            return {"key": "gpu", "operator": "Exists"}
        return {
            **toleration,
            **({"effect": rng.choice(("NoSchedule", "NoExecute"))} if self._chance(0.5) else {}),
        }

    def _node_term(self) -> Json:
        rng = self._rng
        expressions = [
            rng.choice(
                (
                    {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
                    {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
                    {"key": "disk", "operator": "Exists"},
                    {"key": "rack", "operator": "DoesNotExist"},
                    {"key": "disk", "operator": "DoesNotExist"},
                    {"key": "cores", "operator": "Gt", "values": [rng.choice(("3", "6", "-4", "64"))]},
                    {"key": "cores", "operator": "Lt", "values": [rng.choice(("5", "8", "65", "-2"))]},
                )
            )
            for _ in range(rng.choice((0, 1, 1, 2)))
        ]
        if not expressions and self._spread_tie:
            return {"matchExpressions": [{"key": "case", "operator": "Exists"}]}
        return {"matchExpressions": expressions} if expressions else {}

    # ---- rules about other pods ----------------------------------------------------------------------------

    @staticmethod
    def _required(terms: list[Json]) -> Json:
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def _terms(self) -> list[Json]:
        return [self._term() for _ in range(self._rng.choice((1, 1, 2)))]

    def _term(self) -> Json:
        rng = self._rng
        term: Json = {"topologyKey": rng.choice((ZONE, HOST))}
        selector = self._selector()
        if selector is not None:
            term["labelSelector"] = selector
            if self._chance(0.15) and "app" not in str(selector):
                term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["app"]
        if self._chance(0.3):
            term["namespaces"] = [rng.choice(self._namespaces())]
        if self._chance(0.3):
            side = {"side": "b"} if self._chance(0.3) else {}
            term["namespaceSelector"] = {"matchLabels": {"group": f"g{self._number}", **side}}
        return term

    def _selector(self) -> Json | None:
        rng = self._rng
        return rng.choice(
            (
                {"matchLabels": {"app": rng.choice("abc")}},
                {"matchLabels": {"app": rng.choice("abc")}},
                {"matchLabels": {"tier": rng.choice("xy")}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
                {"matchExpressions": [{"key": "tier", "operator": rng.choice(("Exists", "DoesNotExist"))}]},
                {},
                None,
            )
        )

    def _spread(self, key: str) -> Json:
        rng = self._rng
        spread: Json = {
            "topologyKey": key,
            "maxSkew": rng.choice((1, 1, 2)),
            "whenUnsatisfiable": "DoNotSchedule",
        }
        selector = self._selector()
        if selector is not None:
            spread["labelSelector"] = selector
            if self._chance(0.15) and "app" not in str(selector):
                spread["matchLabelKeys"] = ["app"]
        if self._chance(0.3):
            spread["minDomains"] = rng.choice((1, 2, 3))
        if self._chance(0.4):
            spread["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if self._chance(0.4):
            spread["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        return spread

    # ---- volumes -------------------------------------------------------------------------------------------

    def _claimed(self, name: str) -> Json:
        return {"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}}

    def _any_claim(self) -> str:
        kinds = (
            self._bound_claim,
            self._bound_claim,
            self._static_claim,
            self._static_claim,
            self._late_claim,
            self._late_claim,
            self._odd_claim,
        )
        return self._rng.choice(kinds)(self._case.namespace)

    def _put_claim(
        self,
        name: str,
        namespace: str,
        spec: Json,
        annotations: Json | None = None,
        modes: list[str] | None = None,
    ) -> None:
        size = self._rng.choice(("1Gi", "2Gi"))
        whole = {
            "accessModes": modes or ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        }
        body = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": whole}
        self._case.add(1, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", body)

    def _put_volume(
        self, name: str, storage_class: str, claim: Json | None, phase: str, size: str = "2Gi"
    ) -> None:
        rng = self._rng
        spec: Json = {
            "capacity": {"storage": size},
            "accessModes": rng.choice(
                (["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"], ["ReadOnlyMany"])
            ),
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
        }
        if self._chance(0.6):
            spec["csi"] = {"driver": DRIVER, "volumeHandle": name}
        else:
            spec["hostPath"] = {"path": "/data"}
        if claim is not None:
            spec["claimRef"] = claim
        if self._chance(0.6):
            values = [rng.choice(self._nodes)["metadata"]["name"]]
            where = rng.choice(
                ({"key": HOST, "operator": "In", "values": values}, {"key": "disk", "operator": "Exists"})
            )
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
        labels = {"tier": rng.choice("xy")}
        if self._chance(0.4):
            labels[PUBLIC_ZONE] = rng.choice(("a", "b", "a__b"))
        self._case.add(
            0, "/api/v1/persistentvolumes", {"metadata": {"name": name, "labels": labels}, "spec": spec}
        )
        self._case.statuses.append((f"/api/v1/persistentvolumes/{name}/status", {"status": {"phase": phase}}))

    def _bound_claim(self, namespace: str, alone: bool = False) -> str:
        name, volume = next(self._names), next(self._names)
        modes = ["ReadWriteOncePod"] if alone else ["ReadWriteOnce"]
        self._put_volume(volume, "", {"namespace": namespace, "name": name}, "Bound")
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        self._put_claim(name, namespace, {"storageClassName": "", "volumeName": volume}, annotations, modes)
        status = {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "2Gi"}}
        self._case.statuses.append(
            (f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status", {"status": status})
        )
        return name

    def _static_claim(self, namespace: str) -> str:
        rng, name, storage_class = self._rng, next(self._names), next(self._names)
        body = {
            "metadata": {"name": storage_class},
            "provisioner": rng.choice(
                ("kubernetes.io/no-provisioner", "kubernetes.io/no-provisioner", PROVISIONER)
            ),
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        self._case.add(0, "/apis/storage.k8s.io/v1/storageclasses", body)
        for _ in range(rng.choice((0, 1, 2, 3))):
            kept = {"namespace": namespace, "name": name} if self._chance(0.15) else None
            phase = "Available" if self._chance(0.9) else "Released"
            self._put_volume(
                next(self._names), storage_class, kept, phase, rng.choice(("500Mi", "1Gi", "2Gi", "5Gi"))
            )
        spec: Json = {"storageClassName": storage_class}
        if self._chance(0.3):
            spec["selector"] = rng.choice(
                (
                    {"matchLabels": {"tier": "x"}},
                    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]},
                    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                )
            )
        if self._chance(0.1):
            spec["volumeMode"] = "Block"
        self._put_claim(name, namespace, spec)
        return name

    def _late_claim(self, namespace: str) -> str:
        rng, name = self._rng, next(self._names)
        annotations = {}
        if self._chance(0.4):
            annotations[SELECTED_NODE] = rng.choice((self._case.node, self._case.node, "elsewhere"))
        self._put_claim(name, namespace, {"storageClassName": rng.choice(("late", "late-in-a"))}, annotations)
        return name

    def _odd_claim(self, namespace: str) -> str:
        rng, name = self._rng, next(self._names)
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
        match rng.choice(("missing", "at once", "no class", "lost", "deleted", "of no volume", "for one")):
            case "missing":
                pass
            case "at once":
                self._put_claim(name, namespace, {"storageClassName": "at-once"})
            case "no class":
                self._put_claim(name, namespace, {"storageClassName": "none-such"})
            case "lost":
                self._put_claim(
                    name,
                    namespace,
                    {"storageClassName": "", "volumeName": "gone"},
                    {"pv.kubernetes.io/bind-completed": "yes"},
                )
                self._case.statuses.append((f"{path}/status", {"status": {"phase": "Lost"}}))
            case "deleted":
                self._put_claim(name, namespace, {"storageClassName": "late"})
                self._case.deletions.append(path)
            case "of no volume":
                self._put_claim(
                    name,
                    namespace,
                    {"storageClassName": "", "volumeName": "gone"},
                    {"pv.kubernetes.io/bind-completed": "yes"},
                )
                self._case.statuses.append((f"{path}/status", {"status": {"phase": "Bound"}}))
            case "for one":
                name = self._bound_claim(namespace, alone=True)
                user = self._pod(f"user-of-{name}", namespace)
                user["spec"] = {
                    "containers": [{"name": "c", "image": "i"}],
                    "nodeName": rng.choice(self._nodes)["metadata"]["name"],
                    "volumes": [self._claimed(name)],
                }
                if self._chance(0.7):
                    self._case.add(2, f"/api/v1/namespaces/{namespace}/pods", user)
        return name


def stages(cases: list[Case]) -> Iterator[list[tuple[Case, str, Json]]]:
    """Return the objects to be created, in groups that need the groups before them."""
    for stage in range(3):
        yield [(case, path, body) for case in cases for path, body in case.creations[stage]]
