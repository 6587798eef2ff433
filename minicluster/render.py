"""The objects of a Flux cluster as one list: the controller applies it, and `fluxqueue minicluster render`
prints it.

Rendering is a pure function of the spec, the certificate and the allocation. It is repeated on every
reconciliation, and server-side apply with our field manager changes only what differs. An object that cannot
be rendered yet is not in the list. The ConfigMap is such an object: it contains the broker configuration,
which depends on the allocation. Pods wait for it on their nodes, so the only necessary order is to write it
before the pods are released. The Secret is in the list only while a certificate is given: it is created once
and never again.
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
from fluxqueue.minicluster.injection_settings import InjectionSettings, identity_of, injection_settings
from fluxqueue.minicluster.naming import Identity
from fluxqueue.minicluster.pods import cluster_labels, has_guests, pod_template, services_pod
from fluxqueue.minicluster.scripts import CERTIFICATE_KEY, EXIT_REPLACEABLE, files

__all__ = [
    "CONFIGURATION_KEY",
    "TOKEN_KEY",
    "FluxCluster",
    "admitted_pods",
    "annotated_objects",
    "config_map",
    "objects",
]

CONFIGURATION_KEY = "broker.toml"
TOKEN_KEY = "token"  # noqa: S105 of the REST service's Secret

_RETRIES = 6
"""Lost brokers before the Job fails, unless the spec sets a limit.
Lost nodes and evictions are not counted."""
_LEADER = {"batch.kubernetes.io/job-completion-index": "0"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FluxCluster:
    """A Flux cluster to be rendered: its owner, its spec, and what admission injects into its pods."""

    identity: Identity
    spec: MiniClusterSpec
    injection: InjectionSettings

    @classmethod
    def of(cls, minicluster: MiniCluster, image: str) -> FluxCluster:
        """Return the cluster of a MiniCluster; ``image`` is ours, for the REST service."""
        identity = identity_of(minicluster)
        return cls(identity, minicluster.spec, injection_settings(identity, minicluster.spec, image))

    @classmethod
    def of_job(cls, minicluster: MiniCluster) -> FluxCluster:
        """Return the cluster of an annotated Job, from
        `fluxqueue.minicluster.injection_settings.annotated_minicluster`.
        """
        meta = minicluster.metadata
        identity = Identity(meta.name, meta.namespace, meta.uid, api_version="batch/v1", kind="Job")
        return cls(identity, minicluster.spec, injection_settings(identity, minicluster.spec, ""))

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
    """Return all objects of a MiniCluster.

    Parameters
    ----------
    minicluster
        A valid MiniCluster with a uid.
    certificate
        None if its Secret exists: it is never written again.
    image
        Our image, for the REST service.
    shares
        Shares of the pods 0, 1, ... once there is an allocation. None before, and then there is no ConfigMap.
    rest_token
        None if its Secret exists, or the spec names one.
    cluster_domain
        DNS domain of the Kubernetes cluster.

    Returns
    -------
    list of dict
        Complete objects in the order in which they should be applied; the Job is the last.
    """
    cluster = FluxCluster.of(minicluster, image)
    rendered = (
        [_secret(cluster.identity, cluster.identity.certificate, CERTIFICATE_KEY, certificate.text)]
        if certificate
        else []
    )
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
    """Return the objects for an annotated Job, owned by it: Secret, headless Service and, once allocated,
    ConfigMap.

    Parameters
    ----------
    minicluster
        The Job, read by `fluxqueue.minicluster.injection_settings.annotated_minicluster`.
    certificate, shares, cluster_domain
        As for `objects`.
    own_subdomain
        True if the Job's template sets a subdomain: then its user has a Service for it, and none is created.
    """
    cluster = FluxCluster.of_job(minicluster)
    rendered = (
        [_secret(cluster.identity, cluster.identity.certificate, CERTIFICATE_KEY, certificate.text)]
        if certificate
        else []
    )
    if shares is not None:
        rendered.append(config_map(cluster, shares, cluster_domain))
    if not own_subdomain:
        rendered.append(_headless(cluster))
    return rendered


def config_map(
    cluster: FluxCluster, shares: Sequence[broker.Share], cluster_domain: str = broker.CLUSTER_DOMAIN
) -> Json:
    """Return the ConfigMap: scripts, settings and the broker configuration of this allocation."""
    identity, spec = cluster.identity, cluster.spec
    data = files(
        identity,
        spec,
        spec.runner_index or 0,
        argv_from_pod=cluster.injection.needs_command,
        cluster_domain=cluster_domain,
    )
    data[CONFIGURATION_KEY] = broker.configuration(
        identity, spec, shares, cluster_domain, guests=_has_guests(cluster)
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": identity.metadata(identity.files),
        "data": data,
    }


def _has_guests(cluster: FluxCluster) -> bool:
    """Return True if a sidecar that uses Flux may run as another user than the broker."""
    return bool(cluster.injection.sidecars) and has_guests(
        pod_template(cluster.identity, cluster.spec, cluster.injection)["spec"], cluster.injection
    )


def admitted_pods(minicluster: MiniCluster, image: str) -> list[Json]:
    """Return the pods of a MiniCluster as the Job controller and admission would create them,
    gated and without a node.
    """
    cluster = FluxCluster.of(minicluster, image)
    template = pod_template(cluster.identity, cluster.spec, cluster.injection)
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
            "annotations": {
                **template["metadata"]["annotations"],
                names.COMPLETION_INDEX_ANNOTATION: str(index),
            },
        }
        spec = inject({**template["spec"], "hostname": name}, cluster.injection, index)
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


def _headless(cluster: FluxCluster) -> Json:
    """Return the Service for the pods' DNS names.
    It publishes pods that are not ready, because they need their names to become ready.
    """
    identity = cluster.identity
    spec: Json = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": identity.name},
    }
    if cluster.spec.flux.minimal_service:
        spec["selector"] |= _LEADER
        spec["ports"] = [
            {"name": "flux-broker", "port": broker.PORT, "targetPort": broker.PORT, "protocol": "TCP"}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": identity.metadata(identity.service),
        "spec": spec,
    }


def _sidecar_services(cluster: FluxCluster) -> list[Json]:
    identity = cluster.identity
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": identity.metadata(identity.sidecar(container.name)),
            "spec": {
                "selector": {names.JOB_NAME_LABEL: identity.name},
                "ports": [
                    {"name": f"port-{port}", "port": port, "targetPort": port, "protocol": "TCP"}
                    for port in container.ports
                ],
            },
        }
        for position, container in enumerate(cluster.spec.containers)
        if position != cluster.spec.runner_index and container.ports
    ]


def _rest_objects(cluster: FluxCluster) -> list[Json]:
    """Return the Service of the REST service, and a policy:
    pods of the cluster reach each other, others only declared ports.
    """
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


def _job(cluster: FluxCluster) -> Json:
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
        "podFailurePolicy": _failure_policy(cluster.injection.runner),
        "template": pod_template(identity, spec, cluster.injection),
    }
    if not cluster.runner.commands.post.strip():
        # The cluster ends with its leader, and remaining followers are stopped. Post hooks run on every pod,
        # so with them all have to end.
        job["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}


def _failure_policy(runner: str) -> Json:
    """Return the policy: lost nodes are replaced, lost brokers are counted,
    any other exit code is the application's and fails the Job.
    """
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": runner, "operator": "NotIn", "values": [EXIT_REPLACEABLE]},
            },
        ]
    }
