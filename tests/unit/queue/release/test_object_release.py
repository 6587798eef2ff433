"""Which scheduler binds the pods of a released Job, by the Job, its queue and the installation."""

from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest
from support.builders import JobBuilder, make_job
from support.queue_builders import EPOCH, a_job, a_workload, an_allocation

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import State
from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, SchedulerName
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.records import ReleaseMode
from fluxqueue.queue.release.object_release import ObjectReleaser, ReleaseSettings

STOCK, FLUXION = SchedulerName.STOCK, SchedulerName.FLUXION
JOB = make_job("lammps").indexed(3).suspended()


def released(
    job: JobBuilder,
    queue: SchedulerName | None,
    default: SchedulerName | None,
    mode: ReleaseMode = ReleaseMode.PIN,
) -> dict[str, str]:
    """Annotations of the template after the release."""
    caches, anything = Caches(cast(Api, None)), cast(Any, None)
    caches.fluxqueues.replace(
        [FluxQueue(metadata=ObjectMeta(name="gold"), spec=FluxQueueSpec(scheduler=queue))]
    )
    settings = ReleaseSettings(scheduler=default)
    releaser = ObjectReleaser(anything, caches, lambda: EPOCH, anything, anything, settings)
    workload = a_workload(queue="gold", release_mode=mode)
    patch = cast(
        Any,
        releaser._job_patch(
            a_job(job), workload, replace(an_allocation(("n1", "n2", "n3")), workload=workload.id)
        ),
    )
    return cast(dict[str, str], patch["spec"]["template"]["metadata"]["annotations"])


@pytest.mark.parametrize(
    ("job", "queue", "default", "chosen"),
    [
        pytest.param(JOB, None, None, STOCK, id="not installed"),
        pytest.param(
            JOB.label("fluxqueue/scheduler", "fluxion"),
            FLUXION,
            None,
            STOCK,
            id="asked for, and not installed",
        ),
        pytest.param(JOB, None, FLUXION, FLUXION, id="the installation"),
        pytest.param(JOB, STOCK, FLUXION, STOCK, id="the queue"),
        pytest.param(
            JOB.label("fluxqueue/scheduler", "fluxion"), STOCK, STOCK, FLUXION, id="a label of the Job"
        ),
        pytest.param(
            JOB.label("fluxqueue/scheduler", "fluxion").pod_label("fluxqueue/scheduler", "stock"),
            FLUXION,
            FLUXION,
            STOCK,
            id="of its pods",
        ),
        pytest.param(
            JOB.with_("spec.template.spec.schedulerName", "FluxionScheduler"),
            STOCK,
            None,
            FLUXION,
            id="ours by name",
        ),
        pytest.param(
            JOB.with_("spec.template.spec.schedulerName", "volcano"),
            FLUXION,
            FLUXION,
            STOCK,
            id="another's by name",
        ),
    ],
)
def test_a_release_writes_down_who_binds(
    job: JobBuilder, queue: SchedulerName | None, default: SchedulerName | None, chosen: SchedulerName
) -> None:
    pinned = released(job, queue, default)
    assert pinned["fluxqueue/scheduler"] == chosen
    assert pinned["fluxqueue/gang-size"] == "3"
    assert released(job, queue, default, ReleaseMode.GATE) == {"fluxqueue/scheduler": chosen}


@pytest.mark.parametrize(
    ("hosts", "pinned"), [(["n1"], False), (["n1", "n2"], False), (["n1", "n2", "n3"], True)]
)
def test_a_moldable_job_is_released_by_gate_where_it_starts_with_fewer_pods(
    hosts: list[str], pinned: bool
) -> None:
    caches, anything = Caches(cast(Api, None)), cast(Any, None)
    releaser = ObjectReleaser(anything, caches, lambda: EPOCH, anything, anything, ReleaseSettings())
    jobspec = jobspec_of("default/lammps", [SizedPods({"cpu": Decimal(1)}, 3)], duration_s=60, min_pods=1)
    workload = a_workload(jobspec=jobspec, pods=3, state=State.ALLOCATED, hosts=hostlists.encode(hosts))
    was = JOB.with_("spec.parallelism", 1).annotation(names.STARTED_PODS_ANNOTATION, "1")
    patch = cast(
        Any, releaser._job_patch(a_job(was), workload, replace(an_allocation(hosts), workload=workload.id))
    )
    assert patch["spec"]["parallelism"] == len(hosts)
    assert (names.NODES_ANNOTATION in patch["spec"]["template"]["metadata"]["annotations"]) == pinned
    assert "affinity" not in patch["spec"]["template"]["spec"], "its later pods have other nodes"
