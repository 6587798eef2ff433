"""What became of random worlds: a line of JSON for each, so that a run can go on where it was interrupted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.differential_judge import STARTED, Trial

__all__ = ["Record"]

Json = dict[str, Any]


class Record:
    """The worlds of one seed on one scheduler and version of Kubernetes.

    Parameters
    ----------
    path
        Of a file to which worlds are added, and which may have some already, also of other seeds; None to
        keep them in memory.
    seed, scheduler, kubernetes
        Of these worlds.
    """

    def __init__(self, path: Path | None, seed: int, scheduler: str, kubernetes: str) -> None:
        self._path = path
        self._run = {"seed": seed, "scheduler": scheduler, "kubernetes": kubernetes}
        self._lines = [*self._read()]

    def _read(self) -> Iterator[Json]:
        if self._path is not None and self._path.exists():
            for line in self._path.read_text().splitlines():
                entry: Json = json.loads(line)
                if entry.items() >= self._run.items():
                    yield entry

    @property
    def numbers(self) -> set[int]:
        """Numbers of the worlds that were judged."""
        return {each["world"] for each in self._lines}

    @property
    def faults(self) -> list[str]:
        """A line for each world in which a rule was broken."""
        return [
            f"seed {each['seed']} world {each['world']} ({each['about']}): {each['fault']}"
            for each in self._lines
            if each["fault"]
        ]

    def add(self, trial: Trial) -> None:
        """Add a world that was judged."""
        entry = self._run | {
            "world": trial.world.number,
            "about": trial.world.about,
            "verdict": str(trial.verdict),
            "rule": trial.rule,
            "fault": trial.fault,
            "known": trial.known,
            "released": trial.released,
            "refusals": len(trial.refusals),
            "waits": len(trial.waits),
            "refused": sorted({why[:200] for why in trial.refusals.values()}),
        }
        self._lines.append(entry)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    @property
    def started(self) -> int:
        """How many worlds started the work."""
        return sum(each["verdict"] == STARTED for each in self._lines)

    def summary(self) -> str:
        """Return all that was judged in one line."""
        run, lines = self._run, self._lines
        released = sum(each["released"] for each in lines)
        refusals = sum(each["refusals"] for each in lines)
        waits = sum(each.get("waits", 0) for each in lines)
        rules = Counter(str(each["rule"]) for each in lines if each["fault"])
        differences = ", ".join(f"{count} of {rule!r}" for rule, count in rules.most_common()) or "none"
        abouts = ", ".join(f"{n} {about}" for about, n in Counter(e["about"] for e in lines).most_common())
        return (
            f"seed {run['seed']}, {run['scheduler']} scheduler, Kubernetes {run['kubernetes']}: "
            f"{len(lines)} worlds ({abouts}), {self.started} started, "
            f"{sum(bool(each['known']) for each in lines)} known differences; differences: {differences}; "
            f"{refusals} refusals of {released} releases ({100 * refusals / max(released, 1):.1f} %); "
            f"{waits} waited for a claim that another pod was getting"
        )
