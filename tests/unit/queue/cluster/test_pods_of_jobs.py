"""Which pods belong to a Job: a uid in an ownerReference or label proves nothing,
because the creator of the pod writes it.
"""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from support.builders import PodBuilder, make_job, make_minicluster, make_pod
from support.queue_builders import a_job, a_pod

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches

MINICLUSTER = "flux-framework.org/v1alpha2"


@pytest.fixture
def caches() -> Caches:
    return Caches(cast("Api", None))  # nothing is read from a cluster


def the_job(owner: str | None = None) -> Job:
    job = make_job("job").namespace("ada")
    return a_job(job.owned_by("MiniCluster", owner, api_version=MINICLUSTER) if owner else job)


def controlled(namespace: str) -> PodBuilder:
    pod = make_pod("p").namespace(namespace).owned_by("Job", "job")
    owner = {**pod.build()["metadata"]["ownerReferences"][0], "uid": "job-uid"}
    return pod.with_("metadata.ownerReferences", [owner])


def serving(namespace: str, owner: str) -> PodBuilder:
    pod = make_pod("s").namespace(namespace).owned_by("MiniCluster", owner, api_version=MINICLUSTER)
    return pod.label(names.SERVICES_OF_LABEL, "job-uid")


def test_a_pod_of_another_namespace_does_not_belong_to_the_job_it_names(caches: Caches) -> None:
    caches.jobs.replace([the_job()])
    own, foreign = a_pod(controlled("ada"), uid="own"), a_pod(controlled("eve"), uid="foreign")
    caches.pods.replace([own, foreign])
    assert caches.pods_of_job("job-uid") == [own]


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        pytest.param(serving("eve", "flux"), "flux", id="of another namespace"),
        pytest.param(serving("ada", "mine"), "flux", id="of another MiniCluster"),
        pytest.param(serving("ada", "flux"), None, id="of a Job that no MiniCluster owns"),
    ],
)
def test_a_services_pod_of_another_owner_does_not_belong_to_the_job(
    caches: Caches, pod: PodBuilder, owner: str | None
) -> None:
    caches.jobs.replace([the_job(owner)])
    caches.pods.replace([a_pod(pod)])
    assert caches.pods_of_job("job-uid") == []


def test_the_services_pod_of_its_own_minicluster_belongs_to_the_job(caches: Caches) -> None:
    caches.jobs.replace([the_job("flux")])
    pod = a_pod(serving("ada", "flux"))
    caches.pods.replace([pod])
    assert caches.pods_of_job("job-uid") == [pod]


def test_a_minicluster_has_no_services_pods_in_another_namespace(caches: Caches) -> None:
    body = make_minicluster("flux", 2)
    body["metadata"] |= {"namespace": "ada", "uid": "uid-of-flux"}
    caches.miniclusters.replace([msgspec.convert(body, MiniCluster)])
    own: Pod = a_pod(serving("ada", "flux"), uid="own")
    caches.pods.replace([own, a_pod(serving("eve", "flux"), uid="foreign")])
    assert caches.services_pods("uid-of-flux") == [own]
