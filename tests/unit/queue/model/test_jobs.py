import pytest
from support.builders import JobBuilder, make_job
from support.queue_builders import a_job

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.templatepins import node_affinity
from fluxqueue.queue.model.jobs import is_elastic, pods_wanted, started_with_fewer, template_can_hold_node

STOCK, FLUXION = SchedulerName.STOCK, SchedulerName.FLUXION


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
        (
            make_job()
            .with_("spec.completions", None)
            .with_("spec.parallelism", 3)
            .with_("status.succeeded", 2),
            3,
        ),
    ],
)
def test_only_pods_that_are_still_to_run_are_matched_again(job: JobBuilder, pods: int) -> None:
    assert pods_wanted(a_job(job)) == pods


@pytest.mark.parametrize(
    ("job", "scheduler"),
    [
        pytest.param(make_job(), STOCK, id="one pod"),
        pytest.param(make_job().pods(1, 100), STOCK, id="one pod after the other"),
        pytest.param(
            make_job().pods(1, 100).with_("spec.completionMode", "Indexed"),
            STOCK,
            id="one index after the other",
        ),
        pytest.param(make_job().with_("spec.completions", None), STOCK, id="a work queue of one pod"),
        pytest.param(
            make_job().with_("spec.template.spec.affinity", {"nodeAffinity": {"preferred": []}}),
            STOCK,
            id="preferred nodes",
        ),
        pytest.param(
            make_job().with_("spec.template.spec.schedulerName", "volcano"), STOCK, id="a scheduler of others"
        ),
        pytest.param(
            make_job().with_("spec.template.spec.schedulerName", "FluxionScheduler"),
            FLUXION,
            id="our scheduler by its name",
        ),
    ],
)
def test_a_template_holds_the_node_of_pods_that_come_one_at_a_time(
    job: JobBuilder, scheduler: SchedulerName
) -> None:
    assert template_can_hold_node(a_job(job.suspended()), scheduler)


@pytest.mark.parametrize(
    ("job", "scheduler"),
    [
        pytest.param(make_job().pods(2, 4), STOCK, id="several pods at once"),
        pytest.param(make_job().indexed(4), STOCK, id="a gang"),
        pytest.param(make_job().indexed(1), STOCK, id="an elastic Job of one pod, which may grow"),
        pytest.param(make_job().pods(0, 1), STOCK, id="no pods"),
        pytest.param(
            make_job().with_("spec.template.spec.affinity", node_affinity("mine")),
            STOCK,
            id="required nodes of its own",
        ),
        pytest.param(make_job().pod_annotation("fluxqueue/minicluster", "true"), STOCK, id="a broker"),
        pytest.param(
            make_job().pod_annotation("fluxqueue/minicluster-injection", "{}"),
            STOCK,
            id="what the webhook injects",
        ),
        pytest.param(make_job(), FLUXION, id="our scheduler, which only the webhook can name"),
    ],
)
def test_other_templates_leave_the_node_to_the_webhook_or_the_queue(
    job: JobBuilder, scheduler: SchedulerName
) -> None:
    assert not template_can_hold_node(a_job(job.suspended()), scheduler)


def test_each_index_of_an_elastic_job_has_its_own_slot_unless_it_was_started_with_fewer_pods() -> None:
    elastic, small = make_job().indexed(4), make_job().indexed(4).annotation("fluxqueue/started-pods", "2")
    assert [is_elastic(a_job(each)) for each in (elastic, elastic.with_("spec.parallelism", 2), small)] == [
        True,
        False,
        False,
    ]
    assert [started_with_fewer(a_job(each)) for each in (elastic, small)] == [False, True]
