"""The options of `fluxqueue simulate`, and the trace and the policies that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fluxqueue.api.fluxqueues import (
    BackfillDurations,
    Consolidation,
    Planning,
    Policy,
    Preemption,
    PreemptionRules,
    ReservedNodes,
)
from fluxqueue.api.topology import DEFAULT_LEVELS, InvalidTopology, TopologyLevel, levels_of
from fluxqueue.queue.scheduling.policies.disciplines import DEFAULT_DEPTH, Discipline
from fluxqueue.queue.simulator.lublin import lublin_trace
from fluxqueue.queue.simulator.swf import read_swf
from fluxqueue.queue.simulator.traces import Trace

__all__ = [
    "UsageError",
    "add_options",
    "check_options",
    "discipline_of",
    "levels_named",
    "trace_of",
    "with_moves",
    "with_rules",
]

_LOADS = (0.001, 1000.0)
_LARGEST_FACTOR = 10_000


class UsageError(Exception):
    """The command line is invalid."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that do not belong to a trace, and files that cannot be written.

    Raises
    ------
    UsageError
    """
    if options.add_nodes is not None:
        raise UsageError("--add-nodes belongs to --from-cluster: a trace's machine has --nodes")
    if options.topology_level:
        raise UsageError("--topology-level belongs to --from-cluster: the jobs of a trace ask for no level")
    if options.chains and options.trace is None:
        raise UsageError("--chains belongs to --trace: the jobs of the model wait for no others")
    if options.half_life is not None and not options.account:
        raise UsageError("--half-life belongs to --account: without accounts no use is counted")
    if options.among_users and not (options.account and options.trace):
        raise UsageError(
            "--among-users belongs to --account and --trace: the jobs of the model have no users"
        )
    for path in (options.json, options.csv):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            why = "it is a directory" if path.is_dir() else f"there is no directory {path.parent}"
            raise UsageError(f"{path} cannot be written: {why}")
    if options.pictures is not None and options.pictures.exists() and not options.pictures.is_dir():
        raise UsageError(f"--pictures {options.pictures}: it is a file: name a directory")


def trace_of(options: argparse.Namespace) -> Trace:
    """Return the trace that is read or made."""
    if options.trace is not None:
        processors, size = options.processors_per_node, options.nodes
        trace = read_swf(
            options.trace,
            processors_per_node=processors,
            nodes=size,
            limit=options.jobs,
            chains=options.chains,
        )
    else:
        trace = lublin_trace(options.jobs or 10_000, options.nodes or 256, options.seed)
    if options.load is not None:
        if not _LOADS[0] <= options.load <= _LOADS[1]:
            raise UsageError(
                f"--load {options.load:g}: a load must be above 0: "
                f"write one from {_LOADS[0]:g} to {_LOADS[1]:g}"
            )
        trace = trace.scaled(options.load)
    if options.overestimate is not None:
        trace = trace.overestimated(*_range(options.overestimate), options.seed)
    if options.min_pods is not None:
        trace = trace.moldable(options.min_pods)
    if options.scatter is not None:
        trace = trace.scattered(options.scatter)
    return _prioritised(trace, options.priority) if options.priority else trace


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        factors = float(low), float(high or low)
    except ValueError:
        factors = 0.0, 0.0
    if not 1.0 <= factors[0] <= factors[1] <= _LARGEST_FACTOR:
        message = (
            "two factors such as 2:5 are needed, the first at least 1 and not above the second, "
            f"which is at most {_LARGEST_FACTOR:,}"
        )
        raise UsageError(f"--overestimate {text}: {message}")
    return factors


def levels_named(texts: Sequence[str]) -> Sequence[TopologyLevel]:
    """Return the levels of the topology that the command line names; the default ones if it names none."""
    try:
        return levels_of(texts) or DEFAULT_LEVELS
    except InvalidTopology as error:
        raise UsageError(f"--topology-level: {error}") from None


def discipline_of(text: str) -> tuple[str, Discipline]:
    """Return a policy by what its option says, under this text."""
    name, _, depth = text.partition(":")
    if name not in set(Policy):
        raise UsageError(
            f"--policy {text}: there is no policy {name!r}: choose fcfs, easy, "
            "hybrid:DEPTH or conservative:DEPTH"
        )
    if depth and (
        name not in (Policy.HYBRID, Policy.CONSERVATIVE) or not depth.isdecimal() or int(depth) < 1
    ):
        raise UsageError(f"--policy {text}: a depth of at least 1 is for hybrid and conservative only")
    return text, Discipline(Policy(name), int(depth) if depth else DEFAULT_DEPTH)


def with_rules(discipline: Discipline, options: argparse.Namespace) -> Discipline:
    """Return the discipline with time limits and preemption, if they are asked for."""
    planning = Planning(
        reserved_nodes=ReservedNodes.FREE_LAST if options.free_last else ReservedNodes.MATCH_POLICY,
        backfill_durations=BackfillDurations.PREDICTED if options.predict else BackfillDurations.STATED,
    )
    discipline = replace(discipline, enforces_duration=options.enforce_duration, planning=planning)
    if options.preempt is None:
        return discipline
    least, _, grace = options.preempt.partition(":")
    if not least.isdecimal() or not (grace or "0").isdecimal():
        raise UsageError(
            f"--preempt {options.preempt}: seconds such as 600:120 are needed: the least run time, "
            "and the grace"
        )
    rules = PreemptionRules(min_run_seconds=int(least), grace_seconds=int(grace or "0"))
    return replace(discipline, preemption=Preemption.LOWER_PRIORITY, preemption_rules=rules)


def with_moves(disciplines: Mapping[str, Discipline], text: str | None) -> dict[str, Discipline]:
    """Return the disciplines that make reservations, by another name, with consolidation as it is asked
    for.
    """
    if text is None:
        return {}
    lost, _, again = text.partition(":")
    if not lost.isdecimal() or not (again or "0").isdecimal():
        raise UsageError(
            f"--consolidate {text}: seconds such as 1800:3600 are needed: the most that a job may lose, and "
            "for how long what was moved is left alone"
        )
    rules = Consolidation(enabled=True, max_lost_seconds=int(lost), again_after_seconds=int(again or "3600"))
    return {
        f"{name}+moves": replace(each, consolidation=rules)
        for name, each in disciplines.items()
        if each.reserves
    }


def _prioritised(trace: Trace, texts: Sequence[str]) -> Trace:
    """Return the trace with a priority for each of these sizes:
    jobs of at most so many nodes have it, the first that fits.
    """
    bounds: list[tuple[int, int]] = []
    for text in texts:
        nodes, _, priority = text.partition("=")
        if not nodes.isdecimal() or not priority.lstrip("-").isdecimal():
            raise UsageError(f"--priority {text}: write NODES=PRIORITY, 4=10 for jobs of at most 4 nodes")
        bounds.append((int(nodes), int(priority)))
    bounds.sort()
    jobs = (
        replace(job, priority=next((priority for nodes, priority in bounds if job.nodes <= nodes), 0))
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options."""
    _add_work_options(parser)
    _add_machine_options(parser)
    _add_account_options(parser)
    _add_rule_options(parser)
    parser.add_argument(
        "--match-policy", default="lonode", metavar="NAME", help="how Fluxion chooses nodes (default lonode)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of everything that is random (default 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write summaries and every job")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write summaries")
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="DIR",
        help="draw utilisation, waits by size and the first day's occupancy (SVG)",
    )


def _add_rule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="fcfs, easy, hybrid:DEPTH or conservative:DEPTH; may be repeated",
    )
    parser.add_argument(
        "--enforce-duration",
        action="store_true",
        help="end jobs at the end of their duration (spec.enforceDuration)",
    )
    parser.add_argument(
        "--free-last",
        action="store_true",
        help="reserve the nodes that become free last (planning.reservedNodes)",
    )
    parser.add_argument(
        "--predict", action="store_true", help="backfill by predicted durations (planning.backfillDurations)"
    )
    parser.add_argument(
        "--preempt",
        metavar="LEAST:GRACE",
        help="preempt for higher priority: least run time and grace in seconds",
    )
    parser.add_argument(
        "--min-pods",
        type=_percent,
        metavar="PERCENT",
        help="let jobs start with this part of their nodes, and grow",
    )
    parser.add_argument(
        "--scatter",
        type=_positive,
        metavar="CORES",
        help="nodes have so many cores: jobs of one node take one core, others whole nodes",
    )
    parser.add_argument(
        "--consolidate",
        metavar="LOST[:AGAIN]",
        help=(
            "also try each policy with consolidation: the most that a job may lose, and for how long what "
            "was moved is left alone (default 3600), in seconds"
        ),
    )
    parser.add_argument(
        "--checkpoint",
        type=_positive,
        metavar="SECONDS",
        help="each job saves so often, and goes on from there if it is moved or preempted",
    )
    parser.add_argument(
        "--priority",
        action="append",
        metavar="NODES=N",
        help="priority of jobs of at most so many nodes; may be repeated",
    )


def _add_account_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--account",
        action="append",
        metavar="NAME=SHARES[:PART]",
        help=(
            "an account with shares, that submits this part of the jobs (default 1); "
            "fair share decides the order; may be repeated"
        ),
    )
    parser.add_argument(
        "--half-life",
        type=_positive,
        metavar="HOURS",
        help="with --account: when use counts half (default 168, 7 days)",
    )
    parser.add_argument(
        "--among-users",
        action="store_true",
        help="with --account: who used less of an account comes first in it",
    )
    parser.add_argument(
        "--guarantee",
        action="append",
        metavar="NAME=NODES",
        help=(
            "nodes that are guaranteed to an --account: its jobs within them come first, "
            "with --preempt others are preempted for them"
        ),
    )


def _add_work_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--model",
        choices=["lublin"],
        default="lublin",
        help="make a workload (Lublin and Feitelson 2003); the default",
    )
    source.add_argument(
        "--trace", type=Path, metavar="FILE.swf", help="read one in the Standard Workload Format"
    )
    source.add_argument(
        "--from-cluster",
        action="store_true",
        help="take nodes and queue of a live installation, and say who would start when (read-only)",
    )
    parser.add_argument(
        "--add-nodes",
        type=_positive,
        metavar="N",
        help="with --from-cluster: also plan with this many nodes more",
    )
    parser.add_argument(
        "--topology-level",
        action="append",
        metavar="NAME=LABEL",
        help=(
            "with --from-cluster: a level, from the top down, where queue.config.topologyLevels is set "
            "(default zone, block and rack)"
        ),
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="with --from-cluster: as kubectl's")
    parser.add_argument("--context", metavar="NAME", help="with --from-cluster: as kubectl's")


def _add_machine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="jobs to make (default 10000), or to read at most"
    )
    parser.add_argument(
        "--nodes",
        type=_positive,
        metavar="N",
        help="size of the machine (default 256, or what the trace says)",
    )
    parser.add_argument(
        "--processors-per-node",
        type=_positive,
        default=1,
        metavar="N",
        help="of the trace's machine (default 1)",
    )
    parser.add_argument(
        "--chains",
        action="store_true",
        help="with --trace: let jobs wait for the job before them that they name",
    )
    parser.add_argument(
        "--load",
        type=float,
        metavar="X",
        help="stretch the times of submission to this offered load, 0.85 for example",
    )
    parser.add_argument(
        "--overestimate",
        metavar="LOW:HIGH",
        help="let jobs ask for this many times what they take, 2:5 for example",
    )


def _percent(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 100")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
