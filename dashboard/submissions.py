"""Submitting a Job: from a small form or as YAML, tried first, then created in the name of the person.

The form has the options of `kubectl fluxqueue submit` and makes the same Job. A trial creates nothing: the API server says whether it would
take the Job, with admission, and a forecast says what would become of it (`fluxqueue.queue.simulator.job_forecasts`). The forecast reads
what the person may read. It runs in a process of its own, one at a time and for a limited time, so it holds up no page.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import anyio.to_process
import structlog
import yaml

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.managed_namespaces import not_managed
from fluxqueue.cli.request_options import InvalidOption, read_options, submission
from fluxqueue.cli.submissions import job_manifest, job_yaml
from fluxqueue.dashboard.verbs import Refused
from fluxqueue.dashboard.viewers import not_in_his_name
from fluxqueue.kube.errors import ApiError, Forbidden
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.simulator.cluster_reading import TooManyPods, read_cluster
from fluxqueue.queue.simulator.job_forecasts import ClusterObjects, JobForecast, forecast_job

__all__ = ["FIELDS", "Trial", "create_job", "manifest_of_form", "read_manifest", "try_job"]

FIELDS: Final = {
    "image": "--image",
    "nodes": "--nodes",
    "cpus": "--cpus",
    "memory": "--memory",
    "gpus": "--gpus",
    "time": "--time",
    "queue": "--queue",
    "name": "--name",
}
"""The fields of the form, and the options that they are."""
_MOST_WORK: Final = 3_000
_MOST_PODS: Final = 20_000
_FORECAST_S: Final = 20.0
_DEEPEST: Final = 40
_COMMAND_LINE: Final = "kubectl fluxqueue submit --test-only forecasts it"

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial found: the name of the Job, the forecast, and why there is none."""

    name: str
    forecast: JobForecast | None = None
    problem: str = ""


class _Loader(yaml.SafeLoader):
    """Reads plain values: no aliases, with which a few lines become gigabytes, and no depth that ends the reader."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name): write the value itself")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} levels deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def manifest_of_form(form: Mapping[str, str]) -> str:
    """Return the Job of a filled form, as YAML.

    Raises
    ------
    Refused
        A field cannot be read.
    """
    words = [f"{option}={text}" for name, option in FIELDS.items() if (text := form.get(name, "").strip())]
    try:
        command = tuple(shlex.split(form.get("command", "")))
    except ValueError:
        raise Refused("command: a quote is not closed: write both, as in a shell") from None
    try:
        wanted = submission(read_options(words), command, command[0].rpartition("/")[2] if command else "job")
        return job_yaml(job_manifest(wanted, form.get("namespace", "").strip() or "default"))
    except (InvalidOption, ClusterError) as error:
        raise Refused(str(error).removeprefix("error: ")) from None


def read_manifest(text: str) -> dict[str, Any]:
    """Return the Job that a text is.

    Raises
    ------
    Refused
        It is no YAML, or not one Job with a namespace.
    """
    try:
        documents = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"this cannot be read as YAML: {' '.join(str(error).split())[:300]}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise Refused("write one Job: one document with apiVersion, kind, metadata and spec")
    manifest: dict[str, Any] = documents[0]
    if (manifest.get("apiVersion"), manifest.get("kind")) != ("batch/v1", "Job"):
        raise Refused("only a Job of batch/v1 is submitted here: kubectl apply takes all other kinds")
    meta = manifest.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("namespace"), str) or not meta["namespace"]:
        raise Refused("metadata.namespace is missing: name the namespace of the Job")
    return manifest


async def try_job(api: Api, manifest: Mapping[str, Any], now: datetime, work: int) -> Trial:
    """Say what would become of a Job. Nothing is created.

    Parameters
    ----------
    api
        A client with the rights of the person.
    manifest
        The Job.
    now
        The present time.
    work
        How many FluxJobs there are.

    Raises
    ------
    Refused
        The API server would refuse the Job.
    """
    job = await _create(api, manifest, dry_run=True)
    name = f"job/{job.metadata.name}"
    if job.metadata.label(names.SEEN_LABEL) != names.SEEN_VALUE:
        return Trial(name, problem=f"{not_managed(job.metadata.namespace)}.")
    if work > _MOST_WORK:
        return Trial(name, problem=f"It would be accepted. There is too much work for a forecast here: {_COMMAND_LINE}.")
    try:
        async with asyncio.timeout(_FORECAST_S):
            objects = await read_cluster(api, job, _MOST_PODS)
            found = await anyio.to_process.run_sync(_forecast, objects, job, now, cancellable=True, limiter=_limiter())
    except Forbidden as error:
        return Trial(name, problem=f"It would be accepted. There is no forecast, which reads the whole cluster: {error.message}.")
    except (TimeoutError, TooManyPods):
        return Trial(name, problem=f"It would be accepted. The forecast takes too long here: {_COMMAND_LINE}.")
    return Trial(name, found)


async def create_job(api: Api, manifest: Mapping[str, Any]) -> str:
    """Create a Job, and return a sentence.

    Raises
    ------
    Refused
        The API server refuses it.
    """
    meta = (await _create(api, manifest)).metadata
    log.info("job.submitted", namespace=meta.namespace, name=meta.name)
    return f"job/{meta.name} in {meta.namespace} is submitted."


async def _create(api: Api, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Job:
    try:
        return await api.create(JOBS, dict(manifest), manifest["metadata"]["namespace"], strict=True, dry_run=dry_run)
    except Forbidden as error:
        raise Refused(not_in_his_name(error) or error.message) from None
    except ApiError as error:
        raise Refused(error.message) from None
    except TypeError as error:
        raise Refused(f"this cannot be sent as JSON: {error}") from None


def _forecast(objects: ClusterObjects, job: Job, now: datetime) -> JobForecast:
    return asyncio.run(forecast_job(objects, job, now))


_one: list[anyio.CapacityLimiter] = []


def _limiter() -> anyio.CapacityLimiter:
    """Return what lets one forecast run at a time; it belongs to the event loop, so it is made in it."""
    if not _one:
        _one.append(anyio.CapacityLimiter(1))
    return _one[0]
