from support.memory_api import MemoryApi

from fluxqueue.queue.cluster.owners import read_jobset, read_owner
from fluxqueue.queue.model.replacement_rules import ReplicaOwner

OWNER = ReplicaOwner("default", "Deployment", "web")


async def test_an_owner_is_read_by_its_kind() -> None:
    api = MemoryApi()
    api.put("deployments", {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}})
    owner = await read_owner(api.api, OWNER)
    assert owner is not None
    assert owner.spec.size == 3


async def test_an_owner_that_does_not_exist_is_none() -> None:
    assert await read_owner(MemoryApi().api, OWNER) is None
    assert await read_jobset(MemoryApi().api, "default", "train") is None


async def test_a_jobset_that_may_not_be_read_counts_as_missing() -> None:
    api = MemoryApi()
    api.fail_next("get", "jobsets", 403, "Forbidden")
    assert await read_jobset(api.api, "default", "train") is None
