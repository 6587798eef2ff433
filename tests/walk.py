"""A random walk: work of all kinds, nodes, foreign pods and faults come and go, one drawn after the other from a seed.

What is drawn depends on the seed and on what was drawn before, never on how far the cluster has come, so a walk can be walked again. At the
end everything that was broken is mended, what was suspended is resumed, and then nothing may be left undone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from builders import Json, make_job, make_minicluster, make_pod
from end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.local.apiserver_client import ApiError
from fluxqueue.local.fake_nodes import node_name

__all__ = ["Walk"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
ELSEWHERE = "default"
"""A namespace the queue does not manage: what runs there is foreign."""


@dataclass
class Walk:
    """A walk over a stage.

    Attributes
    ----------
    stage
        Where work is applied.
    seed
        Draws the same walk again.
    nodes
        How many the plane began with.
    """

    stage: Stage
    seed: int
    nodes: int
    steps: list[str] = field(default_factory=list)
    _jobs: list[str] = field(default_factory=list)
    _pods: list[str] = field(default_factory=list)
    _deployments: list[str] = field(default_factory=list)
    _miniclusters: list[str] = field(default_factory=list)
    _foreign: list[str] = field(default_factory=list)
    _suspended: set[str] = field(default_factory=set)
    _broken: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._client = self.stage.plane.control_plane.client

    def go(self, seconds: float, pause_s: float = 0.5) -> None:
        """Walk for so long, then mend everything."""
        kinds: list[tuple[int, Callable[[], str]]] = [
            (10, self._apply_job),
            (4, self._apply_pod),
            (3, self._apply_deployment),
            (3, self._apply_minicluster),
            (3, self._scale),
            (3, self._delete),
            (3, self._suspend),
            (2, self._resume),
            (2, self._cancel),
            (4, self._foreign_comes),
            (3, self._foreign_goes),
            (4, self._break_node),
            (6, self._mend_node),
            (1, self._kill),
        ]
        weights = [weight for weight, _ in kinds]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            (chosen,) = self._draw.choices([step for _, step in kinds], weights)
            self.steps.append(chosen())
            time.sleep(pause_s)
        self._mend_all()

    # ---- work ------------------------------------------------------------------------------------------------------------------

    def _apply_job(self) -> str:
        name, draw = f"j{len(self.steps)}", self._draw
        builder = make_job(name).cpu(draw.choice(["1", "2", "4", "8"])).pod_annotation(RUN_SECONDS, draw.choice(["1", "2", "4"]))
        shape = draw.choice(["indexed", "gated", "one", "more", "turns"])
        pods = draw.randint(2, 4)
        match shape:
            case "indexed":
                builder = builder.indexed(pods)
            case "gated":
                builder = builder.indexed(pods).annotation(names.REPLACE_ANNOTATION, "pod")
            case "more":
                builder = builder.pods(2, 2 + pods)
            case "turns":
                builder = builder.pods(1, pods)
        self._jobs.append(name)
        return self._post(f"/apis/batch/v1/namespaces/{self.stage.namespace}/jobs", builder.build(), f"apply {shape} {name}")

    def _apply_pod(self) -> str:
        name = f"p{len(self.steps)}"
        pod = make_pod(name).cpu(self._draw.choice(["1", "4"])).annotation(RUN_SECONDS, "2").with_("spec.restartPolicy", "Never")
        self._pods.append(name)
        return self._post(f"/api/v1/namespaces/{self.stage.namespace}/pods", pod.build(), f"apply pod {name}")

    def _apply_deployment(self) -> str:
        name, replicas = f"d{len(self.steps)}", self._draw.randint(1, 3)
        template = {"metadata": {"labels": {"app": name}}, "spec": make_pod(name).cpu("1").build()["spec"]}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        thing: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        self._deployments.append(name)
        return self._post(f"/apis/apps/v1/namespaces/{self.stage.namespace}/deployments", thing, f"apply deployment {name} of {replicas}")

    def _apply_minicluster(self) -> str:
        """Two or three brokers that end, half of the time with services beside them that go on until they are stopped."""
        name, draw = f"m{len(self.steps)}", self._draw
        asked = {"resources": {"requests": {"cpu": draw.choice(["1", "4"])}}}
        brokers = {"metadata": {"annotations": {RUN_SECONDS: draw.choice(["1", "4"])}}}
        beside: Json = {"services": [{"name": "registry", "image": "registry", **asked}]} if draw.random() < 0.5 else {}
        forever = {"annotations": {RUN_SECONDS: "forever"}}
        made = make_minicluster(name, draw.randint(2, 3), pod=forever, podTemplate=brokers, **beside)
        made["spec"]["containers"][0] |= asked
        self._miniclusters.append(name)
        path = f"/apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}/namespaces/{self.stage.namespace}/{names.MINICLUSTERS}"
        return self._post(path, made, f"apply minicluster {name} {'with services' if beside else ''}")

    def _scale(self) -> str:
        if not self._deployments:
            return "nothing to scale"
        name, replicas = self._draw.choice(self._deployments), self._draw.randint(0, 3)
        return self._patch(self._path("deployments", name), {"spec": {"replicas": replicas}}, f"scale {name} to {replicas}")

    def _delete(self) -> str:
        kinds = [("jobs", self._jobs), ("pods", self._pods), ("deployments", self._deployments), (names.MINICLUSTERS, self._miniclusters)]
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
            found = [item for item in self._client.get(path)["items"] if item["spec"]["objectRef"]["name"] == name]
        except ApiError as error:
            return f"cancel {name}: {error.status}"
        for fluxjob in found:
            self._patch(f"{path}/{fluxjob['metadata']['name']}", {"spec": {"cancel": True}}, "")
        return f"cancel {name}"

    # ---- what runs without us --------------------------------------------------------------------------------------------------

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

    # ---- nodes and programs ------------------------------------------------------------------------------------------------------

    def _break_node(self) -> str:
        number, how = self._draw.randint(1, self.nodes), self._draw.choice(["cordoned", "down", "gone", "tainted", "relabelled"])
        if number in self._broken or len(self._broken) > self.nodes // 2:
            return "no node to break"
        self._broken[number] = how
        name, plane = node_name(number), self.stage.plane.control_plane
        match how:
            case "cordoned":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, "")
            case "down":
                plane.set_node_down(name)
            case "gone":
                self._remove(f"/api/v1/nodes/{name}", "")
            case "tainted":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [{"key": "walk", "effect": "NoSchedule"}]}}, "")
            case "relabelled":
                self._patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"walk": "yes"}}}, "")
        return f"{name} is {how}"

    def _mend_node(self) -> str:
        if not self._broken:
            return "no node is broken"
        number = self._draw.choice(sorted(self._broken))
        how, name, plane = self._broken.pop(number), node_name(number), self.stage.plane.control_plane
        match how:
            case "cordoned":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}}, "")
            case "down":
                plane.set_node_down(name, False)
            case "gone":
                plane.return_node(number)
            case "tainted":
                self._patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "")
            case "relabelled":
                self._patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"walk": None}}}, "")
        return f"{name} is not {how} any more"

    def _kill(self) -> str:
        name = self._draw.choice(["queue", "fluxion"])
        self.stage.kill(name)
        return f"kill -9 {name}"

    # ---- the end ---------------------------------------------------------------------------------------------------------------

    def _mend_all(self) -> None:
        while self._broken:
            self.steps.append(self._mend_node())
        while self._foreign:
            self.steps.append(self._foreign_goes())
        for name in self._deployments:
            self.steps.append(self._remove(self._path("deployments", name), f"delete deployments {name}"))

    def let_go_on(self) -> None:
        """Resume what users suspended, and release what is held because it lost its nodes or did not start: that is mended by now.

        To be called until nothing is left: a Job that is giving its nodes back cannot be resumed yet.
        """
        jobs = self._client.get(f"/apis/batch/v1/namespaces/{self.stage.namespace}/jobs")["items"]
        for job in jobs:
            ours = names.SUSPENDED_BY_ANNOTATION in (job["metadata"].get("annotations") or {})
            if job["spec"].get("suspend") and not ours and job["metadata"]["name"] in {*self._jobs, *self._miniclusters}:
                self._patch(self._path("jobs", job["metadata"]["name"]), {"spec": {"suspend": False}}, "")
        path = f"/apis/{names.API_VERSION}/namespaces/{self.stage.namespace}/{names.FLUXJOBS}"
        for item in self._client.get(path)["items"]:
            if item.get("status", {}).get("reason") == "Held" and not item["spec"].get("cancel"):
                self._patch(f"{path}/{item['metadata']['name']}", {"spec": {"hold": False}}, "")

    # ---- requests --------------------------------------------------------------------------------------------------------------

    def _path(self, kind: str, name: str) -> str:
        flux = f"apis/{names.MINICLUSTER_GROUP}/{names.MINICLUSTER_VERSION}"
        group = {"jobs": "apis/batch/v1", "pods": "api/v1", "deployments": "apis/apps/v1", names.MINICLUSTERS: flux}[kind]
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
        except ApiError as error:
            if error.status not in (403, 404, 409, 422):
                raise
            return f"{said}: {error.status}"
        return said
