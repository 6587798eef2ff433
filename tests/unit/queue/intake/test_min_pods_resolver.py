"""With how few pods a Job may start, as the queue reads it."""

from typing import Any

import pytest
from support.builders import JobBuilder, make_job, make_pod
from support.minicluster_builders import minicluster
from support.queue_builders import a_job, a_pod, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.cluster.context import QueueDefaults
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.model.moldable import min_pods_in
from fluxqueue.queue.model.records import NewWorkload

MIN_PODS = "fluxqueue/min-pods"
EIGHT = make_job("a").indexed(8).cpu("1").suspended().annotation("fluxqueue/duration", "10m")
EIGHT = EIGHT.annotation("fluxqueue/suspended-by", "webhook")
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}


def described(builder: JobBuilder, **queue: Any) -> NewWorkload:
    found = describe_job(a_job(builder), around(queues={"default": QueueDefaults(**queue)}))
    assert found is not None
    return found


def least(builder: JobBuilder, **queue: Any) -> int:
    return min_pods_in(described(builder, **queue).jobspec)


def test_a_job_starts_with_all_its_pods_unless_it_says_otherwise() -> None:
    assert least(EIGHT) == 0
    assert described(EIGHT.annotation(MIN_PODS, "8")).jobspec == described(EIGHT).jobspec


def test_a_job_says_with_how_few_pods_it_may_start() -> None:
    moldable = described(EIGHT.annotation(MIN_PODS, "2"))
    assert (min_pods_in(moldable.jobspec), moldable.pods, moldable.reason) == (2, 8, Reason.NONE)
    assert moldable.shape != described(EIGHT).shape


@pytest.mark.parametrize(("percent", "pods"), [(1, 1), (25, 2), (26, 3), (100, 0)])
def test_a_queue_has_a_default_in_percent(percent: int, pods: int) -> None:
    assert least(EIGHT, min_pods_percent=percent) == pods
    assert least(EIGHT.annotation(MIN_PODS, "4"), min_pods_percent=percent) == 4


@pytest.mark.parametrize(
    "builder",
    [
        EIGHT.with_("spec.completionMode", "NonIndexed"),
        EIGHT.with_("spec.parallelism", 4),
        EIGHT.with_("spec.template.spec.topologySpreadConstraints", [SPREAD]),
    ],
    ids=["not indexed", "not together", "rules about other pods"],
)
def test_a_default_is_no_rule_for_jobs_that_need_all_their_pods(builder: JobBuilder) -> None:
    found = described(builder, min_pods_percent=25)
    assert (min_pods_in(found.jobspec), found.reason) == (0, Reason.NONE)


def test_a_default_is_no_rule_for_the_brokers_of_a_flux_cluster() -> None:
    found = describe_job(
        a_job(EIGHT),
        around(queues={"default": QueueDefaults(min_pods_percent=25)}),
        minicluster=minicluster("a"),
    )
    assert found is not None
    assert min_pods_in(found.jobspec) == 0


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (EIGHT.annotation(MIN_PODS, "9"), "write a whole number from 1 to 8"),
        (
            EIGHT.annotation(MIN_PODS, "2").with_("spec.parallelism", 4),
            "is for Indexed Jobs whose pods run together",
        ),
        (
            EIGHT.annotation(MIN_PODS, "2").with_("spec.template.spec.topologySpreadConstraints", [SPREAD]),
            "is not for pods with required rules about other pods",
        ),
    ],
)
def test_what_cannot_be_waits_with_a_sentence(builder: JobBuilder, words: str) -> None:
    found = described(builder)
    assert found.reason is Reason.INVALID_REQUEST
    assert "Job default/a: annotation fluxqueue/min-pods" in found.message
    assert words in found.message


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("ReplicaSet", "2", ""),
        ("ReplicaSet", "0", "write a whole number from 1"),
        (
            "DaemonSet",
            "2",
            "for the pods of Deployments, ReplicaSets and StatefulSets: leave",
        ),
    ],
)
def test_a_pod_waits_with_a_sentence_if_its_floor_cannot_be(kind: str, text: str, problem: str) -> None:
    pod = make_pod("web").cpu("1").gate("fluxqueue").owned_by(kind).annotation(MIN_PODS, text)
    found = describe_pod(a_pod(pod), around())
    assert found is not None
    assert (found.reason is Reason.INVALID_REQUEST) == bool(problem)
    assert problem in found.message


def test_a_job_starts_with_no_fewer_than_end_in_time() -> None:
    assert least(EIGHT.annotation(MIN_PODS, "1").with_("spec.activeDeadlineSeconds", 1_200)) == 4
    assert least(EIGHT.annotation(MIN_PODS, "1"), max_duration_s=1_600) == 3
    assert least(EIGHT.annotation(MIN_PODS, "1"), max_duration_s=600) == 0


def test_a_job_that_was_started_with_fewer_asks_for_all_again() -> None:
    again = (
        EIGHT.annotation(MIN_PODS, "2").with_("spec.parallelism", 3).annotation("fluxqueue/started-pods", "3")
    )
    assert described(again).jobspec == described(EIGHT.annotation(MIN_PODS, "2")).jobspec


def gang(**fields: int) -> JobBuilder:
    return EIGHT.with_("spec.scheduling", {"schedulingPolicy": {"gang": fields}})


def test_the_gang_of_a_job_says_with_how_few_pods_it_may_start() -> None:
    assert least(gang(minCount=4)) == 4
    assert least(gang(minCount=4).annotation(MIN_PODS, "6")) == 6
    assert least(gang()) == least(gang(minCount=8)) == 0
    assert least(EIGHT.with_("spec.scheduling", {"schedulingPolicy": {"basic": {}}})) == 0


def test_a_default_never_takes_pods_from_a_gang() -> None:
    assert least(gang(minCount=4), min_pods_percent=25) == 4
    assert least(gang(minCount=4), min_pods_percent=75) == 6
    assert least(gang(), min_pods_percent=25) == 0


def test_a_job_that_is_disrupted_as_one_starts_with_all_its_pods() -> None:
    whole = gang(minCount=4).with_("spec.scheduling.disruptionMode", {"all": {}})
    assert least(whole) == least(whole, min_pods_percent=25) == 0


def test_a_gang_that_needs_all_its_pods_at_once_anyway_is_no_problem() -> None:
    assert described(gang(minCount=4).with_("spec.completionMode", "NonIndexed")).reason is Reason.NONE


def test_an_annotation_below_its_gang_waits_with_a_sentence() -> None:
    found = described(gang(minCount=4).annotation(MIN_PODS, "2"))
    assert found.reason is Reason.INVALID_REQUEST
    assert "fluxqueue/min-pods: 2 is below 4" in found.message
