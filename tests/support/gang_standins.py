"""Stand-ins of other projects' controllers: they make the pods of an example with the labels,
annotations and owners of the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from support.builders import Json, PodBuilder, make_job, make_pod
from support.end_to_end import Stage
from support.kubernetes_gates import EXAMPLE_VERSION, NATIVE_VERSION

from fluxqueue.local.inprocess import InProcessCluster

__all__ = [
    "ENGINES",
    "RUN_SECONDS",
    "create",
    "endless",
    "engine_pods",
    "example",
    "jobs_of_jobset",
    "jobset_jobs",
    "leader_and_workers",
    "mpi_pods",
    "pod_groups",
    "ray_nodes",
    "serve",
    "spark_pods",
    "trainer_jobs",
    "training",
    "wrapped",
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "ecosystem"
RUN_SECONDS = "fluxqueue.local/run-seconds"
JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
TRAINING = "training.kubeflow.org"


def serve(cluster: InProcessCluster, name: str, version: str, kind: str) -> None:
    """Serve a kind of another project, without its controller."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    cluster.kubectl("wait", f"crd/{name}", "--for=condition=Established", "--timeout=60s")


def example(name: str) -> list[Json]:
    """Return the objects of an example, those of Kubernetes in the version that its API server serves."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    served = NATIVE_VERSION or EXAMPLE_VERSION
    return list(
        yaml.safe_load_all(
            text.replace(f"scheduling.k8s.io/{EXAMPLE_VERSION}", f"scheduling.k8s.io/{served}")
        )
    )


def owned(stage: Stage, name: str) -> tuple[Json, Json]:
    """Apply the object of an example; return it, and the reference of a pod to it."""
    (thing,) = example(name)
    stored = json.loads(stage.kubectl("apply", "-f", "-", "-o", "json", stdin=json.dumps(thing)).stdout)
    meta = stored["metadata"]
    return stored, {
        "apiVersion": stored["apiVersion"],
        "kind": stored["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def from_template(name: str, template: Json, labels: dict[str, str], owner: Json | None = None) -> PodBuilder:
    """Return a pod that a controller makes of a template of its object; it runs for ever."""
    builder = (
        make_pod(name)
        .with_("spec.containers", template["spec"]["containers"])
        .annotation(RUN_SECONDS, "forever")
    )
    builder = builder.with_("spec.restartPolicy", "Never").with_("spec.terminationGracePeriodSeconds", 1)
    for key, value in labels.items():
        builder = builder.label(key, value)
    return builder.with_("metadata.ownerReferences", [owner]) if owner is not None else builder


def pod_groups(name: str) -> Callable[[Stage], list[Json]]:
    def pods(stage: Stage) -> list[Json]:
        things = example(name)
        for thing in things:
            if thing["kind"] != "Pod":
                stage.kubectl("apply", "-f", "-", stdin=json.dumps(thing))
        return [endless(thing) for thing in things if thing["kind"] == "Pod"]

    return pods


def endless(pod: Json) -> Json:
    pod["metadata"].setdefault("annotations", {})[RUN_SECONDS] = "forever"
    return pod


def leader_and_workers(stage: Stage) -> list[Json]:
    lws, _ = owned(stage, "leaderworkerset")
    templates = lws["spec"]["leaderWorkerTemplate"]
    pods = []
    for index in range(3):
        labels = {
            f"{LWS}/name": "llm",
            f"{LWS}/group-index": "0",
            f"{LWS}/worker-index": str(index),
            f"{LWS}/group-key": "abc",
        }
        template = templates["workerTemplate" if index else "leaderTemplate"]
        pods.append(
            from_template(f"llm-0-{index}" if index else "llm-0", template, labels)
            .annotation(f"{LWS}/size", "3")
            .build()
        )
    return pods


def training(stage: Stage) -> list[Json]:
    job, owner = owned(stage, "pytorchjob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    return [
        from_template(
            f"mnist-{role.lower()}-{index}",
            replicas[role]["template"],
            {f"{TRAINING}/job-name": "mnist", f"{TRAINING}/replica-type": role.lower()},
            owner,
        ).build()
        for role, index in (("Master", 0), ("Worker", 0), ("Worker", 1))
    ]


def ray_nodes(stage: Stage, workers: int = 2) -> list[Json]:
    ray, owner = owned(stage, "raycluster")
    head, (group,) = ray["spec"]["headGroupSpec"]["template"], ray["spec"]["workerGroupSpecs"]
    return [
        from_template(
            "ray-head", head, {"ray.io/node-type": "head", "ray.io/group": "headgroup"}, owner
        ).build(),
        *(ray_worker(group["template"], owner, number).build() for number in range(workers)),
    ]


def ray_worker(template: Json, owner: Json, number: int) -> PodBuilder:
    return from_template(
        f"ray-worker-{number}", template, {"ray.io/node-type": "worker", "ray.io/group": "small"}, owner
    )


def mpi_pods(stage: Stage) -> list[Json]:
    """The launcher is a Job, which the webhook suspends and the operator resumes."""
    mpijob, owner = owned(stage, "mpijob")
    replicas = mpijob["spec"]["mpiReplicaSpecs"]
    labels = {f"{TRAINING}/operator-name": "mpi-operator", f"{TRAINING}/job-name": "pi"}
    template = {**from_template("x", replicas["Launcher"]["template"], {}).build()["spec"]}
    launcher: Json = {
        **make_job("pi-launcher").build(),
        "spec": {
            "template": {
                "metadata": {
                    "labels": labels | {f"{TRAINING}/job-role": "launcher"},
                    "annotations": {RUN_SECONDS: "forever"},
                },
                "spec": template,
            }
        },
    }
    launcher["metadata"]["ownerReferences"] = [owner]
    launcher.pop("status", None)
    worker = labels | {f"{TRAINING}/job-role": "worker"}
    return [
        launcher,
        *(
            from_template(f"pi-worker-{n}", replicas["Worker"]["template"], worker, owner).build()
            for n in range(2)
        ),
    ]


def wrapped(stage: Stage) -> list[Json]:
    wrapper, _ = owned(stage, "appwrapper")
    pods = [component["template"] for component in wrapper["spec"]["components"]]
    for pod in pods:
        pod["metadata"]["labels"] = {"workload.codeflare.dev/appwrapper": wrapper["metadata"]["name"]}
    return [endless(pod) for pod in pods]


def jobs_of_jobset(jobset: Json, owner: Json) -> list[Json]:
    """Return the Jobs that the JobSet controller makes, which it resumes."""
    name, replicated = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"]
    jobs = []
    for each in replicated:
        job: Json = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{name}-{each['name']}-0"},
        }
        labels = {
            f"{JOBSET}/jobset-name": name,
            f"{JOBSET}/replicatedjob-name": each["name"],
            f"{JOBSET}/global-replicas": str(len(replicated)),
        }
        job["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
        job["spec"] = each["template"]["spec"]
        meta = job["spec"]["template"].get("metadata", {})
        job["spec"]["template"]["metadata"] = {
            "labels": meta.get("labels", {}) | labels,
            "annotations": meta.get("annotations", {}) | {RUN_SECONDS: "forever"},
        }
        jobs.append(job)
    return jobs


def jobset_jobs(stage: Stage) -> list[Json]:
    return jobs_of_jobset(*owned(stage, "jobset"))


def trainer_jobs(stage: Stage) -> list[Json]:
    """Trainer makes a JobSet with one Job of all nodes;
    here it has two, so that the gang is incomplete for a while.
    """
    trainjob, owner = owned(stage, "trainjob")
    resources = trainjob["spec"]["trainer"]["resourcesPerNode"]
    node = {
        "restartPolicy": "Never",
        "containers": [{"name": "node", "image": "busybox", "resources": resources}],
    }

    def replicated(name: str, pods: int) -> Json:
        spec = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"spec": node},
        }
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    jobset: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "torch", "ownerReferences": [owner]},
    }
    jobset["spec"] = {
        "replicatedJobs": [
            replicated("launcher", 1),
            replicated("node", trainjob["spec"]["trainer"]["numNodes"]),
        ]
    }
    stored = json.loads(stage.kubectl("apply", "-f", "-", "-o", "json", stdin=json.dumps(jobset)).stdout)
    reference = {
        "apiVersion": stored["apiVersion"],
        "kind": "JobSet",
        "name": "torch",
        "uid": stored["metadata"]["uid"],
        "controller": True,
    }
    return jobs_of_jobset(jobset, reference)


def create(stage: Stage, *things: Json) -> None:
    """Create objects as their controller does; it resumes a Job of its own that is suspended."""
    for thing in things:
        thing = {key: value for key, value in thing.items() if key != "status"}
        thing["metadata"] = {**thing["metadata"], "namespace": stage.namespace}
        stage.kubectl("create", "-f", "-", stdin=json.dumps(thing))
        if thing["kind"] == "Job":
            name = thing["metadata"]["name"]
            assert stage.job(name).spec.suspend, "the webhook has suspended it"
            stage.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}')


def spark_pods(stage: Stage) -> list[Json]:
    """Return the driver, and the executors that it creates once it runs."""
    spark, _ = owned(stage, "sparkapplication")
    name = spark["metadata"]["name"]

    def pod(role: str, number: int) -> Json:
        builder = (
            make_pod(f"{name}-{role}-{number}").cpu("1").memory("896Mi").annotation(RUN_SECONDS, "forever")
        )
        return builder.label("sparkoperator.k8s.io/app-name", name).label("spark-role", role).build()

    return [pod("driver", 0), pod("executor", 0), pod("executor", 1)]


ENGINES = {
    "argo-workflow": ({"workflows.argoproj.io/workflow": "steps"}, 2),
    "tekton-taskrun": ({"tekton.dev/taskRun": "build"}, 1),
    "daskcluster": ({"dask.org/cluster-name": "dask"}, 2),
}
"""Examples of engines whose pods are no gang: the labels of their pods, and how many they make."""


def engine_pods(stage: Stage, name: str) -> list[Json]:
    """Return the pods that an engine makes of its example."""
    labels, pods = ENGINES[name]
    thing, owner = owned(stage, name)
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]
        }
    }
    return [
        from_template(f"{thing['metadata']['name']}-{number}", template, labels, owner).build()
        for number in range(pods)
    ]
