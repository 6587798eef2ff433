"""The figures of each run, and their medians over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from cluster.contenders import SERVERS
from cluster.scenarios import SCENARIOS

__all__ = ["FLUXQUEUE", "KUEUES", "PLAIN", "Figure", "Summary", "figures_of"]

PLAIN, FLUXQUEUE = "plain", "fluxqueue"
KUEUES = ("Kueue", "Kueue, 1,000 requests/s", "Kueue, tuned")
_NOT_COUNTED = frozenset({"kwok"})
"""It stands for all kubelets, which run on other machines."""


@dataclass(frozen=True)
class Figure:
    """A figure of several runs: its median, the least and the greatest."""

    median: float
    least: float
    greatest: float


def figures_of(outcome: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of one run by name; costs per Job, or as percent of a core where there are no
    Jobs.
    """
    figures = dict(outcome["figures"])
    pods = figures.pop("pods_of_job", None)
    if waits := outcome["wait_quantiles_s"]:
        figures |= {"wait_p50_s": waits[50], "wait_p99_s": waits[99]}
    cpu = {name: used for name, used in outcome["cpu_s"].items() if name not in _NOT_COUNTED}
    jobs = outcome["jobs"]
    unit, factor = ("cpu_ms", 1000 / jobs) if jobs else ("cpu_percent", 100 / outcome["lasted_s"])
    if jobs:
        figures["writes"] = sum(outcome["writes"].values()) / jobs
        figures["events"] = outcome["events"] / jobs
    figures[unit] = fsum(cpu.values()) * factor
    figures |= {f"{unit} {name}": used * factor for name, used in cpu.items()}
    if pods:
        figures["pod_cpu_ms"] = figures["cpu_ms"] / pods
        figures["pod_server_cpu_ms"] = figures["cpu_ms kube-apiserver"] / pods
    added = [name for name in cpu if name not in SERVERS]
    figures[f"{unit} added"] = fsum(cpu[name] for name in added) * factor
    figures["others_percent"] = 100 * outcome["others_cpu_s"] / outcome["lasted_s"]
    figures |= {f"pss_mib {name}": size for name, size in outcome["pss_mib"].items() if name in added}
    return figures | {f"profile {area}": share for area, share in outcome["profile"].items()}


class Summary:
    """All runs of a comparison.

    Parameters
    ----------
    document
        As `Results` writes it.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._outcomes: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
        for outcome in document["outcomes"]:
            self._outcomes.setdefault(outcome["scenario"], {}).setdefault(outcome["contender"], []).append(
                outcome
            )

    @property
    def scenarios(self) -> list[str]:
        """The scenarios that ran, in the order in which they are defined."""
        return [name for name in SCENARIOS if name in self._outcomes]

    def commits(self, scenario: str) -> list[str]:
        """Return the commits of fluxqueue with which a scenario was measured;
        more than one is a fault of the file.
        """
        return sorted({run["commit"] for runs in self._outcomes.get(scenario, {}).values() for run in runs})

    def contenders(self, scenario: str) -> list[str]:
        """Return the contenders of a scenario, in the order of their first run."""
        return list(self._outcomes.get(scenario, {}))

    def outcomes(self, scenario: str, contender: str) -> Sequence[Mapping[str, Any]]:
        """Return the runs of a contender."""
        return self._outcomes.get(scenario, {}).get(contender, [])

    def names(self, scenario: str) -> list[str]:
        """Return the names of the figures of any contender."""
        return list(
            dict.fromkeys(
                name
                for runs in self._outcomes.get(scenario, {}).values()
                for run in runs
                for name in figures_of(run)
            )
        )

    def figure(self, scenario: str, contender: str, name: str) -> Figure | None:
        """Return a figure over the rounds; None if no run has it."""
        found = [figures_of(run) for run in self.outcomes(scenario, contender)]
        values = [figures[name] for figures in found if name in figures]
        return Figure(statistics.median(values), min(values), max(values)) if values else None

    def median(self, scenario: str, contender: str, name: str) -> float | None:
        """Return the median of a figure; None if no run has it."""
        figure = self.figure(scenario, contender, name)
        return figure.median if figure is not None else None

    def better_kueue(self, scenario: str, name: str, *, higher: bool) -> float | None:
        """Return the figure of the setting of Kueue that does better in it; None if neither ran."""
        found = [value for each in KUEUES if (value := self.median(scenario, each, name)) is not None]
        return (max if higher else min)(found) if found else None
