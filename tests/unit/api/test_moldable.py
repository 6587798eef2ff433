import msgspec
import pytest
from support.builders import PodBuilder, make_pod

from fluxqueue.api.job_scheduling import JobScheduling
from fluxqueue.api.moldable import (
    JobSize,
    floor_problem,
    min_pods_problem,
    molded_duration,
    read_min_pods,
)
from fluxqueue.api.pods import Pod

AS_ONE = msgspec.convert({"disruptionMode": {"all": {}}}, JobScheduling)
GANG_OF_4 = msgspec.convert({"schedulingPolicy": {"gang": {"minCount": 4}}}, JobScheduling)

EIGHT = JobSize(indexed=True, completions=8, parallelism=8)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("008", 8), ("", None), ("-1", None), ("1.5", None), ("²", None), ("9" * 10, None)],
)
def test_the_least_number_of_pods_is_a_whole_number(text: str, number: int | None) -> None:
    assert read_min_pods(text) == number


@pytest.mark.parametrize("size", [EIGHT, JobSize(indexed=True, completions=1, parallelism=None)])
def test_an_indexed_job_whose_pods_run_together_may_start_with_fewer(size: JobSize) -> None:
    assert min_pods_problem("1", size) == ""


@pytest.mark.parametrize("text", ["0", "9", "two", "", "8 "])
def test_another_number_is_refused_with_those_that_are_possible(text: str) -> None:
    expected = (
        f"annotation fluxqueue/min-pods: {text!r} is not a number of its pods: "
        "write a whole number from 1 to 8"
    )
    assert min_pods_problem(text, EIGHT) == expected


def test_a_long_text_is_cut_in_the_sentence() -> None:
    assert len(min_pods_problem("x" * 100_000, EIGHT)) < 200


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (JobSize(indexed=False, completions=8, parallelism=8), "set completionMode: Indexed"),
        (JobSize(indexed=True, completions=8, parallelism=4), "parallelism the same as completions"),
        (JobSize(indexed=True, completions=8, parallelism=None), "parallelism the same as completions"),
        (JobSize(indexed=True, completions=None, parallelism=8), "parallelism the same as completions"),
        (JobSize(indexed=True, completions=8, parallelism=8, cluster=True), "is not for Flux clusters"),
        (
            JobSize(indexed=True, completions=8, parallelism=8, slices=True),
            "fluxqueue/topology-slice cannot both hold",
        ),
        (
            JobSize(indexed=True, completions=8, parallelism=8, scheduling=AS_ONE),
            "spec.scheduling.disruptionMode: all cannot both hold",
        ),
    ],
)
def test_a_job_that_needs_all_its_pods_cannot_have_it(size: JobSize, words: str) -> None:
    assert words in min_pods_problem("2", size)


def problem_of(pod: PodBuilder, text: str = "2") -> str:
    return floor_problem(msgspec.convert(pod.annotation("fluxqueue/min-pods", text).build(), Pod).metadata)


def test_pods_of_a_deployment_say_how_many_are_to_run() -> None:
    of_deployment = make_pod("web").owned_by("ReplicaSet")
    assert problem_of(make_pod("web-0").owned_by("StatefulSet"), "2") == ""
    assert [problem_of(of_deployment, text) for text in ("1", "008", "999999999")] == ["", "", ""]
    for text in ("0", "-1", "two", "", "1.5", "x" * 100_000):
        assert problem_of(of_deployment, text) == (
            f"annotation fluxqueue/min-pods: {text!r:.40} is not a number of its pods: "
            "write a whole number from 1"
        )


def test_pods_of_a_job_have_no_floor_of_their_own() -> None:
    assert problem_of(make_pod("a").owned_by("Job"), "none") == ""


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            make_pod("a"),
            "is for Indexed Jobs, and for the pods of Deployments, ReplicaSets and StatefulSets: leave",
        ),
        (make_pod("a").owned_by("DaemonSet"), "the pods of Deployments, ReplicaSets and StatefulSets: leave"),
        (make_pod("a").owned_by("StatefulSet").annotation("fluxqueue/gang", "true"), ": leave one out"),
        (make_pod("a").owned_by("ReplicaSet", api_version="example.com/v1"), "leave it out"),
        (
            make_pod("a").owned_by("ReplicaSet").annotation("fluxqueue/gang", "true"),
            "start together with others (fluxqueue/gang, fluxqueue/pod-group): leave one out",
        ),
        (
            make_pod("a").owned_by("ReplicaSet").label("fluxqueue/pod-group", "g"),
            ": leave one out",
        ),
    ],
)
def test_other_pods_cannot_have_a_floor(pod: PodBuilder, words: str) -> None:
    assert words in problem_of(pod)


def test_work_that_scales_takes_longer_with_fewer() -> None:
    assert [molded_duration(100, 8, slots) for slots in (8, 4, 3, 1)] == [100, 200, 267, 800]


def test_work_with_few_of_its_pods_has_an_end_that_a_date_can_say() -> None:
    ten_years = 315_360_000
    assert molded_duration(ten_years, 2_000, 1) == 10 * ten_years
    assert molded_duration(20 * ten_years, 2, 1) == 20 * ten_years, (
        "what is longer by itself is not shortened"
    )


def test_a_job_cannot_start_with_fewer_pods_than_its_gang_needs() -> None:
    gang = JobSize(indexed=True, completions=8, parallelism=8, scheduling=GANG_OF_4)
    assert min_pods_problem("4", gang) == ""
    assert min_pods_problem("3", gang) == (
        "annotation fluxqueue/min-pods: 3 is below 4, which is the least that "
        "spec.scheduling.schedulingPolicy.gang starts: leave the annotation out, or set minCount to it"
    )
