"""`kubectl fluxqueue submit --test-only`: when and where a Job would start, and whom it would delay, before it is submitted.

The forecast runs in this program, on what the person may read (`fluxqueue.queue.simulator.job_forecasts`), so it costs the queue nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TextIO

import msgspec

from fluxqueue.api.formatting import format_nodes, some_of
from fluxqueue.api.jobs import Job
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.tables import age, clock, in_zone
from fluxqueue.kube.errors import ApiError
from fluxqueue.kube.transport import Api
from fluxqueue.queue.simulator.cluster_reading import MOST_PODS, TooManyPods, read_cluster
from fluxqueue.queue.simulator.job_forecasts import DelayedWork, JobForecast, forecast_job

__all__ = ["show_forecast"]

_SHOWN: Final = 5
_FORBIDDEN: Final = 403
_NEVER: Final = 1


def show_forecast(
    kubeconfig: str | None, context: str | None, job: Mapping[str, Any], now: datetime, out: TextIO, *, as_json: bool = False
) -> int:
    """Print what would become of a Job; return 1 if it would not start.

    Parameters
    ----------
    kubeconfig, context
        The cluster, as kubectl's.
    job
        What a dry run returned.
    now
        The present time, in the zone in which times are shown.
    out
        Where it is printed.
    as_json
        Print one JSON object, with times in Unix seconds.

    Raises
    ------
    ClusterError
        The person may not read what a forecast needs.
    """
    read = msgspec.convert(job, Job)
    try:
        found = asyncio.run(_forecast(kubeconfig, context, read, now))
    except TooManyPods:
        raise ClusterError(
            f"error: more than {MOST_PODS:,} pods are on nodes, too many for a forecast: submit it, and explain says when it starts"
        ) from None
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        raise ClusterError(
            f"error: a forecast reads the work and the nodes of the whole cluster, which you may not ({error}): an administrator binds you "
            "to the ClusterRole view in all namespaces, or submit the Job, and explain says when it starts"
        ) from None
    if as_json:
        print(json.dumps(_plain(found), indent=4), file=out)
    else:
        out.writelines(f"{line}\n" for line in _lines(read.metadata.name, found, now))
    return 0 if found.start is not None else _NEVER


async def _forecast(kubeconfig: str | None, context: str | None, job: Job, now: datetime) -> JobForecast:
    async with Api.connect(kubeconfig, context, user_agent="fluxqueue/submit") as api:
        objects = await read_cluster(api, job)
    return await forecast_job(objects, job, now)


def _lines(name: str, found: JobForecast, now: datetime) -> Iterator[str]:
    if found.start is None:
        yield f"job/{name} would not start: {in_zone(found.reason, now) or 'nothing that holds the nodes has an end'}"
    elif found.start <= found.now:
        yield f"job/{name} would start now on {format_nodes(found.nodes)}"
    else:
        yield f"job/{name} would start at {_at(found.start, now)}, in {age(found.start - found.now)}, on {format_nodes(found.nodes)}"
    if found.ahead:
        yield f"{found.ahead} {'waits' if found.ahead == 1 else 'wait'} ahead of it in the queue {found.queue}"
    if found.delayed:
        yield f"{len(found.delayed)} would start later: {some_of([_delay(each, found.now, now) for each in found.delayed], _SHOWN)}"
    if found.start is not None:
        yield "as far as all work takes its stated time, and no other work comes"
    for why, number in found.left_out:
        yield f"left out: {number}, because the work {why}"


def _delay(each: DelayedWork, at: int, now: datetime) -> str:
    before = "now" if each.start <= at else f"at {_at(each.start, now)}"
    return f"{each.namespace}/{each.name} {f'at {_at(each.later, now)}' if each.later is not None else 'never'} and not {before}"


def _at(seconds: int, now: datetime) -> str:
    return clock(datetime.fromtimestamp(seconds, now.tzinfo), now)


def _plain(found: JobForecast) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain
