"""Required rules about other pods with the stock scheduler:
every released pod is bound, and the bindings follow the rules.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.builders import Json, make_job, make_pod
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.pods import Pod
from fluxqueue.local.fake_nodes import ZONE_LABEL

RUN_SECONDS = "fluxqueue.local/run-seconds"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rule(kind: str, app: str, topology: str) -> Json:
    return {kind: {REQUIRED: [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}]}}


def spread(app: str, **more: Any) -> list[Json]:
    """Spread over zones. The scheduler counts all nodes, not only the one that a pod is pinned to."""
    selector = {"matchLabels": {"app": app}}
    seen = {"nodeAffinityPolicy": "Ignore", "labelSelector": selector}
    return [{"maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule", **seen, **more}]


def owner(kind: str, name: str, replicas: int, **spec_fields: Any) -> Json:
    pod = make_pod(name).cpu("1").build()
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {**pod["spec"], **spec_fields, "restartPolicy": "Always"},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    own = {"serviceName": name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec | own}


def nodes_of(stage: Stage, app: str) -> list[str]:
    """Return the nodes that its pods are bound to."""
    pods = [
        each
        for each in stage.items("pods", Pod)
        if each.metadata.label("app") == app and not each.metadata.deletion_timestamp
    ]
    return sorted(each.spec.node_name or "" for each in pods)


def zones_of(stage: Stage, app: str) -> list[int]:
    """Return the number of its pods in each zone."""
    nodes = stage.cluster.control_plane.client.get("/api/v1/nodes")["items"]
    zone = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL] for node in nodes}
    return sorted(Counter(zone[node] for node in nodes_of(stage, app)).values())


def test_pods_released_under_rules_about_other_pods_are_bound_by_these_rules(stage: Stage) -> None:
    gang = (
        make_job("gang").pod_annotation(RUN_SECONDS, "forever").indexed(6).cpu("1").pod_label("app", "gang")
    )
    near = (
        make_job("near").pod_annotation(RUN_SECONDS, "forever").indexed(4).cpu("3").pod_label("app", "near")
    )
    stage.apply_all(
        owner("StatefulSet", "apart", 4, affinity=rule("podAntiAffinity", "apart", names.HOSTNAME_LABEL)),
        owner("Deployment", "even", 5, topologySpreadConstraints=spread("even")),
        gang.with_("spec.template.spec.topologySpreadConstraints", spread("gang", minDomains=2)).build(),
        near.with_("spec.template.spec.affinity", rule("podAffinity", "near", ZONE_LABEL)).build(),
    )
    stage.until(
        "all eleven run", lambda: [row.state for row in stage.rows()] == [State.RUNNING] * (4 + 5 + 2)
    )
    assert len(set(nodes_of(stage, "apart"))) == 4
    assert (zones_of(stage, "even"), zones_of(stage, "gang"), zones_of(stage, "near")) == (
        [2, 3],
        [3, 3],
        [4],
    )
    stage.kubectl("scale", "statefulset", "apart", "--replicas=9")
    stage.until("all nodes have one of its pods", lambda: len(set(nodes_of(stage, "apart")) - {""}) == 8)
    stage.until(
        "one waits and says why",
        lambda: sum("rules about other pods" in each.status.message for each in stage.fluxjobs()) == 1,
    )
