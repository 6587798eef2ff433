"""`kubectl fluxqueue efficiency`: what a workload asked for beside what it uses, as ``seff`` shows it.

Of work that runs the metrics API knows what it uses at this moment (`fluxqueue.cli.pod_metrics`). Kubernetes
keeps no figures of pods that have ended, and the queue measures none: of ended work only its times are known,
from its FluxJob or, when that is gone, from the history. The page of a job in the dashboard shows the same
facts. All functions but `of_history` are pure functions.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from fluxqueue.api import hostlists, names
from fluxqueue.api.fluxjobs import ENDED, FluxJob
from fluxqueue.api.formatting import format_nodes, format_quantity
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.explain import headline
from fluxqueue.cli.history_options import named
from fluxqueue.cli.history_source import HistorySource
from fluxqueue.cli.jobs import state_of
from fluxqueue.cli.node_use import Amounts, asked_by_pod
from fluxqueue.cli.pod_metrics import PodUse
from fluxqueue.cli.tables import age, clock, instant, printable

__all__ = ["Fact", "efficiency", "facts_of", "facts_of_row", "of_history", "of_row"]

_GIB: Final = 1 << 30
_ENDED: Final = (
    "not known: Kubernetes keeps no figures of pods that have ended; a monitoring of the site may have them"
)


class Fact(NamedTuple):
    """A fact, in words; ``part`` is what is used of what was asked for, if both are known."""

    name: str
    text: str
    part: float | None = None


def efficiency(job: FluxJob, use: PodUse | None, now: datetime) -> str:
    """Return the lines about a workload; parameters as `facts_of`."""
    facts = facts_of(job, use, now)
    if job.status.nodes:
        facts.append(Fact("Nodes", format_nodes(job.status.nodes)))
    return _lines(headline(job, now), facts)


def facts_of(job: FluxJob, use: PodUse | None, now: datetime) -> list[Fact]:
    """Return what a workload asked for and what it uses.

    Parameters
    ----------
    job
        The workload.
    use
        What its pods use now; None if none of them runs.
    now
        The present time, with a zone.
    """
    asked, pods = _asked(job)
    facts = [Fact("Asked for", _asked_words(asked, pods, job.spec.duration_seconds))]
    begun, ended = instant(job.status.started_at), instant(job.status.finished_at)
    if begun is not None:
        ran_s = ((ended or now) - begun).total_seconds()
        facts.append(_time(ran_s, job.spec.duration_seconds, ended=ended is not None))
    return facts + _used(job, asked, pods, use)


def of_row(row: Mapping[str, Any], now: datetime) -> str:
    """Return the lines about a workload of the history; parameters as `facts_of`."""
    title = f"{str(row['kind']).lower()}/{row['name']} in namespace {row['namespace']}"
    ended = instant(row.get("finished_at"))
    end = f", ended at {clock(ended, now)}" if ended else ""
    facts = facts_of_row(row)
    if row.get("hosts"):
        facts.append(Fact("Nodes", format_nodes(str(row["hosts"]))))
    return _lines(
        f"{title} is no longer in the cluster; the history has it: {row['outcome'] or row['state']}{end}.",
        facts,
    )


def facts_of_row(row: Mapping[str, Any]) -> list[Fact]:
    """Return what a workload of the history asked for, and its time."""
    cores, pods, duration = row.get("cores"), int(row["pods"]), int(row.get("duration_s") or 0)
    amounts = None if cores is None else Amounts(cpu=float(cores))
    facts = [Fact("Asked for", _asked_words(amounts, pods, duration))]
    if row.get("run_s") is not None:
        facts.append(_time(float(row["run_s"]), duration, ended=bool(row.get("finished_at"))))
    return [*facts, Fact("Used", _ENDED)]


def of_history(source: HistorySource, namespace: str, name: str) -> Mapping[str, Any] | None:
    """Return the last work of a name in the history of a namespace; None if there is none.

    Raises
    ------
    ClusterError
        The history cannot be read, or this is no name.
    """
    try:
        wanted = named(name)
    except argparse.ArgumentTypeError as error:
        raise ClusterError(f"error: {error}") from None
    return next(
        (row for page, _ in source.jobs({"namespace": namespace, **wanted}, 1, 1) for row in page), None
    )


def _asked(job: FluxJob) -> tuple[Amounts | None, int]:
    """Return what all pods that have nodes asked for together (of waiting work: all pods),
    and how many they are.
    """
    pods = job.spec.pods
    try:
        hosts = (
            [host for host in hostlists.decode(job.status.nodes) if host != names.NO_NODE]
            if job.status.nodes
            else []
        )
        pods = len(hosts) or pods
        each = asked_by_pod(job, pods)
    except (hostlists.InvalidHostlist, ValueError, KeyError, TypeError):
        return None, pods
    total = Amounts()
    for amounts in each:
        total.add(amounts)
    return total, pods


def _asked_words(asked: Amounts | None, pods: int, duration_s: int | None) -> str:
    parts = [] if asked is None else [_cores(asked.cpu)] if asked.cpu else ["no cores"]
    if asked is not None and asked.memory_gib:
        parts.append(format_quantity("memory", asked.memory_gib * _GIB))
    if asked is not None and asked.gpus:
        parts.append("1 GPU" if asked.gpus == 1 else f"{asked.gpus} GPUs")
    what = f": {', '.join(parts)} in all" if parts else ""
    return f"{pods} pod{'' if pods == 1 else 's'}{what}{f', for {age(duration_s)}' if duration_s else ''}"


def _cores(cores: float) -> str:
    return "1 core" if cores == 1 else f"{cores:.4g} cores"


def _time(ran_s: float, duration_s: int | None, *, ended: bool) -> Fact:
    so_far = "" if ended else " so far"
    if not duration_s:
        return Fact("Time", f"{age(ran_s)}{so_far}")
    words = f"{age(ran_s)} of {age(duration_s)}{so_far} ({_percent(ran_s, duration_s)})"
    return Fact("Time", words, ran_s / duration_s)


def _used(job: FluxJob, asked: Amounts | None, pods: int, use: PodUse | None) -> list[Fact]:
    state = state_of(job)
    if state in ENDED:
        return [Fact("Used", _ENDED if job.status.started_at else "nothing: it never ran")]
    if use is None:
        return [Fact("Used", "nothing yet: none of its pods runs")]
    if use.unknown:
        return [Fact("Used", f"not known: {use.unknown}")]
    some = f", of {use.pods} of {pods} pods" if use.pods < pods else ""
    cores, memory = (asked.cpu, asked.memory_gib * _GIB) if asked is not None else (0.0, 0.0)
    facts = [
        Fact(
            "Cores",
            f"{use.cores:.3g}{_of(use.cores, cores, f'{cores:.4g}')} in use now{some}",
            use.cores / cores if cores else None,
        ),
        Fact(
            "Memory",
            f"{_size(use.memory)}{_of(use.memory, memory, _size(memory))} in use now{some}",
            use.memory / memory if memory else None,
        ),
    ]
    if asked is not None and asked.gpus:
        facts.append(Fact("GPUs", f"{asked.gpus} asked for; metrics.k8s.io does not measure them"))
    return facts


def _of(used: float, asked: float, words: str) -> str:
    return f" of {words} ({_percent(used, asked)})" if asked else ", without a request,"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%"


def _size(size: float) -> str:
    return format_quantity("memory", size).removesuffix(" memory") if size >= 1 else "0"


def _lines(title: str, facts: Sequence[Fact]) -> str:
    width = max(len(fact.name) for fact in facts)
    return (
        "\n".join(
            [
                printable(title),
                "",
                *(f"  {fact.name.ljust(width)}   {printable(fact.text)}" for fact in facts),
            ]
        )
        + "\n"
    )
