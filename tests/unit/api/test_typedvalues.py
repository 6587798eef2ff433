import pytest

from fluxqueue.api.typedvalues import (
    amount_problem,
    cores_problem,
    memory_problem,
    name_problem,
    queue_problem,
)


@pytest.mark.parametrize("amount", ["512", "512m", "4", "512k", "1023Ki", 512, "0.5"])
def test_memory_below_a_mebibyte_is_not_meant(amount: str | int) -> None:
    problem = memory_problem(amount)
    assert problem is not None
    assert "less than 1Mi, in which nothing runs: write " in problem


def test_the_remedy_has_the_number_that_was_typed() -> None:
    assert (
        memory_problem("512m")
        == "'512m' of memory is less than 1Mi, in which nothing runs: write 512Mi or 512Gi"
    )


@pytest.mark.parametrize("amount", ["1Mi", "4G", "16Gi", "1e9", "0", 2**30])
def test_memory_that_may_be_meant_has_no_problem(amount: str | int) -> None:
    assert memory_problem(amount) is None


@pytest.mark.parametrize("amount", ["many", "4GB", "-1", ""])
def test_what_is_no_amount_is_told_with_examples(amount: str) -> None:
    assert (
        amount_problem(amount) == memory_problem(amount) == f"{amount!r} is no amount: write 4, 500m or 16Gi"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("My_Solver", "'My_Solver' is no name that Kubernetes takes: write my-solver"),
        ("-x-", "'-x-' is no name that Kubernetes takes: write x"),
        ("___", "'___' is no name that Kubernetes takes: write lower-case letters, digits, '-' and '.'"),
        ("", "an empty text is no name: write lower-case letters, digits, '-' and '.'"),
        ("a" * 64, f"{'a' * 60!r} is longer than 63 characters: write {'a' * 63}"),
    ],
)
def test_a_name_that_no_job_can_have_is_told_with_another(name: str, sentence: str) -> None:
    assert name_problem(name) == sentence


@pytest.mark.parametrize("name", ["solver", "a", "md.v2", "1-x", "a" * 63])
def test_ordinary_names_have_no_problem(name: str) -> None:
    assert name_problem(name) is None


def test_a_queue_is_refused_only_if_it_is_known_not_to_exist() -> None:
    assert (
        queue_problem("nigth", ["night", "gpu"])
        == "there is no queue 'nigth': did you mean night? there are default, gpu, night"
    )
    assert queue_problem("night", ["night"]) is None
    assert queue_problem("default", []) is None
    assert queue_problem("nigth", None) is None
    assert "is empty" in (queue_problem("", None) or "")


def test_few_of_many_queues_are_named() -> None:
    sentence = queue_problem("x" * 1000, [f"q{number}" for number in range(1000)]) or ""
    assert sentence.endswith(", ...")
    assert len(sentence) < 300


@pytest.mark.parametrize("cores", ["64Gi", "1000001", 5_000_000, "2M"])
def test_more_cores_than_any_node_has_are_a_slip(cores: str | int) -> None:
    assert cores_problem(cores) == f"'{cores}' are more cores than any node has: write 4 or 500m"


@pytest.mark.parametrize("cores", ["4", "500m", 0.5, "1000000"])
def test_cores_that_a_node_may_have_are_none(cores: str | float) -> None:
    assert cores_problem(cores) is None
