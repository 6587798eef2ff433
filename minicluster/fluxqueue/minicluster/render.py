"""The objects of a Flux cluster, as one list: what the controller applies, what `fluxqueue minicluster render` prints.

Rendering is a pure function of the spec, the certificate and the allocation, and is repeated at every turn: server-side apply with our
field manager makes of it what differs. An object that cannot be rendered yet is not in the list. The ConfigMap is such a one: it holds the
broker configuration, which follows from the allocation, and pods wait for it at their nodes, so that writing it before the pods are let
go is all the ordering there is. The Secret is in it only while a certificate is given: it is made once and never again.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fluxqueue.api import names
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterContainer, MiniClusterSpec
from fluxqueue.certs.curve import Certificate
from fluxqueue.minicluster import broker
from fluxqueue.minicluster.injection import inject
from fluxqueue.minicluster.marks import Marks, identity_of, marks_of
from fluxqueue.minicluster.naming import Identity
from fluxqueue.minicluster.pods import cluster_labels, has_guests, pod_template, services_pod
from fluxqueue.minicluster.scripts import AGAIN, CERTIFICATE_KEY, files

__all__ = ["CONFIGURATION_KEY", "TOKEN_KEY", "Cluster", "admitted_pods", "annotated_objects", "config_map", "objects"]

CONFIGURATION_KEY = "broker.toml"
TOKEN_KEY = "token"  # noqa: S105 of the REST service's Secret

_RETRIES = 6
"""Lost brokers before the Job is given up, where the spec does not say; nodes that go and evictions are not counted."""
_LEADER = {"batch.kubernetes.io/job-completion-index": "0"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Flux cluster to be rendered: whose it is, what it is, and what admission puts into its pods."""

    identity: Identity
    spec: MiniClusterSpec
    marks: Marks

    @classmethod
    def of(cls, minicluster: MiniCluster, image: str) -> Cluster:
        """A MiniCluster's; ``image`` is ours, for the REST service."""
        identity = identity_of(minicluster)
        return cls(identity, minicluster.spec, marks_of(identity, minicluster.spec, image))

    @classmethod
    def of_job(cls, minicluster: MiniCluster) -> Cluster:
        """An annotated Job's, read as a MiniCluster by `fluxqueue.minicluster.marks.annotated_minicluster`."""
        meta = minicluster.metadata
        identity = Identity(meta.name, meta.namespace, meta.uid, api_version="batch/v1", kind="Job")
        return cls(identity, minicluster.spec, marks_of(identity, minicluster.spec, ""))

    @property
    def runner(self) -> MiniClusterContainer:
        """The container that runs Flux."""
        return self.spec.containers[self.spec.runner_index or 0]


def objects(
    minicluster: MiniCluster,
    *,
    certificate: Certificate | None,
    image: str,
    shares: Sequence[broker.Share] | None = None,
    rest_token: str | None = None,
    cluster_domain: str = broker.CLUSTER_DOMAIN,
) -> list[Json]:
    """Everything a MiniCluster consists of.

    Parameters
    ----------
    minicluster
        Valid, with its uid.
    certificate
        None when its Secret exists: it is never written again.
    image
        Ours, for the REST service.
    shares
        Of pods 0, 1, ... once there is an allocation; None before, and there is no ConfigMap then.
    rest_token
        None when its Secret exists, or one is named in the spec.
    cluster_domain
        Of the Kubernetes cluster's DNS.

    Returns
    -------
    list of dict
        Whole objects in the order in which they should be applied; the Job is the last.
    """
    cluster = Cluster.of(minicluster, image)
    rendered = [_secret(cluster.identity, cluster.identity.certificate, CERTIFICATE_KEY, certificate.text)] if certificate else []
    if cluster.spec.serves_rest and not cluster.spec.restful.token_secret and rest_token:
        rendered.append(_secret(cluster.identity, cluster.identity.token, TOKEN_KEY, rest_token))
    if shares is not None:
        rendered.append(config_map(cluster, shares, cluster_domain))
    rendered.append(_headless(cluster))
    rendered += _sidecar_services(cluster)
    rendered += _rest_objects(cluster)
    if (pod := services_pod(cluster.identity, cluster.spec)) is not None:
        rendered.append(pod)
    rendered.append(_job(cluster))
    return rendered


def annotated_objects(
    minicluster: MiniCluster,
    *,
    certificate: Certificate | None,
    shares: Sequence[broker.Share] | None = None,
    own_subdomain: bool = False,
    cluster_domain: str = broker.CLUSTER_DOMAIN,
) -> list[Json]:
    """What an annotated Job needs beside itself, owned by it: Secret, headless Service and, once allocated, ConfigMap.

    Parameters
    ----------
    minicluster
        The Job, read by `fluxqueue.minicluster.marks.annotated_minicluster`.
    certificate, shares, cluster_domain
        As for `objects`.
    own_subdomain
        Whether the Job's template says a subdomain: then its user has a Service for it, and no other is made.
    """
    cluster = Cluster.of_job(minicluster)
    rendered = [_secret(cluster.identity, cluster.identity.certificate, CERTIFICATE_KEY, certificate.text)] if certificate else []
    if shares is not None:
        rendered.append(config_map(cluster, shares, cluster_domain))
    if not own_subdomain:
        rendered.append(_headless(cluster))
    return rendered


def config_map(cluster: Cluster, shares: Sequence[broker.Share], cluster_domain: str = broker.CLUSTER_DOMAIN) -> Json:
    """The ConfigMap: scripts, settings and the broker configuration of this allocation."""
    identity, spec = cluster.identity, cluster.spec
    data = files(identity, spec, spec.runner_index or 0, argv_from_pod=cluster.marks.needs_command, cluster_domain=cluster_domain)
    data[CONFIGURATION_KEY] = broker.configuration(identity, spec, shares, cluster_domain, guests=_has_guests(cluster))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": identity.metadata(identity.files), "data": data}


def _has_guests(cluster: Cluster) -> bool:
    """Whether a sidecar that finds Flux may be another user than the broker; only those that the spec names find it."""
    return bool(cluster.marks.sidecars) and has_guests(pod_template(cluster.identity, cluster.spec, cluster.marks)["spec"], cluster.marks)


def admitted_pods(minicluster: MiniCluster, image: str) -> list[Json]:
    """The pods of a MiniCluster as the Job controller and admission would make them, still gated and without a node."""
    cluster = Cluster.of(minicluster, image)
    template = pod_template(cluster.identity, cluster.spec, cluster.marks)
    pods = []
    for index in range(cluster.spec.size):
        name = cluster.identity.host(index)
        metadata = {
            "generateName": f"{name}-",
            "namespace": cluster.identity.namespace,
            "labels": {
                **template["metadata"]["labels"],
                "job-name": cluster.identity.name,
                names.JOB_NAME_LABEL: cluster.identity.name,
                names.COMPLETION_INDEX_ANNOTATION: str(index),
            },
            "annotations": {**template["metadata"]["annotations"], names.COMPLETION_INDEX_ANNOTATION: str(index)},
        }
        spec = inject({**template["spec"], "hostname": name}, cluster.marks, index)
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pods


def _secret(identity: Identity, name: str, key: str, text: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": identity.metadata(name),
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(text.encode()).decode()},
    }


def _headless(cluster: Cluster) -> Json:
    """The Service that names the pods; they are named before they are ready, for that is how they become ready."""
    identity = cluster.identity
    spec: Json = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": identity.name}}
    if cluster.spec.flux.minimal_service:
        spec["selector"] |= _LEADER
        spec["ports"] = [{"name": "flux-broker", "port": broker.PORT, "targetPort": broker.PORT, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": identity.metadata(identity.service), "spec": spec}


def _sidecar_services(cluster: Cluster) -> list[Json]:
    identity = cluster.identity
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": identity.metadata(identity.sidecar(container.name)),
            "spec": {
                "selector": {names.JOB_NAME_LABEL: identity.name},
                "ports": [{"name": f"port-{port}", "port": port, "targetPort": port, "protocol": "TCP"} for port in container.ports],
            },
        }
        for place, container in enumerate(cluster.spec.containers)
        if place != cluster.spec.runner_index and container.ports
    ]


def _rest_objects(cluster: Cluster) -> list[Json]:
    """Service of the REST service, and a policy: the cluster's pods speak to each other, others only to ports that were declared."""
    identity, spec = cluster.identity, cluster.spec
    if not spec.serves_rest:
        return []
    port = spec.restful.port
    declared = sorted({port, *(each for container in spec.containers for each in container.ports or ())})
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": identity.metadata(identity.rest),
        "spec": {
            "selector": {names.JOB_NAME_LABEL: identity.name, **_LEADER},
            "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": identity.metadata(identity.rest),
        "spec": {
            "podSelector": {"matchLabels": {"job-name": identity.name}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {"job-name": identity.name}}}]},
                {"ports": [{"port": each, "protocol": "TCP"} for each in declared]},
            ],
        },
    }
    return [service, policy]


def _job(cluster: Cluster) -> Json:
    identity, spec = cluster.identity, cluster.spec
    metadata = identity.metadata(identity.name, {**cluster_labels(identity), **(spec.job_labels or {})})
    metadata["annotations"] = {names.MINICLUSTER_ANNOTATION: "true"}
    job: Json = {
        "completionMode": "Indexed",
        "completions": spec.size,
        "parallelism": spec.size,
        "suspend": True,
        "activeDeadlineSeconds": spec.deadline_seconds,
        "backoffLimit": spec.backoff_limit or _RETRIES,
        "podFailurePolicy": _failure_policy(cluster.marks.runner),
        "template": pod_template(identity, spec, cluster.marks),
    }
    if not cluster.runner.commands.post.strip():
        # The leader's end is the cluster's: followers that linger are ended. Hooks behind the command run on every pod, so then all end.
        job["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}


def _failure_policy(runner: str) -> Json:
    """Lost nodes are replaced, lost brokers are counted; any other code is the application's, and fails the Job with it."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": runner, "operator": "NotIn", "values": [AGAIN]}},
        ]
    }
