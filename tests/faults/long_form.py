"""The long form of the crash suite: a thousand gang starts, every crash point several times, with a report as
JSON and a picture.

``make test-faults-long``, or ``PYTHONPATH=tests python tests/faults/long_form.py --minutes 25 --seed 7 --json
FILE --svg FILE``. The run ends when every point was reached often enough and enough gangs were started, or
when its time is up. Earlier runs in FILE count, so several short runs make a long one. The exit status is 1
if anything was lost, booked twice, released in part or left over.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support.crash_suite import ALL_POINTS, CRASH_OPTIONS, FROZEN, CrashSuite, Kill, crash_environment
from support.end_to_end import NotInTime, managed_namespace
from support.pod_oracle import PodOracle, watching_pods
from support.recovery_pictures import recovery_picture

from fluxqueue.local.inprocess import InProcessCluster

IN_A_WAVE = 10
NAMES = (*map(str, ALL_POINTS), *(f"kill {what}" for what in Kill), FROZEN)


@dataclass
class Tally:
    """The sum of all runs that add to one report.

    Attributes
    ----------
    seeds
        The seed of each run.
    minutes, gangs, bound, changes
        Time taken, workloads applied, pods bound, changes of pods checked.
    times_s
        Recovery times, by point.
    missed
        Points that were provoked and not reached in time, and how often.
    wrong
        Each sentence once: the tables are checked from their beginning every time.
    """

    seeds: list[int] = field(default_factory=list)
    minutes: float = 0.0
    gangs: int = 0
    bound: int = 0
    changes: int = 0
    times_s: dict[str, list[float]] = field(default_factory=dict)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path | None) -> Tally:
        """Read the report of former runs; an empty one if there is none."""
        if path is None or not path.exists():
            return cls()
        report = json.loads(path.read_text())
        return cls(
            seeds=report["seeds"],
            minutes=report["minutes"],
            gangs=report["gang_starts"],
            bound=report["pods_bound"],
            changes=report["pod_changes_judged"],
            times_s=report["times_s"],
            missed=Counter(report["not_reached_in_time"]),
            wrong=report["violations"],
        )

    def tried(self, point: str) -> int:
        """Return how often a point was provoked."""
        return len(self.times_s.get(point, ())) + self.missed[point]

    def plus(self, suite: CrashSuite, oracle: PodOracle, wrong: list[str], seconds: float) -> Tally:
        """Return the sum of this and one run."""
        times = {point: [*each] for point, each in self.times_s.items()}
        for crash in suite.crashes:
            times.setdefault(crash.point, []).append(round(crash.recovery_s, 2))
        return Tally(
            [*self.seeds, suite.seed],
            round(self.minutes + seconds / 60, 1),
            self.gangs + suite.gangs,
            self.bound + oracle.bound,
            self.changes + oracle.changes,
            times,
            self.missed + suite.missed,
            list(dict.fromkeys([*self.wrong, *wrong])),
        )

    def report(self) -> dict[str, object]:
        """Return the report, from which a later run goes on."""
        times = sorted(itertools.chain.from_iterable(self.times_s.values()))
        return {
            "seeds": self.seeds,
            "minutes": self.minutes,
            "strikes": len(times),
            "gang_starts": self.gangs,
            "pods_bound": self.bound,
            "pod_changes_judged": self.changes,
            "violations": self.wrong,
            "recovery_s": {
                "p50": statistics.median(times),
                "p90": times[int(len(times) * 0.9)],
                "max": times[-1],
            }
            if times
            else {},
            "points": {point: summary(self.times_s[point]) for point in NAMES if point in self.times_s},
            "not_reached_in_time": dict(self.missed),
            "times_s": self.times_s,
        }


def run(options: argparse.Namespace, folder: Path) -> Tally:
    """Crash programs until every point was reached often enough, and return the sum of all runs."""
    began = time.monotonic()
    deadline = began + options.minutes * 60
    drawing = random.Random(options.seed)
    before = now = Tally.read(options.json)
    wrong: list[str] = []
    cluster = InProcessCluster(folder / "cluster", CRASH_OPTIONS, extra_environment=crash_environment(folder))
    with cluster, watching_pods(cluster) as oracle, managed_namespace(cluster, statements=False) as stage:
        suite = CrashSuite(stage, folder, options.seed, oracle)
        kills = list(Kill)
        try:
            while time.monotonic() < deadline:
                rarest = sorted(ALL_POINTS, key=lambda point: (now.tried(point), drawing.random()))
                if now.tried(rarest[0]) >= options.each and now.gangs >= options.starts:
                    break
                suite.apply_some(6)
                for point in rarest[:IN_A_WAVE]:
                    suite.crash_at(point)
                suite.kill(min(kills, key=lambda kill: (now.tried(f"kill {kill}"), drawing.random())))
                if now.tried(FROZEN) < len(now.seeds):
                    suite.freeze()
                wrong += suite.check(180)
                now = before.plus(suite, oracle, wrong, time.monotonic() - began)
                log_progress(
                    f"{len(suite.crashes)} crashes, {suite.gangs} gangs, {oracle.changes} changes of pods "
                    f"checked; wrong: {len(now.wrong)}"
                )
                keep(options, now)
        except NotInTime as error:
            now = before.plus(suite, oracle, [*wrong, str(error)], time.monotonic() - began)
            keep(options, now)
            raise
    return now


def keep(options: argparse.Namespace, tally: Tally) -> None:
    """Write the report and the picture, if requested.
    It is called after each wave, so an aborted run has a report too.
    """
    for path in filter(None, (options.json, options.svg)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if options.json:
        unfinished = options.json.with_suffix(".new")
        unfinished.write_text(json.dumps(tally.report(), indent=2) + "\n")
        unfinished.rename(options.json)
    if options.svg:
        points = {point: summary(tally.times_s[point]) for point in NAMES if point in tally.times_s}
        options.svg.write_text(
            recovery_picture(
                {
                    point: (each["p50_s"], each["max_s"], int(each["strikes"]))
                    for point, each in points.items()
                }
            )
        )


def summary(times: list[float]) -> dict[str, float]:
    """Return the number of crashes and their recovery times."""
    return {"strikes": len(times), "p50_s": round(statistics.median(times), 2), "max_s": round(max(times), 2)}


def log_progress(text: str) -> None:
    """Write the progress of a long run."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120, help="at most (default: %(default)s)")
    parser.add_argument("--each", type=int, default=20, help="crashes at each point (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=1000, help="gangs to start (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--json", type=Path, help="the report; the former runs in it count")
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    log_progress(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="fq-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        tally = run(options, folder)
    sys.stdout.write(json.dumps(tally.report(), indent=2) + "\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
