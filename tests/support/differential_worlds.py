"""Random worlds for the queue and kube-scheduler: a few nodes with what is on them, and one piece of work of
some kind.

A world is a list of documents, as one would apply them, whose names have a mark (`MARK`). Copies with other
marks are alike and do not see each other: each has nodes, namespaces, volumes and topology labels of its own,
and its work is restricted to its nodes by their label. The nodes and pods are made as the cases for our
scheduler are (`scheduler_oracle`). A world depends on its seed and number alone.

In some worlds other work runs before (`differential_earlier`): it is resized, or has a lower priority than
the work and may be preempted for it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from support.differential_devices import DEVICE_PATHS, devices_for
from support.differential_earlier import EARLIER, EARLIER_SHARED, PREEMPTS, earlier_work
from support.scheduler_oracle import HOST, ZONE, Case, CaseMaker
from support.scheduler_oracle import SHARED as ORACLE_SHARED

from fluxqueue.api import names

__all__ = [
    "MARK",
    "SHARED",
    "World",
    "is_earlier",
    "is_work",
    "make_world",
    "path_of",
    "pods_of",
    "templates_of",
]

Json = dict[str, Any]

SHARED = (*ORACLE_SHARED, *EARLIER_SHARED)
"""Path and object of what all worlds use."""
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
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"),
}
_ORDER = (*_PATHS,)
_WITH_DEVICES = 0.3
"""Share of the worlds whose work claims devices."""
_JOBSETS = 0.12
"""Share of the worlds whose work is a JobSet."""
_WITH_EARLIER = 0.2
"""Share of the worlds in which other work runs before."""


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

    @property
    def about(self) -> str:
        """What is special in it, in a word."""
        if any(map(is_earlier, self.documents)):
            return "preemption" if self.preempts else "resizes"
        kinds = {each["kind"] for each in self.documents}
        return "jobsets" if "JobSet" in kinds else "devices" if "DeviceClass" in kinds else "others"

    @property
    def preempts(self) -> bool:
        """True if the work may preempt what runs before it."""
        return any(PREEMPTS in each["metadata"].get("annotations", {}) for each in self.documents)

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
            [
                each
                for each in self.documents
                if not empty or is_work(each) or not (each["kind"] == "Pod" or is_earlier(each))
            ]
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


def is_earlier(document: Json) -> bool:
    """True for work that runs before the work of a world, and for its pods."""
    return EARLIER in (document["metadata"].get("labels") or {})


def pods_of(documents: list[Json], what: Callable[[Json], bool] = is_work) -> int:
    """Return how many pods of the work, or of other documents, run at once."""
    return sum(count for each in documents if what(each) for _, count in templates_of(each))


def templates_of(work: Json) -> list[tuple[Json, int]]:
    """Return the templates of the pods of some work, and how many of each run at once."""
    spec = work["spec"]
    match work["kind"]:
        case "Pod":
            return [(work, 1)]
        case "Job":
            return [
                (spec["template"], min(spec["parallelism"], spec.get("completions", spec["parallelism"])))
            ]
        case "JobSet":
            jobs = ({"kind": "Job", **each["template"]} for each in spec["replicatedJobs"])
            return [template for job in jobs for template in templates_of(job)]
    return [(spec["template"], spec["replicas"])]


def make_world(seed: int, number: int, *, devices: bool = True) -> World:
    """Return the world with this number; without ``devices`` no work claims any,
    which our own scheduler does not allocate.
    """
    maker = _Maker(random.Random(f"differential/{seed}/{number}"), number, MARK)
    maker.jobset = random.Random(f"jobsets/{seed}/{number}").random() < _JOBSETS
    return maker.world(
        random.Random(f"devices/{seed}/{number}") if devices else None,
        random.Random(f"earlier/{seed}/{number}"),
    )


class _Maker(CaseMaker):
    """The work is not restricted to one node, and no controller of the cluster changes what the world
    states.
    """

    TAINTS = (("gpu", "yes"), ("gpu", "no"), ("gpu", ""), ("team", "a"), ("example.com/maintenance", ""))
    NODES = (1, 2, 2, 3, 4)

    jobset = False

    def world(self, of_devices: random.Random | None, of_earlier: random.Random) -> World:
        """Return the world; its devices and what runs before come from generators of their own,
        so that all else is as it was without them.
        """
        documents = [*_documents(self.make())]
        quota = self._chance(0.12)
        templates = [template for each in documents if is_work(each) for template, _ in templates_of(each)]
        if of_earlier.random() < _WITH_EARLIER:
            documents += earlier_work(of_earlier, self._case.namespace, documents, templates)
        elif quota:
            documents.append(self._quota())
        if of_devices is not None and of_devices.random() < _WITH_DEVICES:
            nodes = [each["metadata"]["name"] for each in documents if each["kind"] == "Node"]
            specs = [each["spec"] for each in templates]
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
        if self.jobset:
            kind = "jobset"
            pods += [self._member(pod) for _ in range(self._rng.choice((0, 1, 1)))]
        elif kind == "mixed-group":
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
        case "jobset":
            yield _document(
                "JobSet", {"metadata": meta, "spec": {"replicatedJobs": _replicated(pods, count)}}
            )
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


def _replicated(pods: list[Json], count: int) -> list[Json]:
    """Return a replicated job of one Job for each pod; the first Job has ``count`` pods, others one."""
    jobs: list[Json] = []
    for name, each in zip("ab", pods, strict=False):
        spec = {
            "parallelism": 1 if jobs else count,
            "completions": 1 if jobs else count,
            "completionMode": "Indexed",
            "template": {
                "metadata": {key: each["metadata"][key] for key in ("labels", "annotations")},
                "spec": {**each["spec"], "restartPolicy": "Never"},
            },
        }
        jobs.append({"name": name, "replicas": 1, "template": {"spec": spec}})
    return jobs


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
