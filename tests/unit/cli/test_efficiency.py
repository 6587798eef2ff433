from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from support.node_work import one, work

from fluxqueue.cli.efficiency import efficiency, of_history, of_row
from fluxqueue.cli.history_source import HistorySource
from fluxqueue.cli.pod_metrics import PodUse

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
ROW = {
    "kind": "Job",
    "name": "solver",
    "namespace": "lab",
    "pods": 4,
    "cores": 8.0,
    "duration_s": 3600,
    "run_s": 900.0,
    "state": "Completed",
    "outcome": "Completed",
    "hosts": "node-[1,1,2,2]",
    "finished_at": "2026-03-02T11:00:00Z",
}


def lines(text: str) -> dict[str, str]:
    return {
        line[2:].split("   ")[0].strip(): line.split("   ", 1)[1].strip() for line in text.splitlines()[2:]
    }


def test_what_runs_is_compared_with_what_it_asked_for() -> None:
    job = work("a", "n[1,1,2]", one(2, 3, gpus=1), state="Running")
    text = efficiency(job, PodUse(3, 1.5, 768 * 2**20), NOW)
    shown = lines(text)
    assert "runs" in text.splitlines()[0]
    assert shown["Asked for"].startswith("3 pods: 6 cores, 3 GiB memory, 3 GPUs in all")
    assert shown["Cores"] == "1.5 of 6 (25%) in use now"
    assert shown["Memory"] == "768 MiB of 3 GiB (25%) in use now"
    assert "does not measure" in shown["GPUs"]
    assert shown["Nodes"] == "n1 (2), n2"


def test_pods_that_are_not_measured_yet_are_counted() -> None:
    shown = lines(efficiency(work("a", "n[1,1,2]", one(2, 3)), PodUse(1, 1, 2**30), NOW))
    assert shown["Cores"].endswith("in use now, of 1 of 3 pods")


@pytest.mark.parametrize(
    ("state", "use", "says"),
    [
        (
            "Running",
            PodUse(unknown="this cluster serves no metrics"),
            "not known: this cluster serves no metrics",
        ),
        ("Running", None, "nothing yet: none of its pods runs"),
        ("Pending", None, "nothing yet: none of its pods runs"),
        ("Completed", None, "nothing: it never ran"),
    ],
)
def test_where_nothing_is_known_a_sentence_says_why(state: str, use: PodUse | None, says: str) -> None:
    assert lines(efficiency(work("a", "n1", one(2, 1), state=state), use, NOW))["Used"] == says


def test_a_jobspec_of_another_version_hides_the_amounts_only() -> None:
    job = work("a", "n1", one(2, 1))
    strange = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, jobspec='{"resources": 7}'))
    assert lines(efficiency(strange, PodUse(1, 1, 2**30), NOW))["Cores"] == "1, without a request, in use now"


def test_the_history_knows_times_and_cores_of_what_is_gone() -> None:
    text = of_row(ROW, NOW)
    shown = lines(text)
    assert text.startswith(
        "job/solver in namespace lab is no longer in the cluster; the history has it: Completed, "
        "ended at 11:00:00."
    )
    assert shown["Asked for"] == "4 pods: 8 cores in all, for 60m"
    assert shown["Time"] == "15m of 60m (25%)"
    assert shown["Used"].startswith("not known: Kubernetes keeps no figures")
    assert shown["Nodes"] == "node-[1-2] (2 each)"


class Source:
    def __init__(self, *rows: Mapping[str, Any]) -> None:
        self.rows = list(rows)
        self.asked: list[Mapping[str, str]] = []

    def jobs(
        self, parameters: Mapping[str, str], limit: int, page: int
    ) -> Iterator[tuple[list[Mapping[str, Any]], bool]]:
        assert limit == page == 1
        self.asked.append(parameters)
        yield self.rows[:1], False


def test_the_newest_work_of_a_name_counts() -> None:
    source = Source({**ROW, "run_s": 1.0}, ROW)
    found = of_history(cast(HistorySource, source), "lab", "job/solver")
    assert found is not None
    assert found["run_s"] == 1.0
    assert of_history(cast(HistorySource, Source()), "lab", "solver") is None
    assert source.asked == [{"namespace": "lab", "name": "solver", "kind": "job"}]
