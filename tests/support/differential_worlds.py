"""Random worlds for the queue and kube-scheduler: a few nodes with what is on them, and one piece of work of
some kind.

A world is a list of documents, as one would apply them, whose names have a mark (`MARK`). Copies with other
marks are alike and do not see each other: each has nodes, namespaces, volumes and topology labels of its own,
and its work is restricted to its nodes by their label. The nodes and pods are made as the cases for our
scheduler are (`scheduler_oracle`). A world depends on its seed and number alone.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from support.differential_devices import DEVICE_PATHS, devices_for
from support.scheduler_oracle import HOST, SHARED, ZONE, Case, CaseMaker

from fluxqueue.api import names

__all__ = ["MARK", "SHARED", "World", "is_work", "make_world", "path_of", "pods_of"]

Json = dict[str, Any]

MARK = "0mark0"
RUN_SECONDS = "fluxqueue.local/run-seconds"
STUCK = "fluxqueue.local/stuck"
DELETED = "differential/deleted"
"""A document with this label is deleted after it was created, so that it terminates."""
ROLE = "differential/work"
"""Label of the documents that are the work, and of its pods."""
KINDS = (
    "pod",
    "indexed",
    "plain",
    "turns",
    "group",
    "mixed-group",
    "deployment",
    "statefulset",
    "deployment-gang",
    "statefulset-gang",
)
_PATHS = {
    "Node": ("v1", "/api/v1/nodes"),
    "Namespace": ("v1", "/api/v1/namespaces"),
    "PersistentVolume": ("v1", "/api/v1/persistentvolumes"),
    "StorageClass": ("storage.k8s.io/v1", "/apis/storage.k8s.io/v1/storageclasses"),
    "CSINode": ("storage.k8s.io/v1", "/apis/storage.k8s.io/v1/csinodes"),
    "Pod": ("v1", "/api/v1/namespaces/{}/pods"),
    **DEVICE_PATHS,
    "ServiceAccount": ("v1", "/api/v1/namespaces/{}/serviceaccounts"),
    "PersistentVolumeClaim": ("v1", "/api/v1/namespaces/{}/persistentvolumeclaims"),
    "ResourceQuota": ("v1", "/api/v1/namespaces/{}/resourcequotas"),
    "Job": ("batch/v1", "/apis/batch/v1/namespaces/{}/jobs"),
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/{}/deployments"),
    "StatefulSet": ("apps/v1", "/apis/apps/v1/namespaces/{}/statefulsets"),
}
_ORDER = (*_PATHS,)
_WITH_DEVICES = 0.3
"""Share of the worlds whose work claims devices."""


@dataclass(frozen=True)
class World:
    """One world.

    Attributes
    ----------
    number
        Of the world in its seed.
    documents
        Everything in it.
    """

    number: int
    documents: tuple[Json, ...]

    def marked(self, mark: str, room: str = "", *, empty: bool = False) -> list[Json]:
        """Return the documents of a copy.

        Parameters
        ----------
        mark
            Part of its names.
        room
            Name of its namespace, and part of that of the other one; by default the mark is a part of both.
        empty
            True for a copy without pods beside the work, and without cordoned nodes.
        """
        text = json.dumps(
            [each for each in self.documents if not empty or is_work(each) or each["kind"] != "Pod"]
        )
        if room:
            text = text.replace(f'"case-{MARK}"', f'"{room}"').replace(f'"case-{MARK}-b"', f'"{room}-b"')
        documents: list[Json] = json.loads(text.replace(MARK, mark))
        for each in documents:
            if empty and each["kind"] == "Node":
                each["spec"].pop("unschedulable", None)
        return documents

    def text(self) -> str:
        """Return the world as YAML that one can apply; a status of a volume,
        claim or pod has to be written afterwards.
        """
        return yaml.safe_dump_all(self.marked("w"), sort_keys=False, width=140)


def path_of(document: Json) -> str:
    """Return the path of the collection of a document."""
    return _PATHS[document["kind"]][1].format(document["metadata"].get("namespace", ""))


def is_work(document: Json) -> bool:
    """True for the work of a world, and for its pods."""
    return ROLE in (document["metadata"].get("labels") or {})


def pods_of(documents: list[Json]) -> int:
    """Return how many pods of the work run at once."""
    return sum(_at_once(each) for each in documents if is_work(each))


def _at_once(work: Json) -> int:
    match work["kind"]:
        case "Pod":
            return 1
        case "Job":
            return int(
                min(work["spec"]["parallelism"], work["spec"].get("completions", work["spec"]["parallelism"]))
            )
    return int(work["spec"]["replicas"])


def make_world(seed: int, number: int, *, devices: bool = True) -> World:
    """Return the world with this number; without ``devices`` no work claims any,
    which our own scheduler does not allocate.
    """
    maker = _Maker(random.Random(f"differential/{seed}/{number}"), number, MARK)
    return maker.world(random.Random(f"devices/{seed}/{number}") if devices else None)


class _Maker(CaseMaker):
    """The work is not restricted to one node, and no controller of the cluster changes what the world
    states.
    """

    TAINTS = (("gpu", "yes"), ("gpu", "no"), ("gpu", ""), ("team", "a"), ("example.com/maintenance", ""))
    NODES = (1, 2, 2, 3, 4)

    def world(self, of_devices: random.Random | None) -> World:
        """Return the world; its devices come from a generator of their own,
        so that all else is as it was without them.
        """
        documents = [*_documents(self.make())]
        if self._chance(0.12):
            documents.append(self._quota())
        if of_devices is not None and of_devices.random() < _WITH_DEVICES:
            nodes = [each["metadata"]["name"] for each in documents if each["kind"] == "Node"]
            specs = [each["spec"].get("template", each)["spec"] for each in documents if is_work(each)]
            documents += devices_for(of_devices, MARK, self._case.namespace, nodes, specs)
        documents.sort(key=lambda each: (is_work(each), _ORDER.index(each["kind"])))
        text = json.dumps(documents).replace(ZONE, f"{MARK}/zone")
        return World(self._case.number, tuple(json.loads(text)))

    def _tied(self) -> bool:
        return False

    def _restricted(self, spec: Json, terms: list[Json]) -> list[Json]:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), "case": self._number}
        return terms

    def _spread(self, key: str) -> Json:
        """Nodes of other worlds have host names too, so only zones can be counted regardless of the node
        selector.

        ``minDomains`` is known to be measured on the pinned node alone otherwise (docs/placement.md).
        """
        spread = super()._spread(key)
        if key == HOST:
            spread.pop("nodeAffinityPolicy", None)
            spread.pop("minDomains", None)
        elif spread.get("minDomains", 1) > 1:
            spread["nodeAffinityPolicy"] = "Ignore"
        return spread

    def _resized(self, pod: Json) -> Json:
        """Leave statuses to kwok, which writes them."""
        super()._resized(pod)
        return {}

    def _bound_pod(self, name: str) -> None:
        super()._bound_pod(name)
        _, pod = self._case.creations[2][-1]
        pod["metadata"].setdefault("labels", {})[names.MANAGED_LABEL] = "false"

    def _quota(self) -> Json:
        hard = self._rng.choice(
            ({"pods": "3"}, {"requests.cpu": "2"}, {"requests.memory": "2Gi"}, {"limits.cpu": "4"})
        )
        return _document(
            "ResourceQuota",
            {"metadata": {"name": "quota", "namespace": self._case.namespace}, "spec": {"hard": hard}},
        )

    def _put_work(self, pod: Json) -> None:
        kind, count = self._rng.choice(KINDS), self._rng.choice((1, 2, 2, 3, 4))
        pods = [pod]
        if kind == "mixed-group":
            pods += [self._member(pod) for _ in range(count)]
        for each in pods:
            each["metadata"]["labels"][ROLE] = "true"
            each["metadata"]["annotations"] = {RUN_SECONDS: "forever"}
            each["spec"]["terminationGracePeriodSeconds"] = 1
        self._case.creations[2] += [(path_of(each), each) for each in _works(kind, count, pods)]

    def _member(self, pod: Json) -> Json:
        """Return a pod of another size and with other labels, under the same rules."""
        other = self._pod(self._case.pod, self._case.namespace)
        rules = (
            "affinity",
            "nodeSelector",
            "tolerations",
            "topologySpreadConstraints",
            "volumes",
            "priorityClassName",
        )
        other["spec"] |= {key: copy.deepcopy(pod["spec"][key]) for key in rules if key in pod["spec"]}
        return other


def _works(kind: str, count: int, pods: list[Json]) -> Iterator[Json]:
    pod = pods[0]
    meta = {"name": "work", "namespace": pod["metadata"]["namespace"], "labels": {ROLE: "true"}}
    inner = {key: value for key, value in pod["metadata"].items() if key in ("labels", "annotations")}
    template = {"metadata": inner, "spec": pod["spec"]}
    match kind:
        case "pod":
            yield _document("Pod", pod)
        case "group" | "mixed-group":
            members = pods if kind == "mixed-group" else [pod] * count
            for index, each in enumerate(members):
                member = copy.deepcopy(each)
                member["metadata"]["name"] = f"work-{index}"
                member["metadata"]["labels"][names.POD_GROUP_LABEL] = "work"
                member["metadata"]["annotations"][names.POD_GROUP_SIZE_ANNOTATION] = str(len(members))
                yield _document("Pod", member)
        case "indexed" | "plain" | "turns":
            pod["spec"]["restartPolicy"] = "Never"
            spec = {
                "parallelism": count,
                "completions": count + 2 * (kind == "turns"),
                "completionMode": "Indexed" if kind == "indexed" else "NonIndexed",
                "template": template,
            }
            yield _document("Job", {"metadata": meta, "spec": spec})
        case _:
            if kind.endswith("gang"):
                inner["annotations"][names.GANG_ANNOTATION] = "true"
            spec = {"replicas": count, "selector": {"matchLabels": {ROLE: "true"}}, "template": template}
            if kind.startswith("statefulset"):
                spec |= {"serviceName": "work", "podManagementPolicy": "Parallel"}
            yield _document(
                "StatefulSet" if kind.startswith("statefulset") else "Deployment",
                {"metadata": meta, "spec": spec},
            )


def _document(kind: str, body: Json) -> Json:
    return {"apiVersion": _PATHS[kind][0], "kind": kind, **body}


def _documents(case: Case) -> Iterator[Json]:
    """Yield what a case creates, with the specs and statuses that it writes later,
    and a label on what is deleted.
    """
    statuses = {
        path.removesuffix("/status"): body["status"] for path, body in case.statuses if body["status"]
    }
    specs = {path: body["spec"] for path, body in case.node_specs}
    kinds = {path.rpartition("/")[2]: kind for kind, (_, path) in _PATHS.items()}
    for path, body in (entry for stage in case.creations for entry in stage):
        kind = kinds.get(path.rpartition("/")[2]) or str(body["kind"])
        where = f"{path}/{body['metadata']['name']}"
        document = _document(
            kind,
            copy.deepcopy({key: value for key, value in body.items() if key not in ("apiVersion", "kind")}),
        )
        if "namespaces/" in path:
            document["metadata"]["namespace"] = path.split("/")[-2]
        if where in specs:
            document["spec"] = specs[where]
            document["status"].pop("conditions")  # kwok writes them
        if where in statuses:
            document["status"] = statuses[where]
        if where in case.deletions:
            document["metadata"].setdefault("labels", {})[DELETED] = "true"
            document["metadata"].setdefault("annotations", {})[STUCK] = "true"
        yield document
