"""The report of a comparison as Markdown: goals, the short table of the README,
and a table of each scenario.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.goals import verdicts
from cluster.summary import FLUXQUEUE, PLAIN, Figure, Summary

__all__ = ["PICTURES", "answers", "goals", "markdown", "measurements", "speed_table"]

PICTURES: Mapping[str, str] = {
    "cluster-rates.svg": "Jobs started in a second, by burst",
    "cluster-waits.svg": "Wait of the Jobs of a burst of 600",
    "cluster-cpu.svg": "CPU time of one Job, by program",
}
_TITLES = {
    "idle": "No work, for 60 s, a minute after the start",
    "burst-300": "A burst of 300 Jobs",
    "burst-600": "A burst of 600 Jobs",
    "burst-2000": "A burst of 2,000 Jobs",
    "burst-10000": "A burst of 10,000 Jobs",
    "gangs-100x8": "100 Indexed Jobs of 8 pods",
    "gangs-20x100": "20 Indexed Jobs of 100 pods",
    "gangs-2x2000": "2 Indexed Jobs of 2,000 pods",
    "gangs-1x10000": "An Indexed Job of 10,000 pods",
    "steady-10": "10 Jobs a second for 3 minutes",
    "steady-20": "20 Jobs a second for 3 minutes",
    "backlog-10000": (
        "10,000 pending Jobs behind a full cluster; waits are from a node that becomes free to the next pod "
        "bound"
    ),
    "baseline-3000": "Kueue's baseline scenario, 30 queues, 3,000 Workloads as Jobs",
    "baseline-15000": "Kueue's baseline scenario, 30 queues, 15,000 Workloads as Jobs",
    "clogging": "Clogging: 100 Jobs of 2 to 6 pods of a whole node each, on 8 nodes",
    "profile-600": (
        "CPU time of the API server during a burst of 600 Jobs, by area of its code (areas overlap)"
    ),
}
_LABELS = {
    "jobs_per_s": "Jobs/s, create to bound",
    "pods_per_s": "pods/s, create to bound",
    "wait_p50_s": "wait p50, s",
    "wait_p99_s": "wait p99, s",
    "makespan_s": "all ended after, s",
    "created_after_s": "all created after, s",
    "restarted": "pods bound again after preemption",
    "small_mean_wait_s": "mean wait, priority 50 (1 CPU), s",
    "medium_mean_wait_s": "mean wait, priority 100 (5 CPUs), s",
    "large_mean_wait_s": "mean wait, priority 200 (20 CPUs), s",
    "inversions": "pairs of sizes that wait in the wrong order",
    "finished": "Jobs finished",
    "partial_starts": "partial starts",
    "mean_turnaround_s": "mean turnaround of those that finished, s",
    "created_per_s": "Jobs created/s",
    "settled_s": "writing ended after the last creation, s",
    "writes": "objects written per Job",
    "events": "Events written per Job",
    "pod_cpu_ms": "CPU per pod, ms",
    "pod_server_cpu_ms": "CPU per pod of the API server, ms",
    "cpu_ms": "CPU per Job, ms",
    "cpu_percent": "CPU, % of a core",
}
_LAST = ("writes", "events", "pod_cpu_ms", "pod_server_cpu_ms", "cpu_ms", "cpu_percent")
_CYCLES = (
    ("cycle at 100,000 pending, EASY: full, s", "0.33-0.35"),
    ("- after one end, ms", "21-24"),
    ("the same, conservative: full, s", "1.2-1.4"),
    ("- after one end, ms", "104-133"),
)
"""Figures of `benchmarks/scheduling_cycle.py`, which no run of a comparison measures:
they are changed by hand."""


@dataclass(frozen=True)
class _Row:
    """A row of the short tables: a figure of a scenario."""

    scenario: str
    figure: str
    label: str
    in_readme: bool = True


_ROWS = (
    _Row("burst-600", "jobs_per_s", "burst of 600 Jobs: Jobs/s, create to bound"),
    _Row("burst-600", "wait_p50_s", "- wait p50, s"),
    _Row("burst-600", "cpu_ms", "- CPU per Job, ms"),
    _Row("burst-600", "cpu_ms kube-apiserver", "- of that, API server"),
    _Row("burst-600", "cpu_ms added", "- of that, what is added to Kubernetes", in_readme=False),
    _Row("burst-600", "writes", "- objects written per Job"),
    _Row("burst-2000", "jobs_per_s", "burst of 2,000 Jobs: Jobs/s", in_readme=False),
    _Row("burst-10000", "jobs_per_s", "burst of 10,000 Jobs: Jobs/s", in_readme=False),
    _Row("steady-10", "wait_p50_s", "10 Jobs/s for 3 minutes: wait p50, s"),
    _Row("steady-10", "wait_p99_s", "- wait p99, s"),
    _Row("steady-10", "cpu_ms", "- CPU per Job, ms", in_readme=False),
    _Row("gangs-100x8", "jobs_per_s", "100 Indexed Jobs of 8 pods: Jobs/s"),
    _Row("gangs-100x8", "wait_p50_s", "- wait p50, s", in_readme=False),
    _Row("gangs-100x8", "cpu_ms", "- CPU per Job, ms", in_readme=False),
    _Row("gangs-20x100", "pods_per_s", "20 Indexed Jobs of 100 pods: pods/s", in_readme=False),
    _Row("gangs-20x100", "pod_cpu_ms", "- CPU per pod, ms", in_readme=False),
    _Row("gangs-2x2000", "pods_per_s", "2 Indexed Jobs of 2,000 pods: pods/s", in_readme=False),
    _Row("gangs-2x2000", "pod_cpu_ms", "- CPU per pod, ms", in_readme=False),
    _Row("gangs-1x10000", "pods_per_s", "an Indexed Job of 10,000 pods: pods/s", in_readme=False),
    _Row("gangs-1x10000", "pod_cpu_ms", "- CPU per pod, ms", in_readme=False),
    _Row("backlog-10000", "wait_p50_s", "10,000 pending: node free to next pod bound, s"),
    _Row("baseline-3000", "makespan_s", "Kueue's baseline scenario, 3,000 Jobs: all ended after, s"),
    _Row("clogging", "finished", "clogging, 100 Jobs: finished"),
    _Row("idle", "cpu_percent", "no work: CPU of all programs, % of a core", in_readme=False),
    _Row("idle", "cpu_percent added", "- of that, what is added to Kubernetes", in_readme=False),
)


def markdown(document: Mapping[str, Any]) -> str:
    """Return the whole report."""
    return "\n\n".join([_conditions(document), goals(document), measurements(document)]) + "\n"


def answers(document: Mapping[str, Any]) -> str:
    """Return the conditions, and what a reader wants to know in one table."""
    summary = Summary(document)
    names = _contenders(summary)
    lines = [
        _conditions(document),
        "",
        "| | " + " | ".join(names) + " | beside plain |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    lines += [
        f"| {row.label} | {cells} | {_beside_plain(summary, row)} |"
        for row, cells in _short_rows(summary, names)
    ]
    ours = [
        f"| {label} | " + " | ".join(text if name == FLUXQUEUE else "-" for name in names) + " | - |"
        for label, text in _CYCLES
    ]
    return "\n".join([*lines, *ours])


def goals(document: Mapping[str, Any]) -> str:
    """Return the table of what must be reached, and what was."""
    return "\n".join(_goals(Summary(document)))


def measurements(document: Mapping[str, Any]) -> str:
    """Return a table of each scenario, and what failed."""
    summary = Summary(document)
    lines: list[str] = []
    for scenario in summary.scenarios:
        title = _TITLES.get(scenario, scenario)
        lines += [
            "",
            f"**{title}** (`{scenario}`, {_rounds(summary, scenario)})",
            "",
            *_table(summary, scenario),
        ]
    if requests := document.get("request_ms"):
        lines += [
            "",
            "**CPU time of the API server for one request of each kind**",
            "",
            "| request | ms |",
            "|---|---|",
        ]
        lines += [f"| {name} | {_number(cost_ms)} |" for name, cost_ms in requests.items()]
    for failure in document["failures"]:
        problem = " ".join(str(failure["problem"]).split())[:300]
        lines += [
            "",
            f"Failed: `{failure['scenario']}`, {failure['key']}, round {failure['round'] + 1}: {problem}",
        ]
    return "\n".join(lines).strip()


def speed_table(document: Mapping[str, Any]) -> str:
    """Return the short table of the README."""
    summary = Summary(document)
    names = _contenders(summary)
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    return "\n".join(
        [
            *lines,
            *(f"| {row.label} | {cells} |" for row, cells in _short_rows(summary, names) if row.in_readme),
        ]
    )


def _contenders(summary: Summary) -> list[str]:
    return list(dict.fromkeys(name for row in _ROWS for name in summary.contenders(row.scenario)))


def _short_rows(summary: Summary, names: Sequence[str]) -> Iterator[tuple[_Row, str]]:
    """Yield the rows that a contender has a figure for, with their cells."""
    for row in _ROWS:
        values = [summary.median(row.scenario, name, row.figure) for name in names]
        if any(value is not None for value in values):
            yield row, " | ".join("-" if value is None else _number(value) for value in values)


def _beside_plain(summary: Summary, row: _Row) -> str:
    plain, ours = (summary.median(row.scenario, name, row.figure) for name in (PLAIN, FLUXQUEUE))
    return f"{ours / plain:.2f} x" if plain and ours is not None and row.figure != "finished" else "-"


def _conditions(document: Mapping[str, Any]) -> str:
    machine, versions = document["machine"], document["versions"]
    lines = [
        (
            f"Measured on {document['at'][:10]}: {machine['cpus']} x {machine['cpu']}, Linux "
            f"{machine['kernel']}, Python {machine['python']}, "
        )
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    ]
    if document["scale"] != 1:
        lines.append(f"This is a short form: every number of Jobs is multiplied by {document['scale']:g}.")
    most = max(
        (outcome["others_cpu_s"] / outcome["lasted_s"] for outcome in document["outcomes"]), default=0.0
    )
    stolen = max((outcome["stolen_s"] / outcome["lasted_s"] for outcome in document["outcomes"]), default=0.0)
    lines.append(
        f"During a run other programs used at most {most:.0%} of a core, and the host of this virtual "
        f"machine took at most {stolen:.0%}."
    )
    return "\n".join(lines)


def _goals(summary: Summary) -> Iterator[str]:
    yield from ("| goal | must | aim | measured | reached |", "|---|---|---|---|---|")
    for verdict in verdicts(summary):
        goal = verdict.goal
        sign, unit = (">=" if goal.higher else "<="), f" {goal.unit}" if goal.unit else ""
        limits = f"{sign} {goal.must:g}{unit} | {sign} {goal.aim:g}{unit}"
        yield f"| {goal.claim} | {limits} | {_number(verdict.figure)}{unit} | {verdict.text} |"


def _rounds(summary: Summary, scenario: str) -> str:
    rounds = {len(summary.outcomes(scenario, name)) for name in summary.contenders(scenario)}
    code = f"fluxqueue {', '.join(summary.commits(scenario))}"
    if rounds == {1}:
        return f"one round, {code}"
    return (
        f"{'-'.join(map(str, sorted({min(rounds), max(rounds)})))} rounds, {code}: median, and least-greatest"
    )


def _table(summary: Summary, scenario: str) -> list[str]:
    contenders = summary.contenders(scenario)
    lines = ["| | " + " | ".join(contenders) + " |", "|---|" + "---|" * len(contenders)]
    for name in _ordered(summary.names(scenario), profiled=scenario.startswith("profile")):
        plain = summary.figure(scenario, PLAIN, name)
        cells = [
            _cell(summary.figure(scenario, each, name), plain if each == FLUXQUEUE else None, name)
            for each in contenders
        ]
        lines.append(f"| {_label(name)} | " + " | ".join(cells) + " |")
    return lines


def _ordered(names: Sequence[str], *, profiled: bool) -> list[str]:
    """Times first, then writes, then CPU with its parts, then memory."""
    if profiled:
        return [name for name in names if name.startswith("profile ")]
    own = [name for name in _LABELS if name in names and name not in _LAST]
    own += [name for name in _LAST if name in names]
    return [*own, *(name for name in names if name.startswith(("cpu_ms ", "cpu_percent ", "pss_mib ")))]


def _label(name: str) -> str:
    kind, _, what = name.partition(" ")
    if not what:
        return _LABELS[name]
    if kind == "pss_mib":
        return f"memory at the end, {what}, MiB"
    if kind == "profile":
        return "CPU time in all, s" if what == "seconds" else what
    return "- all that is added to Kubernetes" if what == "added" else f"- {what}"


def _cell(figure: Figure | None, plain: Figure | None, name: str) -> str:
    if figure is None:
        return ""
    if name.startswith("profile ") and name != "profile seconds":
        return f"{figure.median:.1%}"
    text = _number(figure.median)
    if figure.least != figure.greatest:
        text += f" ({_number(figure.least)}-{_number(figure.greatest)})"
    if plain is not None and plain.median > 0 and not name.startswith(("profile", "pss_mib")):
        text += f"; {figure.median / plain.median:.2f} x plain"
    return text


def _number(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 1 and abs(value) >= 0.01 else f"{value:.3g}"
