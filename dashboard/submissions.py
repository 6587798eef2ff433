"""Submitting a Job: from a small form or as YAML, tried first, then created in the name of the person.

The form has the options of `kubectl fluxqueue submit` and makes the same Job. A trial creates nothing: the
API server says whether it would take the Job, with admission, and a forecast says what would become of it
(`fluxqueue.queue.simulator.job_forecasts`). The forecast reads what the person may read. One trial runs at a
time, in a process of its own and for a limited time, so it holds up no page.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog
import yaml

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.managed_namespaces import not_managed
from fluxqueue.cli.request_options import InvalidOption, read_options, submission
from fluxqueue.cli.submissions import job_manifest, job_yaml
from fluxqueue.dashboard.forecast_process import ForecastFailed, forecast_apart
from fluxqueue.dashboard.verbs import Refused, require_queue
from fluxqueue.dashboard.viewers import not_in_his_name
from fluxqueue.kube.errors import AlreadyExists, ApiError, Forbidden, Unreachable
from fluxqueue.kube.kinds import JOBS
from fluxqueue.kube.transport import Api
from fluxqueue.queue.simulator.cluster_reading import TooManyPods, read_cluster
from fluxqueue.queue.simulator.job_forecasts import JobForecast

__all__ = ["FIELDS", "Trial", "Trials", "create_job", "manifest_of_form", "read_manifest"]

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
_MANAGER: Final = "fluxqueue-dashboard"
_MOST_WORK: Final = 3_000
_MOST_PODS: Final = 5_000
_LONGEST: Final = 30_000
"""Characters of a Job that is read here."""
_FORECAST_S: Final = 20.0
_TURN_S: Final = 20.0
_DEEPEST: Final = 40
_LONGEST_NAME: Final = 63
_DIGEST: Final = 10
_ACCEPTED: Final = "It would be accepted"
_COMMAND_LINE: Final = "kubectl fluxqueue submit --test-only forecasts it"

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial found: the name of the Job, the forecast, and why there is none."""

    name: str
    forecast: JobForecast | None = None
    problem: str = ""


class _Loader(yaml.CSafeLoader):
    """Reads plain values, and refuses a key that stands twice:
    the second value would replace the first without a word.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set[str]()
        for key, _ in node.value:
            if (name := str(key.value)) in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1} has {name[:60]!r} a second time")
            seen.add(name)
        return super().construct_mapping(node, deep)


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


async def read_manifest(text: str) -> dict[str, Any]:
    """Return the Job that a text is.

    Raises
    ------
    Refused
        It is no YAML, or not one Job with a namespace.
    """
    if len(text) > _LONGEST:
        raise Refused(
            f"this has {len(text)} characters, and at most {_LONGEST} are read here: "
            "kubectl apply takes longer ones"
        )
    try:
        documents = await asyncio.to_thread(_documents, text)
    except (
        yaml.YAMLError,
        ValueError,
        AttributeError,
        LookupError,
        ArithmeticError,
        RecursionError,
    ) as error:
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


def _documents(text: str) -> list[Any]:
    """Read a text without aliases, with which a few lines become gigabytes,
    and without a depth that ends the reader.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name): write the value itself")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} levels deep")
    return [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]


class Trials:
    """Forecasts for people: one at a time, and one of each person."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._people: set[str] = set()

    async def run(self, who: str, api: Api, manifest: Mapping[str, Any], now: datetime, work: int) -> Trial:
        """Say what would become of a Job. Nothing is created.

        Parameters
        ----------
        who, api
            The person, and a client with his rights.
        manifest
            The Job.
        now
            The present time.
        work
            How many FluxJobs there are.

        Raises
        ------
        Refused
            The API server would refuse the Job, or the queue would not have it, or another trial of the
            person still runs.
        """
        if who in self._people:
            raise Refused("another trial of yours still runs: wait for its answer")
        self._people.add(who)
        try:
            job = await _tried(api, manifest)
            name = f"job/{job.metadata.name}"
            if work > _MOST_WORK:
                return Trial(
                    name, problem=f"{_ACCEPTED}. There is too much work for a forecast here: {_COMMAND_LINE}."
                )
            try:
                return Trial(name, await self._forecast(api, job, now))
            except _NoForecast as error:
                return Trial(name, problem=f"{_ACCEPTED}. {error}")
        finally:
            self._people.discard(who)

    async def _forecast(self, api: Api, job: Job, now: datetime) -> JobForecast:
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            raise _NoForecast("Others try Jobs at this moment: try again for a forecast.") from None
        try:
            async with asyncio.timeout(_FORECAST_S):
                return await forecast_apart(await read_cluster(api, job, _MOST_PODS), job, now)
        except Forbidden as error:
            raise _NoForecast(
                f"There is no forecast, which reads the whole cluster: {error.message}."
            ) from None
        except ApiError as error:
            raise _NoForecast(
                f"There is no forecast, since the cluster cannot be read now: {error.message}."
            ) from None
        except (TimeoutError, TooManyPods):
            raise _NoForecast(f"The forecast takes too long here: {_COMMAND_LINE}.") from None
        except ForecastFailed as error:
            log.warning("trial.failed", error=str(error))
            raise _NoForecast("The forecast failed; the log of the dashboard says how.") from None
        finally:
            self._turn.release()


class _NoForecast(Exception):
    """There is no forecast; the message says why."""


async def create_job(api: Api, manifest: Mapping[str, Any], page: str = "") -> str:
    """Create a Job, and return a sentence.

    Parameters
    ----------
    api
        A client with the person's rights.
    manifest
        The Job.
    page
        What tells this page from all others: a button that is pressed twice creates one Job.

    Raises
    ------
    Refused
        The API server refuses it, or it would not wait for its turn.
    """
    named = _named(manifest, page) if page else manifest
    try:
        await _tried(api, named)
        warnings: list[str] = []
        meta = (await _create(api, named, warned=warnings.append)).metadata
    except _Exists:
        if named is manifest:
            raise
        meta = named["metadata"]
        return (
            f"job/{meta['name']} in {meta['namespace']} is submitted, once from this page: "
            "open Submit again for another one."
        )
    log.info("job.submitted", namespace=meta.namespace, name=meta.name)
    return " ".join(
        [f"job/{meta.name} in {meta.namespace} is submitted.", *(f"Warning: {each}." for each in warnings)]
    )


def _named(manifest: Mapping[str, Any], page: str) -> Mapping[str, Any]:
    """Return a Job whose name the API server would make with a name that follows from the page and from the
    Job.
    """
    meta = manifest["metadata"]
    stem = meta.get("generateName")
    if meta.get("name") or not isinstance(stem, str):
        return manifest
    digest = hashlib.sha256(f"{page}\0{manifest!r}".encode(errors="replace")).hexdigest()[:_DIGEST]
    rest = {key: value for key, value in meta.items() if key != "generateName"}
    return {**manifest, "metadata": {**rest, "name": f"{stem[: _LONGEST_NAME - len(digest)]}{digest}"}}


class _Exists(Refused):
    """There is a Job of this name."""


async def _tried(api: Api, manifest: Mapping[str, Any]) -> Job:
    """Return a Job as admission would have it; one that admission leaves alone would not wait for its turn,
    so it is refused.

    So is one in a queue that does not exist.
    """
    job = await _create(api, manifest, dry_run=True)
    if (queue := (job.metadata.labels or {}).get(names.QUEUE_LABEL)) is not None:
        await require_queue(api, f"job/{job.metadata.name}", queue)
    if job.metadata.label(names.SEEN_LABEL) == names.SEEN_VALUE:
        return job
    spec = job.spec
    labels = {**(spec.template.metadata.labels or {}), **(job.metadata.labels or {})}
    if (
        labels.get(names.MANAGED_LABEL) == "false"
        or names.KUEUE_QUEUE_LABEL in labels
        or spec.managed_by
        or spec.template.spec.node_name
    ):
        raise Refused(
            "its labels, spec.managedBy or spec.nodeName keep it out of the queue: "
            "kubectl apply creates such a Job"
        )
    raise Refused(not_managed(job.metadata.namespace))


async def _create(
    api: Api,
    manifest: Mapping[str, Any],
    *,
    dry_run: bool = False,
    warned: Callable[[str], object] | None = None,
) -> Job:
    namespace = manifest["metadata"]["namespace"]
    try:
        return await api.create(
            JOBS,
            dict(manifest),
            namespace,
            strict=True,
            dry_run=dry_run,
            field_manager=_MANAGER,
            warned=warned,
        )
    except AlreadyExists as error:
        raise _Exists(error.message) from None
    except Forbidden as error:
        raise Refused(not_in_his_name(error) or error.message) from None
    except Unreachable as error:
        raise Refused(f"{error.message}: look at the queue before you submit it again") from None
    except ApiError as error:
        raise Refused(error.message) from None
    except TypeError as error:
        raise Refused(f"this cannot be sent as JSON: {error}") from None
