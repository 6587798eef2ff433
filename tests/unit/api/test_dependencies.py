import pytest

from fluxqueue.api.dependencies import (
    MAX_DEPENDENCIES,
    DependencyCondition,
    DependencyKind,
    InvalidDependencies,
    WorkloadDependency,
    parse_dependencies,
)


def test_reads_every_condition_kind_and_delay() -> None:
    text = "ok:job/a, any:pod-group/B_1,fail:minicluster/c.d , start:job/e+10m"
    assert parse_dependencies(text) == (
        WorkloadDependency(condition=DependencyCondition.OK, kind=DependencyKind.JOB, name="a"),
        WorkloadDependency(condition=DependencyCondition.ANY, kind=DependencyKind.POD_GROUP, name="B_1"),
        WorkloadDependency(condition=DependencyCondition.FAIL, kind=DependencyKind.MINICLUSTER, name="c.d"),
        WorkloadDependency(
            condition=DependencyCondition.START, kind=DependencyKind.JOB, name="e", delay_s=600
        ),
    )


def test_an_entry_is_written_as_it_is_read() -> None:
    for text in ("ok:job/a", "start:minicluster/b+600s"):
        assert str(parse_dependencies(text)[0]) == text
    assert parse_dependencies(str(parse_dependencies("any:job/x+01:00:00")[0])) == parse_dependencies(
        "any:job/x+1h"
    )


def test_a_repeated_entry_counts_once_and_no_text_is_no_dependency() -> None:
    assert len(parse_dependencies("ok:job/a,ok:job/a, ok:job/a")) == 1
    assert parse_dependencies("") == parse_dependencies("  ") == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a", "'a' is not a dependency: write for example ok:job/NAME"),
        ("ok:a", "is not a dependency"),
        ("ok:job/", "is not a dependency"),
        ("ok:job/a,", "'' is not a dependency"),
        ("ok:job/a+", "is not a dependency"),
        ("ok:other/job/a", "is not a dependency"),
        ("afterok:job/a", "'afterok' is no condition: write ok, any, fail or start"),
        ("ok:pod/a", "nothing can wait for a 'pod': write job, pod-group or minicluster"),
        ("ok:job/-a", "no object can have the name '-a'"),
        ("ok:job/" + "a" * 254, "no object can have the name"),
        ("ok:job/a+soon", "'soon' is not a duration"),
        ("start:job/a+11y", "is not a duration"),
        ("start:job/a+9999d", "longer than ten years"),
        ("x" * 32_769, "more than 32768 characters: no more are read"),
    ],
)
def test_refuses_what_is_no_dependency_and_says_what_is(text: str, complaint: str) -> None:
    with pytest.raises(InvalidDependencies, match=complaint.replace("+", r"\+")):
        parse_dependencies(text)


def test_refuses_more_dependencies_than_the_bound_and_accepts_the_bound() -> None:
    entries = [f"ok:job/j{number}" for number in range(MAX_DEPENDENCIES + 1)]
    assert len(parse_dependencies(",".join(entries[:-1]))) == MAX_DEPENDENCIES
    with pytest.raises(InvalidDependencies, match="1001 entries: at most 1000"):
        parse_dependencies(",".join(entries))
