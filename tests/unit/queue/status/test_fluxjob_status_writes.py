"""A status is written whether it is a subresource of the CRD or not, and also after the CRD has changed."""

from __future__ import annotations

import pytest
from support.memory_api import MemoryApi

from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.errors import Invalid, NotFound
from fluxqueue.queue.status.fluxjob_status_writes import FluxJobStatusWrites

RUNNING, COMPLETED = FluxJobStatus(state="Running", jobid=7), FluxJobStatus(state="Completed", jobid=7)


@pytest.fixture
def memory() -> MemoryApi:
    memory = MemoryApi()
    memory.put("fluxjobs", {"metadata": {"name": "job-lammps"}, "spec": {}, "status": {"state": "Pending"}})
    return memory


def meta(memory: MemoryApi) -> ObjectMeta:
    fluxjob: FluxJob = memory.put("fluxjobs", memory.get("fluxjobs", "job-lammps"))
    return fluxjob.metadata


def state(memory: MemoryApi) -> str:
    return str(memory.get("fluxjobs", "job-lammps")["status"]["state"])


@pytest.mark.parametrize(
    ("subresource", "requests"), [(False, ["fluxjobs"]), (True, ["fluxjobs", "fluxjobs/status"])]
)
async def test_it_writes_by_the_way_that_the_crd_has(
    memory: MemoryApi, subresource: bool, requests: list[str]
) -> None:
    memory.status_subresources["fluxjobs"] = subresource
    writes = FluxJobStatusWrites(memory.api)
    await writes.write(meta(memory), RUNNING)
    assert (state(memory), [write.resource for write in memory.writes]) == ("Running", requests)
    await writes.write(meta(memory), COMPLETED)
    assert (state(memory), [write.resource for write in memory.writes]) == (
        "Completed",
        [*requests, requests[-1]],
    ), "it knows the way now"


@pytest.mark.parametrize("before", [False, True])
async def test_a_crd_that_changes_under_way_loses_nothing(memory: MemoryApi, before: bool) -> None:
    writes = FluxJobStatusWrites(memory.api)
    for subresource, status in ((before, RUNNING), (not before, COMPLETED), (before, RUNNING)):
        memory.status_subresources["fluxjobs"] = subresource
        await writes.write(meta(memory), status)
        assert state(memory) == status.state


@pytest.mark.parametrize("subresource", [False, True])
async def test_a_fluxjob_that_is_gone_or_another_is_not_written(memory: MemoryApi, subresource: bool) -> None:
    memory.status_subresources["fluxjobs"] = subresource
    writes = FluxJobStatusWrites(memory.api)
    await writes.write(meta(memory), RUNNING)
    with pytest.raises(Invalid):
        await writes.write(ObjectMeta(name="job-lammps", namespace="default", uid="another"), COMPLETED)
    known = meta(memory)
    memory.remove("fluxjobs", "job-lammps")
    with pytest.raises(NotFound):
        await writes.write(known, COMPLETED)
