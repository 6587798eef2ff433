import pytest
from support.builders import make_job, make_pod
from support.queue_builders import a_job, a_pod

from fluxqueue.api import names
from fluxqueue.queue.model.jobids import jobid_of, parse_jobid


@pytest.mark.parametrize("text", [None, "", "seven", "-7", "7.0", " 7", "1" * 19])
def test_a_text_that_the_queue_would_not_write_is_no_job_id(text: str | None) -> None:
    assert parse_jobid(text) is None


def test_the_annotation_of_a_pod_counts_before_its_label() -> None:
    both = make_pod().annotation(names.ALLOCATION_ANNOTATION, "8").label(names.JOBID_LABEL, "7")
    assert jobid_of(a_pod(both).metadata) == 8
    assert jobid_of(a_job(make_job().label(names.JOBID_LABEL, "7")).metadata) == 7
    assert jobid_of(a_job(make_job()).metadata) is None
