"""The long form of the crash suite: a thousand gang starts, every crash point again and again, and what came of it as JSON and a picture.

``make test-faults-long``, or ``PYTHONPATH=tests python tests/faults/long_form.py --minutes 25 --seed 7 --json FILE --svg FILE``. It ends
when every point was struck often enough and enough was started, or when its time is up. What FILE tells of former runs counts, so several
short runs make a long one. The exit status is 1 if anything was lost, booked twice, released in part or left over.
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

from crash_suite import Blow, CrashSuite, crash_environment
from end_to_end import NotInTime, managed_namespace
from pod_oracle import PodOracle, watching_pods
from strike_pictures import recovery_picture

from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions
from fluxqueue.queue.crashpoints import Point

IN_A_WAVE = 10
PLACES = (*map(str, Point), *(f"kill {what}" for what in Blow))


@dataclass
class Tally:
    """What all runs that add to one report have done together.

    Attributes
    ----------
    seeds
        Of each run.
    minutes, gangs, bound, changes
        Time taken, workloads applied, pods bound, changes of pods judged.
    times_s
        Recovery times by what was struck.
    missed
        Points that were provoked and not reached in time, and how often.
    wrong
        Each sentence once: the tables are judged from their beginning every time.
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
        """What former runs have left, nothing if there were none."""
        if path is None or not path.exists():
            return cls()
        found = json.loads(path.read_text())
        return cls(
            seeds=found["seeds"],
            minutes=found["minutes"],
            gangs=found["gang_starts"],
            bound=found["pods_bound"],
            changes=found["pod_changes_judged"],
            times_s=found["times_s"],
            missed=Counter(found["not_reached_in_time"]),
            wrong=found["violations"],
        )

    def tried(self, point: str) -> int:
        """How often a point was provoked."""
        return len(self.times_s.get(point, ())) + self.missed[point]

    def plus(self, suite: CrashSuite, oracle: PodOracle, wrong: list[str], seconds: float) -> Tally:
        """This, and what one run has done so far."""
        times = {point: [*each] for point, each in self.times_s.items()}
        for strike in suite.strikes:
            times.setdefault(strike.point, []).append(round(strike.recovery_s, 2))
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
        """What is to be told, and what a later run goes on from."""
        times = sorted(itertools.chain.from_iterable(self.times_s.values()))
        return {
            "seeds": self.seeds,
            "minutes": self.minutes,
            "strikes": len(times),
            "gang_starts": self.gangs,
            "pods_bound": self.bound,
            "pod_changes_judged": self.changes,
            "violations": self.wrong,
            "recovery_s": {"p50": statistics.median(times), "p90": times[int(len(times) * 0.9)], "max": times[-1]} if times else {},
            "points": {point: summary(self.times_s[point]) for point in PLACES if point in self.times_s},
            "not_reached_in_time": dict(self.missed),
            "times_s": self.times_s,
        }


def run(options: argparse.Namespace, folder: Path) -> Tally:
    """Strike until it is enough; what was done in all."""
    began = time.monotonic()
    deadline = began + options.minutes * 60
    drawing = random.Random(options.seed)
    before = now = Tally.read(options.json)
    wrong: list[str] = []
    plane = InProcessPlane(folder / "plane", PlaneOptions(nodes=4, durable=False, audit=True), extra_environment=crash_environment(folder))
    with plane, watching_pods(plane) as oracle, managed_namespace(plane) as stage:
        suite = CrashSuite(stage, folder, options.seed, oracle)
        blows = list(Blow)
        try:
            while time.monotonic() < deadline:
                rarest = sorted(Point, key=lambda point: (now.tried(point), drawing.random()))
                if now.tried(rarest[0]) >= options.each and now.gangs >= options.starts:
                    break
                suite.apply_some(6)
                for point in rarest[:IN_A_WAVE]:
                    suite.strike(point)
                suite.blow(min(blows, key=lambda blow: (now.tried(f"kill {blow}"), drawing.random())))
                wrong += suite.judge(180)
                now = before.plus(suite, oracle, wrong, time.monotonic() - began)
                said(f"{len(suite.strikes)} strikes, {suite.gangs} gangs, {oracle.changes} changes of pods judged; wrong: {len(now.wrong)}")
                keep(options, now)
        except NotInTime as error:
            now = before.plus(suite, oracle, [*wrong, str(error)], time.monotonic() - began)
            keep(options, now)
            raise
    return now


def keep(options: argparse.Namespace, tally: Tally) -> None:
    """Write the report and the picture, as far as they are asked for: after each wave, so that a run broken off has told something."""
    for path in filter(None, (options.json, options.svg)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if options.json:
        unfinished = options.json.with_suffix(".new")
        unfinished.write_text(json.dumps(tally.report(), indent=2) + "\n")
        unfinished.rename(options.json)
    if options.svg:
        points = {point: summary(tally.times_s[point]) for point in PLACES if point in tally.times_s}
        options.svg.write_text(
            recovery_picture({point: (each["p50_s"], each["max_s"], int(each["strikes"])) for point, each in points.items()})
        )


def summary(times: list[float]) -> dict[str, float]:
    """How often, and how long."""
    return {"strikes": len(times), "p50_s": round(statistics.median(times), 2), "max_s": round(max(times), 2)}


def said(text: str) -> None:
    """Progress of a run that takes long."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120, help="at most (default: %(default)s)")
    parser.add_argument("--each", type=int, default=20, help="strikes at each point (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=1000, help="gangs to start (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--json", type=Path, help="the report; what it tells of former runs counts")
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    said(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="fq-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        found = run(options, folder)
    sys.stdout.write(json.dumps(found.report(), indent=2) + "\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
