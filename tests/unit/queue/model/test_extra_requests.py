"""What pods ask for beyond their template is learned, for their workload and for their namespace."""

import json

from support.builders import make_job
from support.queue_builders import a_job, around

from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.intake.submission import WorkloadContext
from fluxqueue.queue.model.extra_requests import ExtraRequests, extra_requests, extra_requests_in_words
from fluxqueue.queue.model.jobspecs import extra_requests_in, sizes_in

MESH = {"cpu": 1_000, "memory": 128}


def test_what_the_pods_of_a_workload_had_counts_for_it_whatever_others_had() -> None:
    learned = ExtraRequests()
    learned.record("a", "science", MESH)
    learned.record("b", "science", {})
    assert (learned.of("a"), learned.of("b"), learned.of("c")) == (MESH, {}, None)


def test_extra_requests_common_to_two_workloads_count_for_others_until_one_has_none() -> None:
    learned = ExtraRequests()
    assert not learned.record("a", "science", MESH)
    assert learned.common("science") == {}
    assert learned.record("b", "science", {"cpu": 500, "memory": 128})
    assert learned.common("science") == {"cpu": 500, "memory": 128}
    assert learned.common("elsewhere") == {}
    assert learned.record("c", "science", {})
    assert learned.common("science") == {}


def test_only_what_is_more_than_the_template_is_a_surplus() -> None:
    assert extra_requests(
        {"cpu": 3_000, "memory": 64, "pods": 1}, {"cpu": 2_000, "memory": 128, "pods": 1}
    ) == {"cpu": 1_000}


def test_a_job_requests_template_and_extra_requests_and_its_jobspec_separates_them() -> None:
    job = a_job(
        make_job("lammps").indexed(2).cpu("2").suspended().annotation("fluxqueue/suspended-by", "webhook")
    )
    plain, more = (
        describe_job(job, around()),
        describe_job(job, around(), WorkloadContext(extra_requests=MESH)),
    )
    assert plain is not None
    assert more is not None
    assert sizes_in(more.jobspec)["pod"] == {"cpu": 3_000, "memory": 128, "pods": 1}
    assert extra_requests_in(more.jobspec) == MESH
    assert extra_requests_in(plain.jobspec) == {}
    assert "user" not in json.loads(plain.jobspec)["attributes"]
    assert more.shape != plain.shape


def test_a_surplus_is_said_in_words() -> None:
    assert (
        extra_requests_in_words({"cpu": 1_000})
        == "each of its pods asks for 1 cpu more than its template, which something adds when it is created"
    )
