"""`fluxqueue simulate`: simulates scheduling policies on a trace, or on the present queue of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fluxqueue.api.topology import TopologyLevel
from fluxqueue.fluxion.errors import FluxionError
from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.kinds import FLUXACCOUNTS, FLUXJOBS, FLUXQUEUES, FLUXRESERVATIONS, NODES, PODS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.scheduling.policies.disciplines import Discipline
from fluxqueue.queue.simulator.added_nodes import with_more_nodes
from fluxqueue.queue.simulator.cluster_snapshot import ClusterSnapshot, SiteObjects, snapshot_of
from fluxqueue.queue.simulator.forecasts import forecast, forecast_table, under
from fluxqueue.queue.simulator.metrics import Summary, summarise
from fluxqueue.queue.simulator.options import (
    UsageError,
    add_options,
    check_options,
    discipline_of,
    levels_named,
    trace_of,
    with_moves,
    with_rules,
)
from fluxqueue.queue.simulator.pictures import occupancy_chart, utilisation_chart, waits_chart
from fluxqueue.queue.simulator.reports import accounts_table, as_csv, as_json, as_table
from fluxqueue.queue.simulator.simulated_guarantees import parse_guarantees
from fluxqueue.queue.simulator.simulated_shares import SimulatedShares, parse_accounts, with_accounts
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.simulation import Simulation
from fluxqueue.queue.simulator.swf import InvalidTrace
from fluxqueue.queue.simulator.traces import Trace

__all__ = ["main"]

_EXAMPLES = """examples:
  fluxqueue simulate --model lublin --jobs 50000 --nodes 256 --load 0.85 \\
      --policy fcfs --policy easy --seed 1 --json out.json
  fluxqueue simulate --trace SDSC-SP2.swf --policy easy --policy conservative:100 --pictures pictures/
  fluxqueue simulate --jobs 2000 --nodes 64 --overestimate 2:5
  fluxqueue simulate --jobs 5000 --nodes 64 --load 1.5 --policy easy \\
      --account physics=3 --account biology=1:10 --half-life 24
  fluxqueue simulate --from-cluster --policy conservative --add-nodes 10
"""
_DAY_S = 86_400
_HALF_LIFE_H = 168


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 if the command line or the trace is invalid."""
    options = _parser().parse_args(argv)
    if options.from_cluster:
        return _forecast_cluster(options)
    try:
        check_options(options)
        accounts = parse_accounts(options.account or [])
        guaranteed = parse_guarantees(options.guarantee or [], accounts)
        trace = trace_of(options)
        if accounts:
            trace = with_accounts(trace, accounts, options.seed)
        disciplines = dict(discipline_of(text) for text in options.policy or ["fcfs", "easy", "conservative"])
        disciplines = {name: with_rules(each, options) for name, each in disciplines.items()}
        disciplines |= with_moves(disciplines, options.consolidate)
    except (UsageError, InvalidTrace, ValueError) as error:
        sys.stderr.write(f"fluxqueue simulate: {error}\n")
        return 2
    shares = {name: number for name, (number, _) in accounts.items()}
    half_life_s = (options.half_life or _HALF_LIFE_H) * 3_600
    try:
        summaries, results = _simulate(
            trace,
            disciplines,
            options.match_policy,
            shares,
            half_life_s,
            guaranteed,
            among_users=options.among_users,
            checkpoint_s=options.checkpoint or 0,
        )
    except FluxionError as error:
        sys.stderr.write(f"fluxqueue simulate: {error}\n")
        return 2
    sys.stdout.write(as_table(trace, summaries))
    if accounts:
        sys.stdout.write(accounts_table(trace, shares, results))
    if options.json is not None:
        options.json.write_bytes(
            as_json(trace, options.seed if options.trace is None else None, summaries, results)
        )
    if options.csv is not None:
        options.csv.write_text(as_csv(summaries), encoding="utf-8")
    if options.pictures is not None:
        _draw(options.pictures, trace, results)
    return 0


def _forecast_cluster(options: argparse.Namespace) -> int:
    """Forecast the starts of a live installation, without changing anything in it."""
    try:
        of_traces = (
            "jobs",
            "nodes",
            "load",
            "overestimate",
            "preempt",
            "priority",
            "json",
            "csv",
            "pictures",
            "account",
            "half_life",
            "guarantee",
            "min_pods",
            "scatter",
            "checkpoint",
            "consolidate",
        )
        for name in of_traces:
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')} belongs to traces: "
                    "with --from-cluster the work is what waits there now"
                )
        disciplines = dict(discipline_of(text) for text in options.policy or [])
        snapshot = asyncio.run(
            _read(options.kubeconfig, options.context, levels_named(options.topology_level or []))
        )
        plans = {"as it is": snapshot}
        plans.update((name, under(snapshot, each.policy, each.depth)) for name, each in disciplines.items())
        if options.add_nodes is not None:
            plans.update(
                {
                    f"{name}, +{options.add_nodes}": with_more_nodes(plan, options.add_nodes)
                    for name, plan in plans.items()
                }
            )
        forecasts = {name: asyncio.run(forecast(plan, options.match_policy)) for name, plan in plans.items()}
    except (UsageError, ValueError, NoConfiguration, ApiError, FluxionError) as error:
        sys.stderr.write(f"fluxqueue simulate: {error}\n")
        return 2
    sys.stdout.write(forecast_table(snapshot, forecasts))
    return 0


async def _read(
    kubeconfig: str | None, context: str | None, levels: Sequence[TopologyLevel]
) -> ClusterSnapshot:
    """The present state of an installation."""
    async with Api.connect(kubeconfig, context, user_agent="fluxqueue/simulate") as api:
        nodes, pods, fluxjobs = await asyncio.gather(api.list(NODES), api.list(PODS), api.list(FLUXJOBS))
        queues, accounts, reservations = await asyncio.gather(
            api.list(FLUXQUEUES), api.list(FLUXACCOUNTS), api.list(FLUXRESERVATIONS)
        )
    return snapshot_of(
        nodes, pods, fluxjobs, SiteObjects(queues, accounts, reservations), datetime.now(UTC), levels
    )


def _simulate(
    trace: Trace,
    disciplines: dict[str, Discipline],
    match_policy: str,
    shares: dict[str, int],
    half_life_s: float,
    guaranteed: dict[str, int],
    *,
    among_users: bool,
    checkpoint_s: int,
) -> tuple[dict[str, Summary], dict[str, Sequence[SimulatedJob]]]:
    summaries: dict[str, Summary] = {}
    results: dict[str, Sequence[SimulatedJob]] = {}
    counted = TextColumn("{task.completed:.0f} of {task.total:.0f} jobs")
    columns = (TextColumn("{task.description:<16}"), BarColumn(), counted, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        for name, discipline in disciplines.items():
            bar = bars.add_task(name, total=len(trace.jobs))
            simulated_shares = (
                SimulatedShares(shares, half_life_s, among_users=among_users) if shares else None
            )
            simulation = Simulation(
                trace,
                discipline,
                match_policy,
                shares=simulated_shares,
                guaranteed=guaranteed,
                checkpoint_s=checkpoint_s,
            )
            began = time.perf_counter()
            # mypy cannot infer a lambda with a default
            run = simulation.run(lambda ended, bar=bar: bars.update(bar, completed=ended))  # type: ignore[misc]
            results[name] = asyncio.run(run)
            seconds = time.perf_counter() - began
            summaries[name] = summarise(
                results[name], trace.nodes, cycles=simulation.cycles, seconds=seconds, cores=trace.cores
            )
    return summaries, results


def _draw(folder: Path, trace: Trace, results: dict[str, Sequence[SimulatedJob]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "utilisation.svg").write_text(utilisation_chart(results, trace.nodes), encoding="utf-8")
    (folder / "waits.svg").write_text(waits_chart(results), encoding="utf-8")
    for name, ran in results.items():
        until = min(_DAY_S, max(each.end_s for each in ran))
        chart = occupancy_chart(
            ran, trace.nodes, until, f"{name}: jobs on nodes, framed if they had a reservation"
        )
        (folder / f"occupancy-{name.replace(':', '-')}.svg").write_text(chart, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue simulate",
        description=(
            "Run the queue's policies and its matcher over a workload, on a virtual clock, "
            "and compare what they come to."
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    return parser
