"""A random walk: work of all kinds, nodes, foreign pods and faults are added and removed, drawn one after the
other from a seed.

A draw depends on the seed and on the draws before, never on the progress of the cluster, so a walk can be
repeated. At the end every fault is repaired, suspended work is resumed, and then all work must finish.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.builders import Json, make_job, make_minicluster, make_owner, make_pod
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.fake_nodes import node_name

__all__ = ["Walk"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
ELSEWHERE = "default"
"""A namespace that the queue does not manage: its pods are foreign."""
_CLAIMS = ("data-0", "data-1", "data-2")


@dataclass
class Walk:
    """A walk over a stage.

    Attributes
    ----------
    stage
        The namespace where work is applied.
    seed
        The seed, which repeats the walk.
    nodes
        The number of nodes at the start.
    """

    stage: Stage
    seed: int
    nodes: int
    steps: list[str] = field(default_factory=list)
    _jobs: list[str] = field(default_factory=list)
    _elastic: list[str] = field(default_factory=list)
    _pods: list[str] = field(default_factory=list)
    _deployments: list[str] = field(default_factory=list)
    _miniclusters: list[str] = field(default_factory=list)
    _foreign: list[str] = field(default_factory=list)
    _suspended: set[str] = field(default_factory=set)
    _missing_claims: list[str] = field(default_factory=lambda: list(_CLAIMS))
    _broken: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._client = self.stage.cluster.control_plane.client

    def go(self, seconds: float, pause_s: float = 0.5) -> None:
        """Walk for this many seconds, then repair everything."""
        kinds: list[tuple[int, Callable[[], str]]] = [
            (10, self._apply_job),
            (4, self._apply_pod),
            (3, self._apply_deployment),
            (3, self._apply_minicluster),
            (3, self._scale),
            (3, self._resize),
            (2, self._evict),
            (3, self._delete),
            (3, self._suspend),
            (2, self._resume),
            (2, self._cancel),
            (1, self._claim_comes),
            (4, self._foreign_comes),
            (3, self._foreign_goes),
            (4, self._break_node),
            (6, self._repair_node),
            (1, self._kill),
        ]
        weights = [weight for weight, _ in kinds]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            (chosen,) = self._draw.choices([step for _, step in kinds], weights)
            self.steps.append(chosen())
            time.sleep(pause_s)
        self._repair_all()

    # ---- work ----------------------------------------------------------------------------------------------

    def _apply_job(self) -> str:
        name, draw = f"j{len(self.steps)}", self._draw
        builder = (
            make_job(name)
            .cpu(draw.choice(["1", "2", "4", "8"]))
            .pod_annotation(RUN_SECONDS, draw.choice(["1", "2", "4"]))
        )
        shape = draw.choice(["indexed", "elastic", "gated", "one", "more", "turns"])
        pods = draw.randint(2, 4)
        match shape:
            case "indexed":
                builder = builder.indexed(pods)
            case "elastic":
                builder = builder.indexed(pods)
                self._elastic.append(name)
            case "gated":
                builder = builder.indexed(pods).annotation(names.REPLACE_ANNOTATION, "pod")
            case "more":
                builder = builder.pods(2, 2 + pods)
            case "turns":
                builder = builder.pods(1, pods)
        self._jobs.append(name)
        return self._post(
            f"/apis/batch/v1/namespaces/{self.stage.namespace}/jobs", builder.build(), f"apply {shape} {name}"
        )

    def _apply_pod(self) -> str:
        name = f"p{len(self.steps)}"
        pod = (
            make_pod(name)
            .cpu(self._draw.choice(["1", "4"]))
            .annotation(RUN_SECONDS, "2")
            .with_("spec.restartPolicy", "Never")
        )
        if self._draw.random() < 0.5:
            pod = pod.host_ports(8080)
        if self._draw.random() < 0.4:
            claim = self._draw.choice(_CLAIMS)
            pod = pod.with_("spec.volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])
        self._pods.append(name)
        return self._post(f"/api/v1/namespaces/{self.stage.namespace}/pods", pod.build(), f"apply pod {name}")

    def _apply_deployment(self) -> str:
        name, replicas = f"d{len(self.steps)}", self._draw.randint(1, 3)
        thing = make_owner("Deployment", name, replicas, "1")
        self._deployments.append(name)
        return self._post(
            f"/apis/apps/v1/namespaces/{self.stage.namespace}/deployments",
            thing,
            f"apply deployment {name} of {replicas}",
        )

    def _apply_minicluster(self) -> str:
        """Apply a MiniCluster of two or three brokers that end, half of the time with services that run until
        they are stopped.
        """
        name, draw = f"m{len(self.steps)}", self._draw
        asked = {"resources": {"requests": {"cpu": draw.choice(["1", "4"])}}}
        brokers = {"metadata": {"annotations": {RUN_SECONDS: draw.choice(["1", "4"])}}}
        beside: Json = (
            {"services": [{"name": "registry", "image": "registry", **asked}]} if draw.random() < 0.5 else {}
        )
        forever = {"annotations": {RUN_SECONDS: "forever"}}
        made = make_minicluster(name, draw.randint(2, 3), pod=forever, podTemplate=brokers, **beside)
        made["spec"]["containers"][0] |= asked
        self._miniclusters.append(name)
        path = (
            f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/"
            f"{self.stage.namespace}/{names.MINICLUSTERS}"
        )
        return self._post(path, made, f"apply minicluster {name} {'with services' if beside else ''}")

    def _scale(self) -> str:
        if not self._deployments:
            return "nothing to scale"
        name, replicas = self._draw.choice(self._deployments), self._draw.randint(0, 3)
        return self._patch(
            self._path("deployments", name), {"spec": {"replicas": replicas}}, f"scale {name} to {replicas}"
        )

    def _resize(self) -> str:
        """Grow or shrink an elastic Indexed Job."""
        if not self._elastic:
            return "nothing to resize"
        name, pods = self._draw.choice(self._elastic), self._draw.randint(1, 4)
        return self._patch(
            self._path("jobs", name),
            {"spec": {"parallelism": pods, "completions": pods}},
            f"resize {name} to {pods}",
        )

    def _evict(self) -> str:
        """Cordon a node and evict the queue's pods from it, as a drain does."""
        number = self._draw.randint(1, self.nodes)
        if number in self._broken or len(self._broken) > self.nodes // 2:
            return "no node to drain"
        self._broken[number] = "cordoned"
        name, namespace = node_name(number), self.stage.namespace
        self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, "")
        pods = self._client.get(
            f"/api/v1/namespaces/{namespace}/pods", fieldSelector=f"spec.nodeName={name}"
        )["items"]
        for pod in (each["metadata"]["name"] for each in pods):
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
            }
            self._ask("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction, "")
        return f"drain {name} of {len(pods)} pods"

    def _claim_comes(self) -> str:
        """Create a claim that pods may wait for, with a volume that one node reaches."""
        if not self._missing_claims:
            return "no claim is missing"
        claim, node = self._missing_claims.pop(), node_name(self._draw.randint(1, self.nodes))
        self.stage.claim(claim, "any")
        self.stage.bind(claim, node)
        return f"claim {claim} comes, on {node}"

    def _delete(self) -> str:
        kinds = [
            ("jobs", self._jobs),
            ("pods", self._pods),
            ("deployments", self._deployments),
            (names.MINICLUSTERS, self._miniclusters),
        ]
        kind, known = self._draw.choice(kinds)
        if not known:
            return f"no {kind} to delete"
        name = self._draw.choice(known)
        known.remove(name)
        self._suspended.discard(name)
        return self._remove(self._path(kind, name), f"delete {kind} {name}")

    def _suspend(self) -> str:
        jobs = [*self._jobs, *self._miniclusters]  # a MiniCluster's Job has its name
        if not jobs:
            return "nothing to suspend"
        name = self._draw.choice(jobs)
        self._suspended.add(name)
        return self._patch(self._path("jobs", name), {"spec": {"suspend": True}}, f"suspend {name}")

    def _resume(self) -> str:
        if not self._suspended:
            return "nothing to resume"
        name = self._draw.choice(sorted(self._suspended))
        self._suspended.remove(name)
        return self._patch(self._path("jobs", name), {"spec": {"suspend": False}}, f"resume {name}")

    def _cancel(self) -> str:
        if not self._jobs:
            return "nothing to cancel"
        name = self._draw.choice(self._jobs)
        self._jobs.remove(name)
        self._suspended.discard(name)
        path = f"/apis/{names.API_VERSION}/namespaces/{self.stage.namespace}/{names.FLUXJOBS}"
        try:
            fluxjobs = [
                item for item in self._client.get(path)["items"] if item["spec"]["objectRef"]["name"] == name
            ]
        except ApiServerError as error:
            return f"cancel {name}: {error.status}"
        for fluxjob in fluxjobs:
            self._patch(f"{path}/{fluxjob['metadata']['name']}", {"spec": {"cancel": True}}, "")
        return f"cancel {name}"

    # ---- foreign work --------------------------------------------------------------------------------------

    def _foreign_comes(self) -> str:
        name = f"foreign-{self.seed}-{len(self.steps)}"
        pod = make_pod(name).cpu(self._draw.choice(["1", "3"])).annotation(RUN_SECONDS, "forever").build()
        pod["metadata"].pop("namespace", None)
        self._foreign.append(name)
        return self._post(f"/api/v1/namespaces/{ELSEWHERE}/pods", pod, f"foreign pod {name}")

    def _foreign_goes(self) -> str:
        if not self._foreign:
            return "no foreign pod"
        name = self._foreign.pop(self._draw.randrange(len(self._foreign)))
        return self._remove(f"/api/v1/namespaces/{ELSEWHERE}/pods/{name}", f"foreign pod {name} goes")

    # ---- nodes and programs --------------------------------------------------------------------------------

    def _break_node(self) -> str:
        number, how = (
            self._draw.randint(1, self.nodes),
            self._draw.choice(["cordoned", "down", "gone", "tainted", "relabelled"]),
        )
        if number in self._broken or len(self._broken) > self.nodes // 2:
            return "no node to break"
        self._broken[number] = how
        name, cluster = node_name(number), self.stage.cluster.control_plane
        match how:
            case "cordoned":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, "")
            case "down":
                cluster.nodes.set_down(name)
            case "gone":
                self._remove(f"/api/v1/nodes/{name}", "")
            case "tainted":
                self._patch(
                    f"/api/v1/nodes/{name}",
                    {"spec": {"taints": [{"key": "walk", "effect": "NoSchedule"}]}},
                    "",
                )
            case "relabelled":
                self._patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"walk": "yes"}}}, "")
        return f"{name} is {how}"

    def _repair_node(self) -> str:
        if not self._broken:
            return "no node is broken"
        number = self._draw.choice(sorted(self._broken))
        how, name, cluster = self._broken.pop(number), node_name(number), self.stage.cluster.control_plane
        match how:
            case "cordoned":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}}, "")
            case "down":
                cluster.nodes.set_down(name, False)
            case "gone":
                cluster.nodes.restore(number)
            case "tainted":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "")
            case "relabelled":
                self._patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"walk": None}}}, "")
        return f"{name} is not {how} any more"

    def _kill(self) -> str:
        name = self._draw.choice(["queue", "fluxion"])
        self.stage.kill(name)
        return f"kill -9 {name}"

    # ---- the end -------------------------------------------------------------------------------------------

    def _repair_all(self) -> None:
        while self._broken:
            self.steps.append(self._repair_node())
        while self._foreign:
            self.steps.append(self._foreign_goes())
        while self._missing_claims:
            self.steps.append(self._claim_comes())
        for name in self._deployments:
            self.steps.append(self._remove(self._path("deployments", name), f"delete deployments {name}"))

    def let_go_on(self) -> None:
        """Resume what users suspended, and release what is held because it lost its nodes or did not start:
        the causes are repaired by now.

        Call it until no work is left: a Job that is freeing its nodes cannot be resumed yet.
        """
        jobs = self._client.get(f"/apis/batch/v1/namespaces/{self.stage.namespace}/jobs")["items"]
        for job in jobs:
            ours = names.SUSPENDED_BY_ANNOTATION in (job["metadata"].get("annotations") or {})
            if (
                job["spec"].get("suspend")
                and not ours
                and job["metadata"]["name"] in {*self._jobs, *self._miniclusters}
            ):
                self._patch(self._path("jobs", job["metadata"]["name"]), {"spec": {"suspend": False}}, "")
        path = f"/apis/{names.API_VERSION}/namespaces/{self.stage.namespace}/{names.FLUXJOBS}"
        for item in self._client.get(path)["items"]:
            if item.get("status", {}).get("reason") == "Held" and not item["spec"].get("cancel"):
                self._patch(f"{path}/{item['metadata']['name']}", {"spec": {"hold": False}}, "")

    # ---- requests ------------------------------------------------------------------------------------------

    def _path(self, kind: str, name: str) -> str:
        flux = f"apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}"
        group = {
            "jobs": "apis/batch/v1",
            "pods": "api/v1",
            "deployments": "apis/apps/v1",
            names.MINICLUSTERS: flux,
        }[kind]
        return f"/{group}/namespaces/{self.stage.namespace}/{kind}/{name}"

    def _post(self, path: str, thing: Json, said: str) -> str:
        thing["metadata"].pop("namespace", None)
        return self._ask("POST", path, thing, said)

    def _patch(self, path: str, change: Json, said: str) -> str:
        return self._ask("PATCH", path, change, said)

    def _remove(self, path: str, said: str) -> str:
        return self._ask("DELETE", path, {"propagationPolicy": "Background"}, said)

    def _ask(self, method: str, path: str, body: dict[str, Any], said: str) -> str:
        try:
            self._client.request(method, path, body)
        except ApiServerError as error:
            if error.status not in (403, 404, 409, 422):
                raise
            return f"{said}: {error.status}"
        return said
