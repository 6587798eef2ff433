"""The fields of a FluxJob by the names that people type: to sort by them (``--sort``) and to print them
(``--format``).

The names are those of the columns, and of the fields of the status. ``--format`` is a template as that of
``flux jobs``: ``{object:<20} {state} {info}``.
"""

from __future__ import annotations

import argparse
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.formatting import format_nodes
from fluxqueue.cli.jobs import info, object_name, order, state_of, times
from fluxqueue.cli.tables import age, instant, printable

__all__ = ["FIELDS", "Template", "read_sort", "read_template", "sorted_jobs"]

Value = str | int | float | None
_Reader = Callable[[FluxJob, datetime], Value]


def _seconds(first: Callable[[FluxJob], str | None], last: Callable[[FluxJob], str | None]) -> _Reader:
    """Return the seconds between two times of a FluxJob; the last one is now if there is none yet."""

    def read(job: FluxJob, now: datetime) -> Value:
        start, end = instant(first(job)), instant(last(job))
        return ((end or now) - start).total_seconds() if start is not None else None

    return read


def _submitted(job: FluxJob) -> str | None:
    return job.status.submitted_at or job.metadata.creation_timestamp


_KEYS: Mapping[str, _Reader] = {
    "namespace": lambda job, _: job.metadata.namespace,
    "name": lambda job, _: job.metadata.name,
    "object": lambda job, _: object_name(job),
    "queue": lambda job, _: job.spec.queue,
    "account": lambda job, _: job.status.account,
    "user": lambda job, _: job.status.submitted_by,
    "state": lambda job, _: state_of(job),
    "reason": lambda job, _: job.status.reason,
    "message": lambda job, _: job.status.message,
    "outcome": lambda job, _: job.status.outcome,
    "pods": lambda job, _: job.spec.pods,
    "priority": lambda job, _: job.spec.priority,
    "duration": lambda job, _: job.spec.duration_seconds or None,
    "position": lambda job, _: job.status.position,
    "jobid": lambda job, _: job.status.jobid,
    "requeues": lambda job, _: job.status.requeues,
    "nodes": lambda job, _: job.status.nodes,
    "eta": lambda job, _: job.status.reserved_at or job.status.eta,
    "submitted": lambda job, _: _submitted(job),
    "allocated": lambda job, _: job.status.allocated_at,
    "started": lambda job, _: job.status.started_at,
    "finished": lambda job, _: job.status.finished_at,
    "wait": _seconds(_submitted, lambda job: job.status.started_at or job.status.finished_at),
    "run": _seconds(lambda job: job.status.started_at, lambda job: job.status.finished_at),
    "age": _seconds(lambda job: job.metadata.creation_timestamp, lambda _: None),
}
_SHOWN: Mapping[str, Callable[[FluxJob, datetime], str]] = {
    "wait": lambda job, now: times(job, now)[0],
    "run": lambda job, now: times(job, now)[1],
    "nodes": lambda job, _: format_nodes(job.status.nodes),
    "duration": lambda job, _: age(job.spec.duration_seconds) if job.spec.duration_seconds else "",
    "info": lambda job, now: info(job, now),
}
FIELDS = (*_KEYS, "info")
"""What ``--format`` understands; all but ``info`` can be sorted by."""


class Template:
    """A line of text with fields of a FluxJob.

    Parameters
    ----------
    text
        For example ``{object:<20} {state}``.
    """

    def __init__(self, text: str) -> None:
        self._parts = [(before, name, spec or "") for before, name, spec, _ in string.Formatter().parse(text)]

    @property
    def fields(self) -> list[str]:
        """The fields of the template, in order."""
        return [name for _, name, _ in self._parts if name is not None]

    def line(self, job: FluxJob, now: datetime) -> str:
        """Return the line of a FluxJob."""
        return self._filled(lambda name: _shown(job, name, now))

    def titles(self) -> str:
        """Return the line of titles."""
        return self._filled(str.upper)

    def _filled(self, value: Callable[[str], str]) -> str:
        return "".join(
            before + (format(value(name), spec) if name is not None else "")
            for before, name, spec in self._parts
        ).rstrip()


def _shown(job: FluxJob, name: str, now: datetime) -> str:
    return printable(_text(job, name, now))


def _text(job: FluxJob, name: str, now: datetime) -> str:
    if (reader := _SHOWN.get(name)) is not None:
        return reader(job, now)
    value = _KEYS[name](job, now)
    if name == "age" and isinstance(value, float):
        return age(value)
    return "" if value is None else str(value)


def read_template(text: str) -> Template:
    """Read the value of ``--format``."""
    try:
        template = Template(text)
        unknown = [name for name in template.fields if name not in FIELDS]
        if not unknown and template.fields:
            template.titles()
            return template
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(
            f"--format is a template such as '{{object:<20}} {{state}}': {text!r} is none ({error})"
        ) from None
    what = f"{', '.join(map(repr, unknown))} is no field" if unknown else f"{text!r} has no field"
    raise argparse.ArgumentTypeError(f"--format: {what}; there are {', '.join(FIELDS)}")


def read_sort(text: str) -> tuple[tuple[str, bool], ...]:
    """Read the value of ``--sort``: fields, each with a minus sign if the largest comes first."""
    keys = tuple(
        (part.strip().removeprefix("-"), part.strip().startswith("-"))
        for part in text.split(",")
        if part.strip()
    )
    if unknown := [name for name, _ in keys if name not in _KEYS]:
        raise argparse.ArgumentTypeError(
            f"--sort: {', '.join(map(repr, unknown))} is no field; there are {', '.join(_KEYS)}"
        )
    return keys


def sorted_jobs(jobs: Sequence[FluxJob], keys: Sequence[tuple[str, bool]], now: datetime) -> list[FluxJob]:
    """Return FluxJobs in the order of ``--sort``, or in that of the queue;
    those without a value come last.
    """
    ordered = sorted(jobs, key=order)
    for name, reverse in reversed(keys):
        reader = _KEYS[name]
        known = [(value, job) for job in ordered if (value := reader(job, now)) not in (None, "")]
        unknown = [job for job in ordered if reader(job, now) in (None, "")]
        known.sort(key=lambda pair: pair[0], reverse=reverse)
        ordered = [*(job for _, job in known), *unknown]
    return ordered
