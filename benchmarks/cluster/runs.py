"""The runs of a comparison: their order, and the file that grows by one run at a time, so that an interrupted
comparison continues.

All contenders of a scenario are measured with one commit. Scenarios may have different ones, and the report
names the commit of each: the whole comparison takes hours, and a change of the queue need not wait for it.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.kueue import KUEUE_VERSION
from cluster.scenarios import SCENARIOS
from fluxqueue.local.kubernetes_versions import VERSIONS, chosen_minor

__all__ = ["Results", "Run", "checked_out_commit", "planned"]


@dataclass(frozen=True)
class Run:
    """One run of one scenario by one contender; rounds count from 0."""

    scenario: str
    contender: str
    round: int


def planned(scenarios: Sequence[str], contenders: Sequence[str], rounds: int) -> Iterator[Run]:
    """Yield the runs in their order: each scenario in rounds, every second of them in reverse order (A B C C
    B A).

    What drifts on a machine, such as its temperature or its neighbours, then affects all contenders alike.
    """
    for scenario in scenarios:
        for number in range(min(rounds, SCENARIOS[scenario].rounds or rounds)):
            compared = [each for each in contenders if each not in SCENARIOS[scenario].without]
            for contender in compared if number % 2 == 0 else reversed(compared):
                yield Run(scenario, contender, number)


class Results:
    """The results of a comparison, in a JSON file.

    Parameters
    ----------
    path
        The file.
    scale
        Factor of the number of Jobs.
    commit
        Of the code that is measured, see `checked_out_commit`.
    resumed
        True: what the file has is kept.

    Raises
    ------
    ValueError
        The file has results of another factor, or with another Kubernetes or Kueue.
    """

    def __init__(self, path: Path, scale: float, commit: str, *, resumed: bool) -> None:
        self._path = path
        self._commit = commit
        self.document: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": _machine(),
            "versions": {"Kubernetes": VERSIONS[chosen_minor()], "Kueue": KUEUE_VERSION},
            "scale": scale,
            "outcomes": [],
            "failures": [],
        }
        if resumed and path.exists():
            earlier = json.loads(path.read_text())
            if (kept := (earlier["scale"], earlier["versions"])) != (scale, self.document["versions"]):
                told = f"{path} has results of --scale {kept[0]:g} and {kept[1]}"
                raise ValueError(
                    f"{told}, which cannot be continued: remove the file, or name another with --json"
                )
            self.document |= {key: earlier[key] for key in ("at", "outcomes", "request_ms") if key in earlier}

    def restart_stale(self, runs: Iterable[Run]) -> None:
        """Forget the runs of every scenario that is not complete and was begun with another commit."""
        incomplete = {run.scenario for run in runs if not self.has(run)}
        self.document["outcomes"] = [
            each
            for each in self.document["outcomes"]
            if each["scenario"] not in incomplete or each["commit"] == self._commit
        ]

    def has(self, run: Run) -> bool:
        """True if a run is there."""
        key = (run.scenario, run.contender, run.round)
        return any(
            (each["scenario"], each["key"], each["round"]) == key for each in self.document["outcomes"]
        )

    def add(self, run: Run, outcome: dict[str, Any]) -> None:
        """Add a run, and write the file."""
        self.document["outcomes"].append(
            {**outcome, "key": run.contender, "round": run.round, "commit": self._commit}
        )
        self._write()

    def add_failure(self, run: Run, problem: str) -> None:
        """Add that a run failed, and write the file."""
        self.document["failures"].append(
            {"scenario": run.scenario, "key": run.contender, "round": run.round, "problem": problem}
        )
        self._write()

    def add_requests(self, costs_ms: dict[str, float]) -> None:
        """Add what `cluster.request_costs` measured: CPU milliseconds of the API server by kind of request;
        and write the file.
        """
        self.document["request_ms"] = {name: float(f"{cost_ms:.3g}") for name, cost_ms in costs_ms.items()}
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps(self.document, separators=(",", ":")) + "\n")
        unfinished.rename(self._path)


def checked_out_commit() -> str:
    """Return the commit of this checkout, with ``-dirty`` if files differ from it;
    ``unknown`` without git.
    """
    folder = str(Path(__file__).parent)
    command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _machine() -> dict[str, Any]:
    cpus = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": cpus[0] if cpus else platform.machine(),
        "cpus": len(cpus),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
