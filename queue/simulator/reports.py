"""Results of simulations: a table for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fluxqueue.queue.simulator.metrics import Summary
from fluxqueue.queue.simulator.simulated_work import SimulatedJob
from fluxqueue.queue.simulator.traces import Trace

__all__ = ["accounts_table", "as_csv", "as_json", "as_table"]

_COLUMNS = (
    ("policy", 16),
    ("utilisation", 11),
    ("mean wait", 12),
    ("median wait", 12),
    ("slowdown", 10),
    ("promised", 9),
    ("late", 6),
    ("eta error", 9),
    ("in range", 8),
    ("took", 8),
)


def as_table(trace: Trace, summaries: Mapping[str, Summary]) -> str:
    """Return a table with one line for each policy, under a line about the trace."""
    lines = [
        (
            f"{trace.name}: {len(trace.jobs)} jobs on {trace.nodes} nodes, offered load {trace.load:.1%}, "
            f"{trace.span_s / 86_400:.1f} days"
        )
    ]
    lines += [f"  left out: {count} jobs: {reason}" for reason, count in trace.left_out]
    lines += [
        "",
        "  ".join(
            name.rjust(width) if index else name.ljust(width) for index, (name, width) in enumerate(_COLUMNS)
        ),
    ]
    for name, each in summaries.items():
        cells = (
            name,
            f"{each.utilisation:.1%}",
            _duration(each.mean_wait_s),
            _duration(each.median_wait_s),
            f"{each.mean_bounded_slowdown:.1f}",
            str(each.promised),
            str(each.reserved_late),
            "-" if each.eta_error is None else f"{each.eta_error:.1%}",
            "-" if each.eta_in_range is None else f"{each.eta_in_range:.1%}",
            f"{each.seconds:.0f} s",
        )
        paired = zip(cells, _COLUMNS, strict=True)
        lines.append(
            "  ".join(
                cell.rjust(width) if index else cell.ljust(width)
                for index, (cell, (_, width)) in enumerate(paired)
            )
        )
    lines += [
        f"{name}: {each.limited} jobs reached their time limit"
        for name, each in summaries.items()
        if each.limited
    ]
    lines += [
        f"{name}: {each.molded} jobs started with fewer nodes"
        for name, each in summaries.items()
        if each.molded
    ]
    lines += [
        f"{name}: jobs of more than one node waited {_duration(each.wide_median_wait_s)} (median), "
        f"jobs were moved {each.moves} times"
        for name, each in summaries.items()
        if any(other.moves for other in summaries.values())
    ]
    lines += [
        f"{name}: jobs were preempted {each.preemptions} times and gave {each.gave_back} nodes back, "
        f"{each.lost_node_s / 3_600:.1f} node-hours lost"
        for name, each in summaries.items()
        if each.preemptions or each.gave_back
    ]
    return "\n".join(lines) + "\n"


def accounts_table(
    trace: Trace, shares: Mapping[str, int], results: Mapping[str, Sequence[SimulatedJob]]
) -> str:
    """Return a table of accounts: their part of the shares, of the work that was submitted, and of the use
    under each policy.

    Use counts until the last submission: later there is nothing left to choose from.
    """
    until = trace.jobs[-1].submit_s if trace.jobs else 0
    total = sum(shares.values()) or 1
    header = [
        "account".ljust(16),
        "shares".rjust(8),
        "share".rjust(8),
        "submitted".rjust(10),
        *(name.rjust(16) for name in results),
    ]
    lines = ["", "  ".join(header)]
    submitted = Counter[str]()
    for job in trace.jobs:
        submitted[job.account] += job.nodes * job.runtime_s
    used = {name: _use_by_account(ran, until) for name, ran in results.items()}
    for account, number in shares.items():
        cells = [
            account.ljust(16),
            str(number).rjust(8),
            f"{number / total:.1%}".rjust(8),
            _part(submitted, account).rjust(10),
        ]
        lines.append("  ".join([*cells, *(_part(each, account).rjust(16) for each in used.values())]))
    return "\n".join(lines) + "\n"


def _use_by_account(ran: Sequence[SimulatedJob], until: int) -> Counter[str]:
    used = Counter[str]()
    for each in ran:
        used[each.job.account] += max(min(each.end_s, until) - each.start_s, 0) * each.job.nodes
    return used


def _part(of: Counter[str], account: str) -> str:
    return f"{of[account] / (sum(of.values()) or 1):.1%}"


def as_csv(summaries: Mapping[str, Summary]) -> str:
    """Return CSV with a row for each policy and a column for each figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["policy", *Summary.__struct_fields__])
    for name, each in summaries.items():
        writer.writerow([name, *("" if value is None else value for value in msgspec.structs.astuple(each))])
    return text.getvalue()


def as_json(
    trace: Trace,
    seed: int | None,
    summaries: Mapping[str, Summary],
    results: Mapping[str, Sequence[SimulatedJob]],
) -> bytes:
    """Return JSON with a summary for each policy, and submit, start and end of each job in seconds."""
    document: dict[str, Any] = {
        "trace": trace.name,
        "nodes": trace.nodes,
        "jobs": len(trace.jobs),
        "load": trace.load,
        "seed": seed,
        "left_out": dict(trace.left_out),
        "policies": {
            name: {"summary": summary, "jobs": [_job(each) for each in results[name]]}
            for name, summary in summaries.items()
        },
    }
    return msgspec.json.encode(document) + b"\n"


def _job(ran: SimulatedJob) -> dict[str, int | None]:
    return {
        "job": ran.job.number,
        "nodes": ran.job.nodes,
        "requested": ran.job.requested_s,
        "submit": ran.job.submit_s,
        "start": ran.start_s,
        "end": ran.end_s,
        "first_promise": ran.first_reserved_start_s,
    }


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 4 * 86_400 else f"{seconds / 86_400:.1f} d"
