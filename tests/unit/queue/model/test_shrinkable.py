"""With how few pods work goes on, and which of them can go."""

from __future__ import annotations

from decimal import Decimal

import msgspec
from support.queue_builders import a_workload

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of
from fluxqueue.queue.model.shrinkable import Shrinking, shrinking_of_job


def test_a_moldable_job_goes_on_with_its_least_and_any_pod_can_go() -> None:
    jobspec = jobspec_of("default/mpi", [SizedPods({"cpu": Decimal(1)}, 4)], duration_s=None, min_pods=2)
    row = a_workload("mpi", jobspec=jobspec)
    assert shrinking_of_job(row, None) == Shrinking(2)
    assert shrinking_of_job(a_workload("mpi"), None) == Shrinking(0)


def test_a_minicluster_goes_on_with_its_smallest_size_and_loses_its_highest_ranks() -> None:
    minicluster = msgspec.convert(
        {"metadata": {"name": "mpi"}, "spec": {"size": 4, "minSize": 2}}, MiniCluster
    )
    row = a_workload("mpi")
    assert shrinking_of_job(row, minicluster) == Shrinking(2, last_first=True)
