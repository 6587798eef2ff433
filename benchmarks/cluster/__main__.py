"""Run scenarios for contenders in turn, and write a report:
``python -m cluster`` in the folder ``benchmarks``, or `make bench-cluster`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from pathlib import Path

import structlog

from cluster.contenders import CONTENDERS
from cluster.meters import idle_share, read_machine
from cluster.report import markdown
from cluster.runs import Results, Run, checked_out_commit, planned
from cluster.scenarios import SCENARIOS, run_scenario

_RESULTS = Path(__file__).parents[1] / "results"
_DEFAULT = ("plain", "fluxqueue", "kueue", "kueue-tuned")
_SCENARIOS = tuple(name for name in SCENARIOS if not name.startswith("check-"))
_LEAST_IDLE = 0.9
_IDLE_WITHIN_S = 120.0
_MOST_STOLEN = 0.1
_ATTEMPTS = 3


def main() -> int:
    """Run, write the results and print the report; 1 if the machine is busy or a run failed."""
    arguments = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        results = Results(arguments.json, arguments.scale, checked_out_commit(), resumed=arguments.resume)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.render:
        results.document = json.loads(arguments.json.read_text())
    else:
        runs = list(planned(arguments.scenario, arguments.contender, arguments.rounds))
        results.restart_stale(runs)
        for run in runs:
            if results.has(run):
                continue
            if not arguments.busy and not _idle():
                print(
                    "this machine is busy: end what else runs and pass --resume, or pass --busy",
                    file=sys.stderr,
                )
                return 1
            _perform(run, results, arguments.scale, arguments.json.parent / "profiles")
    if (requests := arguments.json.with_name("request_costs.json")).exists() and not arguments.render:
        results.add_requests(json.loads(requests.read_text()))
    report = markdown(results.document)
    arguments.json.with_suffix(".md").write_text(report)
    print(report)
    return 1 if results.document["failures"] else 0


def _perform(run: Run, results: Results, scale: float, profiles: Path) -> None:
    """Run once. A failure is noted, and the others follow.

    A run during which the host of this machine took more than a tenth of a core is repeated, at most twice.
    The least disturbed run counts.
    """
    began = time.monotonic()
    outcomes = []
    try:
        for _ in range(_ATTEMPTS):
            outcomes.append(
                asyncio.run(run_scenario(run.scenario, run.contender, scale=scale, profiles=profiles))
            )
            if outcomes[-1].stolen_share <= _MOST_STOLEN:
                break
        outcome = min(outcomes, key=lambda each: each.stolen_share)
    except Exception as error:
        results.add_failure(run, f"{type(error).__name__}: {error}"[:2_000])
        text = f"failed: {type(error).__name__}: {error}"
    else:
        results.add(run, outcome.document())
        text = ", ".join(f"{key} {value:.3g}" for key, value in outcome.figures.items())
        if outcome.wait_quantiles_s:
            text += f", p50 {outcome.wait_quantiles_s[50]:.3g} s"
        text += f", stolen {outcome.stolen_share:.0%} of a core, attempt {len(outcomes)}"
    print(
        f"{run.scenario} {run.round + 1} {run.contender} ({time.monotonic() - began:.0f} s): {text}",
        file=sys.stderr,
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    parser.add_argument(
        "--scenario", nargs="+", choices=tuple(SCENARIOS), default=list(_SCENARIOS), help="default: all"
    )
    parser.add_argument(
        "--contender",
        nargs="+",
        choices=CONTENDERS,
        default=list(_DEFAULT),
        help=f"default: {' '.join(_DEFAULT)}",
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="rounds of each scenario, fewer of the longest (default: 4)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of Jobs (default: 1)")
    parser.add_argument(
        "--busy", action="store_true", help="measure on a busy machine too: only counts mean anything then"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what the file has, and run what is missing"
    )
    parser.add_argument(
        "--render", action="store_true", help="run nothing: write the report of the file again"
    )
    parser.add_argument("--json", type=Path, default=_RESULTS / "cluster.json")
    return parser.parse_args()


def _idle() -> bool:
    """Wait until the machine is idle for three seconds, for at most two minutes."""
    deadline = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < deadline:
        before = read_machine()
        time.sleep(3)
        if idle_share(before, read_machine()) >= _LEAST_IDLE:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
