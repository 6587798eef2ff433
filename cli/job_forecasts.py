"""`kubectl fluxqueue submit --test-only`: when and where a Job would start, and whom it would delay, before
it is submitted.

The forecast runs in this program, on what the person may read (`fluxqueue.queue.simulator.job_forecasts`), so
it costs the queue nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TextIO

import msgspec
import orjson

from fluxqueue.api.formatting import format_nodes, some_of
from fluxqueue.api.jobs import Job
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.tables import age, clock, in_zone
from fluxqueue.kube.decoding import decode
from fluxqueue.kube.errors import ApiError, Forbidden
from fluxqueue.kube.transport import Api
from fluxqueue.queue.simulator.cluster_reading import MOST_PODS, TooManyPods, read_cluster
from fluxqueue.queue.simulator.job_forecasts import DelayedWork, JobForecast, forecast_job

__all__ = ["show_forecast"]

_SHOWN: Final = 5
_NEVER: Final = 1


def show_forecast(
    kubeconfig: str | None,
    context: str | None,
    job: Mapping[str, Any],
    now: datetime,
    out: TextIO,
    *,
    as_json: bool = False,
) -> int:
    """Print what would become of a Job; return 1 if no start is known.

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
    try:
        read = decode(orjson.dumps(job), Job, "read the Job")
        found = asyncio.run(_forecast(kubeconfig, context, read, now))
    except TooManyPods:
        raise ClusterError(
            f"error: more than {MOST_PODS:,} pods are on nodes, too many for a forecast: submit it, "
            "and explain says when it starts"
        ) from None
    except Forbidden as error:
        raise ClusterError(
            "error: a forecast lists all nodes, pods, FluxJobs, FluxQueues, FluxAccounts, FluxReservations, "
            f"PriorityClasses, which you may not ({error}): an administrator lets you, or submit the Job, "
            "and explain says when it starts"
        ) from None
    except ApiError as error:
        raise ClusterError(
            f"error: there is no forecast, since the cluster cannot be read: {error}"
        ) from None
    if as_json:
        print(json.dumps(msgspec.to_builtins(found), indent=4), file=out)
    else:
        out.writelines(f"{line}\n" for line in _lines(read.metadata.name, found, now))
    return 0 if found.start is not None or found.unknown else _NEVER


async def _forecast(kubeconfig: str | None, context: str | None, job: Job, now: datetime) -> JobForecast:
    async with Api.connect(kubeconfig, context, user_agent="fluxqueue/submit") as api:
        objects = await read_cluster(api, job)
    return await forecast_job(objects, job, now)


def _lines(name: str, found: JobForecast, now: datetime) -> Iterator[str]:
    if found.unknown:
        yield f"job/{name} has no forecast: {in_zone(found.unknown, now)}"
    elif found.start is None:
        yield (
            f"job/{name} has no start that is known: "
            f"{in_zone(found.reason, now) or 'what holds the nodes has no end'}"
        )
    elif found.start <= found.now:
        yield f"job/{name} would start now on {format_nodes(found.nodes)}"
    else:
        yield (
            f"job/{name} would start at {_at(found.start, now)}, in {age(found.start - found.now)}, "
            f"on {format_nodes(found.nodes)}"
        )
    if found.ahead:
        yield (
            f"{found.ahead} {'waits' if found.ahead == 1 else 'wait'} ahead of it in the queue {found.queue}"
        )
    if found.delayed:
        yield (
            f"{len(found.delayed)} would start later: "
            f"{some_of([_delay(each, found.now, now) for each in found.delayed], _SHOWN)}"
        )
    if found.misses is not None:
        yield f"it would end after its deadline, {_at(found.misses, now)}"
    if found.may_preempt:
        yield "running work of lower priority may be ended for it, which is not forecast"
    if found.start is not None:
        yield "as far as all work takes its stated time, and no other work comes"
    for why, number in found.left_out:
        yield f"left out: {number}, because the work {why}"


def _delay(each: DelayedWork, at: int, now: datetime) -> str:
    before = "now" if each.start <= at else f"at {_at(each.start, now)}"
    later = f"at {_at(each.later, now)}" if each.later is not None else "at a time that is not known"
    return f"{each.namespace}/{each.name} {later} and not {before}"


def _at(seconds: int, now: datetime) -> str:
    return clock(datetime.fromtimestamp(seconds, now.tzinfo), now)
