"""An object is created or updated for its owner, and an object of another owner is never changed."""

from __future__ import annotations

from typing import Any

import pytest
from support.memory_api import MemoryApi

from fluxqueue.kube.errors import Conflict
from fluxqueue.kube.kinds import SERVICES
from fluxqueue.queue.miniclusters.owned_objects import NameConflict, OwnedObjects


def service(uid: str, name: str = "lammps") -> dict[str, Any]:
    owner = {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }


async def test_a_secret_that_exists_is_this_owners_and_is_never_read() -> None:
    """Its name has a digest of the owner's uid, and the queue has no right to read Secrets."""
    api = MemoryApi()
    secret = {
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "namespace": "default",
            "ownerReferences": [{"uid": "u", "controller": True}],
        },
    }
    for _ in range(2):
        await OwnedObjects(api.api).apply(secret)
    assert len(api.written("create", "secrets")) == 1
    assert ("get", "secrets") not in api.calls


async def test_an_object_of_the_same_owner_is_updated_as_it_was_read() -> None:
    memory = MemoryApi()
    owned = OwnedObjects(memory.api)
    await owned.apply(service("one"))
    memory.put(
        "services",
        {
            **service("one"),
            "spec": {"clusterIP": "None", "selector": {"edited": "yes"}, "ports": [{"port": 1}]},
        },
    )
    memory.fail_next("patch", "services", 409, "Conflict")
    await owned.apply(service("one"))
    assert memory.get("services", "lammps")["spec"] == {
        "clusterIP": "None",
        "selector": {"a": "b"},
        "ports": [],
    }
    (patch,) = memory.written("patch", "services")
    assert patch.body[0]["path"] == "/metadata/resourceVersion"


async def test_an_object_that_keeps_changing_ends_in_a_conflict() -> None:
    memory = MemoryApi()
    owned = OwnedObjects(memory.api)
    await owned.apply(service("one"))
    for _ in range(10):
        memory.fail_next("patch", "services", 409, "Conflict")
    with pytest.raises(Conflict, match="keeps changing"):
        await owned.apply(service("one"))


async def test_an_object_of_a_deleted_owner_of_the_same_name_is_an_orphan() -> None:
    memory = MemoryApi()
    owned = OwnedObjects(memory.api)
    await owned.apply(service("one"))
    with pytest.raises(
        NameConflict, match="Service default/lammps already exists and belongs to MiniCluster lammps"
    ) as conflict:
        await owned.apply(service("two"))
    assert conflict.value.orphaned
    assert await owned.still_exists(conflict.value)
    memory.remove("services", "lammps")
    assert not await owned.still_exists(conflict.value)


async def test_an_object_that_the_queue_did_not_create_is_left_alone() -> None:
    memory = MemoryApi()
    owned = OwnedObjects(memory.api)
    memory.put("services", {"metadata": {"name": "lammps"}, "spec": {"selector": {"theirs": "yes"}}})
    with pytest.raises(
        NameConflict, match="Service default/lammps already exists and was not created by the queue"
    ) as conflict:
        await owned.apply(service("two"))
    assert not conflict.value.orphaned
    assert memory.writes == []


async def test_an_object_is_deleted_only_by_its_uid() -> None:
    memory = MemoryApi()
    owned = OwnedObjects(memory.api)
    before = memory.put("services", service("one"))
    memory.remove("services", "lammps")
    await owned.delete(SERVICES, before.metadata)
    memory.put("services", {**service("two"), "metadata": {**service("two")["metadata"], "uid": "another"}})
    await owned.delete(SERVICES, before.metadata)
    assert memory.get("services", "lammps") is not None
