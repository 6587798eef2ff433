"""Traces in the Standard Workload Format, version 2.2 (Feitelson and others, the Parallel Workloads Archive).

Each line is one job with eighteen numbers; -1 means unknown. Comment lines begin with a semicolon and may
state the size of the machine. Real traces have gaps. Each kind of gap has a rule here, and every job that is
left out is counted with the reason.

- runtime unknown or 0: left out (it never ran);
- allocated processors unknown: the requested ones; neither known: left out;
- more processors than the machine has: left out;
- requested time unknown or below the runtime: the runtime (a limit that was not enforced would only be an
  overrun);
- submit time unknown: left out;
- preceding job (read on request only) unknown, left out or not before the job: the job waits for none;
- a line without eighteen numbers: an error that names it, because then the file is not a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

__all__ = ["InvalidTrace", "parse_swf", "read_swf"]

_FIELDS = 18
_NUMBER, _SUBMIT, _RUNTIME, _ALLOCATED, _REQUESTED, _REQUESTED_TIME, _USER, _PRECEDING, _THINK = (
    0,
    1,
    3,
    4,
    7,
    8,
    11,
    16,
    17,
)
_SIZES = ("maxnodes", "maxprocs")


class InvalidTrace(ValueError):
    """The file is not a trace. The message names the line."""


def read_swf(
    path: Path,
    *,
    processors_per_node: int = 1,
    nodes: int | None = None,
    limit: int | None = None,
    chains: bool = False,
) -> Trace:
    """Return the trace of a file; see `parse_swf`.

    Raises
    ------
    InvalidTrace
        The file cannot be read or is not a trace.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return parse_swf(
                lines,
                path.name,
                processors_per_node=processors_per_node,
                nodes=nodes,
                limit=limit,
                chains=chains,
            )
    except OSError as error:
        raise InvalidTrace(f"the trace {path} cannot be read: {error.strerror}") from None


def parse_swf(
    lines: Iterable[str],
    name: str,
    *,
    processors_per_node: int = 1,
    nodes: int | None = None,
    limit: int | None = None,
    chains: bool = False,
) -> Trace:
    """Return the trace of these lines.

    Parameters
    ----------
    name
        Name of the trace, for messages and titles.
    processors_per_node
        Processors of the trace for one simulated node. Jobs are rounded up to whole nodes.
    nodes
        Size of the machine; None: that of the header (``MaxNodes``, else ``MaxProcs``), else that of the
        largest job.
    limit
        Most jobs to read.
    chains
        Let jobs wait for the job that they name, and for their think time.

    Raises
    ------
    InvalidTrace
        A line is not a job, or no job remains.
    """
    header: dict[str, int] = {}
    read: list[TraceJob] = []
    left_out: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text.startswith(";"):
            header |= _size_in(text)
            continue
        if not text:
            continue
        if limit is not None and len(read) >= limit:
            break
        job = _job(text, number, name)
        if isinstance(job, str):
            left_out[job] += 1
        else:
            read.append(job if chains else replace(job, after=0, think_s=0))
    jobs = [replace(job, nodes=-(-job.nodes // processors_per_node)) for job in read]
    size = nodes or header.get("maxnodes") or -(-header.get("maxprocs", 0) // processors_per_node)
    size = size or max((job.nodes for job in jobs), default=0)
    fitting = [job for job in jobs if job.nodes <= size]
    if len(fitting) < len(jobs):
        left_out[f"asks for more than {size} nodes"] += len(jobs) - len(fitting)
    if not fitting:
        reasons = (
            ", ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "it holds no job lines"
        )
        raise InvalidTrace(f"the trace {name} has no job that can be run ({reasons})")
    return Trace(name, size, numbered(fitting), tuple(sorted(left_out.items())))


def _size_in(comment: str) -> dict[str, int]:
    """Return the size that a line of the header states, if it does."""
    key, _, value = comment.lstrip("; ").partition(":")
    name, words = key.strip().lower(), value.split()
    return {name: int(words[0])} if name in _SIZES and words and words[0].isdecimal() else {}


def _job(text: str, number: int, name: str) -> TraceJob | str:
    """The job of a line, or why it is left out."""
    fields = text.split()
    try:
        values = [float(field) for field in fields]
    except ValueError:
        values = []
    if len(values) < _FIELDS:
        raise InvalidTrace(
            f"{name}, line {number}: {text[:60]!r} is not a job of the Standard Workload Format: "
            f"{_FIELDS} numbers are needed"
        )
    submit_s, runtime_s = int(values[_SUBMIT]), int(values[_RUNTIME])
    size = int(values[_ALLOCATED]) if values[_ALLOCATED] > 0 else int(values[_REQUESTED])
    if submit_s < 0:
        return "submit time unknown"
    if runtime_s <= 0:
        return "never ran, or for an unknown time"
    if size <= 0:
        return "size unknown"
    requested_s = int(values[_REQUESTED_TIME])
    user = f"user{int(values[_USER])}" if values[_USER] >= 0 else ""
    after, think_s = max(int(values[_PRECEDING]), 0), max(int(values[_THINK]), 0)
    return TraceJob(
        int(values[_NUMBER]),
        submit_s,
        size,
        runtime_s,
        max(requested_s, runtime_s),
        user=user,
        after=after,
        think_s=think_s if after else 0,
    )
