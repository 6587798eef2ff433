import pytest
from support.builders import JobBuilder, make_job
from support.queue_builders import a_job

from fluxqueue.queue.model.jobs import pods_wanted


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        (make_job().indexed(4), 4),
        (make_job().indexed(4).with_("status.completedIndexes", "0,2-3"), 1),
        (make_job().indexed(4).with_("status.completedIndexes", "0").with_("status.failedIndexes", "3"), 2),
        (make_job().indexed(4).with_("status.completedIndexes", "0-3"), 1),
        (make_job().pods(3, 5).with_("status.succeeded", 3), 2),
        (make_job().pods(3, 5).with_("status.succeeded", 1), 3),
        (make_job().pods(0, 5), 0),
        (make_job().with_("spec.completions", None).with_("spec.parallelism", 3).with_("status.succeeded", 2), 3),
    ],
)
def test_only_pods_that_are_still_to_run_are_matched_again(job: JobBuilder, pods: int) -> None:
    assert pods_wanted(a_job(job)) == pods
