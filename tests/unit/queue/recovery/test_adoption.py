"""A released Job that the tables do not know takes what it takes, as its ``spec.scheduling`` says."""

from __future__ import annotations

import msgspec
from support.builders import make_job, make_node
from support.controller_bench import managed_caches
from support.device_objects import a_class, a_template, request, resource_claims
from support.memory_api import MemoryApi
from support.memory_store import memory_ledger

from fluxqueue.api import names
from fluxqueue.api.devices import DeviceClass, ResourceClaimTemplate
from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.jobs import Job
from fluxqueue.api.nodes import Node
from fluxqueue.queue.model.jobspecs import taken_once_in
from fluxqueue.queue.recovery.adoption import adopt_released


async def test_a_job_is_adopted_with_the_domain_and_the_claims_that_it_states() -> None:
    caches, ledger = managed_caches(MemoryApi(), devices=True), await memory_ledger()
    caches.nodes.replace([msgspec.convert(make_node("n1").build(), Node)])
    caches.devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    caches.devices.templates.apply(
        msgspec.convert(a_template("both", request(2), namespace="default"), ResourceClaimTemplate)
    )
    claims = resource_claims("both")
    stated = {"schedulingConstraints": {"topology": [{"key": "zone"}]}, "resourceClaims": claims}
    job = (
        make_job("mesh")
        .namespace("default")
        .indexed(2)
        .cpu("1")
        .uid("mesh")
        .label(names.JOBID_LABEL, "7")
        .pod_annotation(names.ALLOCATION_ANNOTATION, "7")
        .pod_annotation(names.NODES_ANNOTATION, "n1,n1")
        .pod_annotation(names.PIN_UNTIL_ANNOTATION, "2100-01-01T00:00:00Z")
        .with_("spec.template.spec.resourceClaims", claims)
        .with_("spec.scheduling", stated)
    )
    caches.jobs.replace([msgspec.convert(job.build(), Job)])
    fluxjob = {
        "metadata": {"name": fluxjob_name("Job", "mesh", "mesh"), "namespace": "default", "uid": "fj"},
        "spec": {"objectRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "mesh", "uid": "mesh"}},
        "status": {"jobid": 7},
    }
    caches.fluxjobs.replace([msgspec.convert(fluxjob, FluxJob)])
    await adopt_released(caches, ledger)
    row = ledger.by_uid("mesh")
    assert row is not None
    assert "zone" in row.jobspec
    assert [*taken_once_in(row.jobspec).values()] == [2]
