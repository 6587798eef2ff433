"""What the queue reads of Flux clusters: the size of their pods once admission has put Flux into them,
and the share of each broker.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.minicluster_builders import IMAGE, minicluster, one

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.pods import PodSpec
from fluxqueue.api.requests import pod_requests
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.minicluster.render import objects
from fluxqueue.queue.model.minicluster_jobs import shares_for, with_flux

ANNOTATED = ObjectMeta(
    annotations={"fluxqueue/minicluster": "true"},
    labels={"batch.kubernetes.io/job-name": "sim", "batch.kubernetes.io/controller-uid": "uid"},
)


def pod_spec(**container: Any) -> PodSpec:
    return msgspec.convert({"containers": [{"name": "app", **container}]}, PodSpec)


def template(**spec: Any) -> tuple[PodSpec, ObjectMeta]:
    written = one(objects(minicluster(**spec), certificate=None, image=IMAGE), "Job")["spec"]["template"]
    return msgspec.convert(written["spec"], PodSpec, strict=False), msgspec.convert(
        written["metadata"], ObjectMeta
    )


def test_an_annotated_jobs_pods_are_sized_though_their_commands_are_not_read() -> None:
    sized = with_flux(pod_spec(command=["sim"], resources={"limits": {"cpu": "2"}}), ANNOTATED, "default")
    assert [container.name for container in sized.init_containers or ()] == ["flux-view"]
    assert pod_requests(sized)["cpu"] == 2


def test_what_runs_beside_the_leader_counts_for_every_pod() -> None:
    spec, meta = template(containers=[{"image": "a", "resources": {"limits": {"cpu": "1"}}}])
    assert pod_requests(with_flux(spec, meta, "default"))["cpu"] == Decimal("1.1")


def test_pods_that_did_not_ask_are_as_they_were() -> None:
    spec = pod_spec()
    assert with_flux(spec, ObjectMeta(), "default") == spec


@pytest.mark.parametrize("field", ["hostNetwork", "setHostnameAsFQDN"])
def test_brokers_whose_host_name_would_not_be_the_pods_are_not_queued(field: str) -> None:
    spec = msgspec.convert({"containers": [{"name": "app"}], field: True}, PodSpec)
    with pytest.raises(InvalidInjection, match=field):
        with_flux(spec, ANNOTATED, "default")


def test_each_broker_has_what_its_container_asked_for_or_what_its_node_has() -> None:
    sized, meta = template(
        containers=[
            {"image": "a", "command": "x", "resources": {"limits": {"cpu": "3", "nvidia.com/gpu": 1}}}
        ]
    )
    assert shares_for(sized, meta, "default", ["n1", "n2"], lambda _: Decimal(32)) == [Share(3, 1)] * 2
    bare, bare_meta = template()
    cpus = {"n1": Decimal(8), "n2": Decimal(16)}
    assert shares_for(bare, bare_meta, "default", ["n2", "n1"], cpus.get) == [Share(16), Share(8)]
