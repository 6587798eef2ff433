"""The long form of the crash suite: a thousand gang starts, every crash point again and again, and what came of it as JSON and a picture.

``make test-faults-long``, or ``python tests/faults/long_form.py --minutes 25 --seed 7 --json FILE --svg FILE``. It ends when every point
was struck often enough and enough was started, or when its time is up, and says which it was. Its exit status is 1 if anything was lost,
booked twice, released in part or left over.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from crash_suite import Blow, CrashSuite, Strike, crash_environment
from end_to_end import managed_namespace
from pod_oracle import watching_pods
from strike_pictures import recovery_picture

from fluxqueue.local.inprocess import InProcessPlane, PlaneOptions
from fluxqueue.queue.crashpoints import Point

IN_A_WAVE = 6


def run(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Strike until it is enough; the report."""
    deadline = time.monotonic() + options.minutes * 60
    began = time.monotonic()
    drawing = random.Random(options.seed)
    wrong: list[str] = []  # each sentence once: the tables are judged from their beginning every time
    plane = InProcessPlane(folder / "plane", PlaneOptions(nodes=4, durable=False, audit=True), extra_environment=crash_environment(folder))
    with plane, watching_pods(plane) as oracle, managed_namespace(plane) as stage:
        suite = CrashSuite(stage, folder, options.seed, oracle)
        tried: Counter[str] = Counter()
        blows, next_blows = list(Blow), 0
        while time.monotonic() < deadline:
            rarest = sorted(Point, key=lambda point: (tried[point], drawing.random()))
            if tried[rarest[0]] >= options.each and suite.gangs >= options.starts:
                break
            suite.apply_some(6)
            for point in rarest[:IN_A_WAVE]:
                suite.strike(point)
                tried[point] += 1
            if next_blows % 2 == 0:
                suite.blow(blows[next_blows // 2 % len(blows)])
            next_blows += 1
            wrong = list(dict.fromkeys([*wrong, *suite.judge(180)]))
            said(f"{len(suite.strikes)} strikes, {suite.gangs} gangs, {oracle.changes} changes of pods judged; wrong: {len(wrong)}")
            keep(options, report(options, suite, oracle.changes, oracle.bound, wrong, time.monotonic() - began))
        return report(options, suite, oracle.changes, oracle.bound, wrong, time.monotonic() - began)


def keep(options: argparse.Namespace, found: dict[str, object]) -> None:
    """Write the report and the picture, as far as they are asked for: after each wave, so that a run broken off has told something."""
    for path in filter(None, (options.json, options.svg)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.svg:
        points = found["points"]
        assert isinstance(points, dict)
        options.svg.write_text(recovery_picture({point: (each["p50_s"], each["max_s"], each["strikes"]) for point, each in points.items()}))


def report(options: argparse.Namespace, suite: CrashSuite, changes: int, bound: int, wrong: list[str], seconds: float) -> dict[str, object]:
    """What is to be told."""
    times = sorted(strike.recovery_s for strike in suite.strikes)
    return {
        "seed": options.seed,
        "minutes": round(seconds / 60, 1),
        "strikes": len(suite.strikes),
        "gang_starts": suite.gangs,
        "pods_bound": bound,
        "pod_changes_judged": changes,
        "violations": wrong,
        "recovery_s": {"p50": statistics.median(times), "p90": times[int(len(times) * 0.9)], "max": times[-1]} if times else {},
        "points": {point: summary(of) for point, of in by_point(suite.strikes).items()},
        "not_reached_in_time": dict(suite.missed),
    }


def by_point(strikes: list[Strike]) -> dict[str, list[float]]:
    """Recovery times of each point that was struck, in the order of the points."""
    places = [*map(str, Point), *(f"kill {what}" for what in Blow)]
    return {point: times for point in places if (times := [strike.recovery_s for strike in strikes if strike.point == point])}


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
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    said(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="fq-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        found = run(options, folder)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
