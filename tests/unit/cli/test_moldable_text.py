import msgspec
import pytest
from support.builders import make_pod
from support.queue_builders import a_pod

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.pods import Pod
from fluxqueue.cli.moldable_text import duration_with_started_pods, moldable_text, was_started_with_fewer


def job(state: str, nodes: str = "", pods: int = 8) -> FluxJob:
    return msgspec.convert(
        {"spec": {"pods": pods, "durationSeconds": 600}, "status": {"state": state, "nodes": nodes}}, FluxJob
    )


def pods(number: int) -> list[Pod]:
    return [a_pod(make_pod(f"p{index}").on_node("n1"), uid=f"p{index}") for index in range(number)] + [
        a_pod(make_pod("waits"))
    ]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (job("Pending"), "starts with 2 to 8: with fewer where that ends it sooner"),
        (job(""), "starts with 2 to 8: with fewer where that ends it sooner"),
        (
            job("Running", "n[1-3]"),
            "3 of 8 since its start, 5 now: it grows when nodes are free that no other work can use",
        ),
        (job("Draining", "n[1-3]"), "3 of 8 since its start, 5 now"),
        (job("Running", "n[1-8]"), "all 8 since its start"),
        (job("Completed", "n[1-3]"), "3 of 8 since its start"),
        (job("Running", "n[1-3"), "starts with 2 to 8: with fewer where that ends it sooner"),
    ],
)
def test_the_number_of_pods_is_explained(seen: FluxJob, words: str) -> None:
    assert moldable_text(seen, 2, pods(5)) == words


def test_work_that_starts_with_all_its_pods_needs_no_words() -> None:
    assert moldable_text(job("Running", "n[1-8]"), 0, ()) == ""
    assert moldable_text(job("Running", "n1", pods=1), 1, ()) == ""


@pytest.mark.parametrize(
    ("nodes", "least", "seconds"),
    [("n[1-2]", 2, 2400), ("n[1-2]", 4, 1200), ("n[1-8]", 2, 600), ("n[1-2]", 0, 600), ("", 2, 600)],
)
def test_work_with_fewer_pods_is_planned_for_longer(nodes: str, least: int, seconds: int) -> None:
    assert duration_with_started_pods(job("Running", nodes), least) == seconds
    assert was_started_with_fewer(job("Running", nodes), least) == (seconds > 600)
