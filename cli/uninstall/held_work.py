"""Finds the work that fluxqueue holds, and releases it to plain Kubernetes, in passes.

A pass reads all Jobs and all pods that are not bound, page by page, and takes one step for each that is held;
most work needs one. The next pass repeats what could not be done: the pods of a Job stop first, its object
changed meanwhile, or an API server still has a deleted policy. So nothing is remembered between passes, nor
between two runs of the command.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass, field

from fluxqueue.api import names
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.cli.uninstall.work_decisions import (
    Delete,
    HeldState,
    JobPatch,
    Left,
    PodPatch,
    Wait,
    WorkAction,
    decide_job,
    decide_pod,
    held_state,
    is_held,
)
from fluxqueue.kube.errors import ApiError, Conflict, Expired, Invalid, NotFound
from fluxqueue.kube.kinds import JOBS, PODS, Kind, T
from fluxqueue.kube.transport import Api, Page, PatchType

__all__ = ["HeldWork", "ReleasePass", "find_held", "pages", "release_pass", "run_bounded"]

_AT_ONCE = 16
_NOT_BOUND = "spec.nodeName="


@dataclass
class HeldWork:
    """What fluxqueue holds; uids in ``uids``, and names for people."""

    jobs: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    uids: set[str] = field(default_factory=set)
    gated_later: list[str] = field(default_factory=list)
    """Running Jobs whose template has our gate: pods that they create later are gated."""


@dataclass
class ReleasePass:
    """What a pass did: names of released and deleted objects, why others are left,
    and what the next pass has to do.
    """

    jobs: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    left_uids: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)
    gated_later: list[str] = field(default_factory=list)


@dataclass
class _PodsByOwner:
    """Held pods: those of Jobs by the uid of the Job, and the others."""

    of_jobs: dict[str, list[Pod]]
    others: list[Pod]

    def without_job(self) -> list[Pod]:
        """Return the others, and those of Jobs that are gone:
        `of_jobs` has only these when all Jobs were read.
        """
        return [*self.others, *(pod for pods in self.of_jobs.values() for pod in pods)]


async def pages(
    api: Api, kind: Kind[T], *, label_selector: str | None = None, field_selector: str | None = None
) -> AsyncIterator[Page[T]]:
    """Yield the objects of a kind, of all namespaces, page by page;
    none if the server does not have the kind.
    """
    token = ""
    while True:
        try:
            page = await api.page(
                kind, label_selector=label_selector, field_selector=field_selector, continue_token=token
            )
        except NotFound:
            return
        except Expired:
            if not token:
                raise
            # the list is older than the server remembers: from the start, whatever is done is not found again
            token = ""
            continue
        yield page
        token = page.continue_token
        if not token:
            return


async def run_bounded(work: Iterable[Awaitable[None]]) -> None:
    """Await all, a bounded number at a time; the first error is raised after all have ended."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Awaitable[None]) -> None:
        async with limit:
            await item

    results = await asyncio.gather(*(one(item) for item in work), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def find_held(api: Api) -> HeldWork:
    """Return what is held now."""
    held = HeldWork()
    pods = await _held_pods(api)
    async for page in pages(api, JOBS):
        for job in page.items:
            state = held_state(job, pods.of_jobs.pop(job.metadata.uid, ()))
            if state in (HeldState.SUSPENDED, HeldState.GATED):
                held.jobs.append(_named(job))
                held.uids.add(job.metadata.uid)
            elif state is HeldState.LATER_GATED:
                held.gated_later.append(_named(job))
    for pod in pods.without_job():
        held.pods.append(_named(pod))
        held.uids.add(pod.metadata.uid)
    return held


async def release_pass(api: Api) -> ReleasePass:
    """Take one step for everything that is held.

    Raises
    ------
    ApiError
        A list could not be read. A refusal that concerns one object is left to the next pass.
    """
    result = ReleasePass()
    pods = await _held_pods(api)
    served = {pod.metadata.label(names.SERVICES_OF_LABEL) for pod in pods.others}
    running: dict[str, Job] = {}
    async for page in pages(api, JOBS):
        running |= {
            job.metadata.uid: job for job in page.items if job.metadata.uid in served and not job.spec.suspend
        }
        await run_bounded(
            _job_step(api, job, pods.of_jobs.pop(job.metadata.uid, []), result) for job in page.items
        )
        result.left += [
            f"Job {key[0]}/{key[1]} cannot be read: {problem}" for key, problem in page.undecodable.items()
        ]
    await run_bounded(
        _pod_step(api, pod, running.get(pod.metadata.label(names.SERVICES_OF_LABEL) or ""), result)
        for pod in pods.without_job()
    )
    return result


async def _held_pods(api: Api) -> _PodsByOwner:
    found = _PodsByOwner(defaultdict(list), [])
    async for page in pages(api, PODS, field_selector=_NOT_BOUND):
        for pod in page.items:
            if is_held(pod):
                owner = pod.metadata.controller
                if owner is not None and owner.kind == "Job":
                    found.of_jobs[owner.uid].append(pod)
                else:
                    found.others.append(pod)
    return found


async def _job_step(api: Api, job: Job, held_pods: list[Pod], result: ReleasePass) -> None:
    state = held_state(job, held_pods)
    if state is HeldState.FREE and not job.spec.suspend:
        return
    if state is HeldState.LATER_GATED:
        result.gated_later.append(_named(job))
        return
    started = bool(held_pods) and await _has_started(api, job)
    action = decide_job(job, held_pods, has_started=started)
    if action is not None:
        await _carry_out(api, JOBS, job, action, result, result.jobs)
        return
    if state is not HeldState.GATED:
        return
    if job.spec.template.spec.gated_by(names.GATE):
        result.gated_later.append(_named(job))
    for pod in held_pods:
        await _pod_step(api, pod, job, result)


async def _pod_step(api: Api, pod: Pod, job: Job | None, result: ReleasePass) -> None:
    action = decide_pod(pod, job)
    if action is not None:
        await _carry_out(api, PODS, pod, action, result, result.pods)


async def _has_started(api: Api, job: Job) -> bool:
    meta = job.metadata
    selector = f"{names.CONTROLLER_UID_LABEL}={meta.uid}"
    token = ""
    while True:
        page = await api.page(PODS, meta.namespace, label_selector=selector, continue_token=token)
        if any(pod.active and pod.spec.node_name for pod in page.items):
            return True
        token = page.continue_token or ""
        if not token:
            return False


async def _carry_out(
    api: Api, kind: Kind[T], obj: T, action: WorkAction, result: ReleasePass, released: list[str]
) -> None:
    meta, name = obj.metadata, f"{kind.kind} {obj.metadata.namespace}/{obj.metadata.name}"

    async def patch(body: dict[str, object]) -> None:
        await api.patch(kind, meta.name, body, namespace=meta.namespace, patch_type=PatchType.STRATEGIC)

    match action:
        case Left(sentence):
            result.left.append(sentence)
            result.left_uids.add(meta.uid)
        case Wait():
            result.waiting.append(f"{name}: its pods are stopping")
        case Delete():
            if (
                await _tried(
                    api.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid), name, result
                )
                is None
            ):
                result.deleted.append(name)
        case JobPatch(body, then_again):
            error = await _tried(patch(body), name, result)
            if error is None and then_again:
                result.waiting.append(f"{name}: is stopped, so that its pod template can change")
            elif error is None:
                released.append(name)
            elif (
                isinstance(error, Invalid)
                and isinstance(obj, Job)
                and obj.spec.suspend
                and obj.status.start_time is not None
            ):
                await _clear_start_time(api, obj)
        case PodPatch(body):
            if await _tried(patch(body), name, result) is None:
                released.append(name)


async def _tried(call: Awaitable[object], name: str, result: ReleasePass) -> ApiError | None:
    """Return why the call failed; None if it succeeded.
    A refusal is for the next pass, and an object that is gone needs none.
    """
    try:
        await call
    except NotFound as error:
        return error
    except Conflict as error:
        result.waiting.append(f"{name}: it changed meanwhile")
        return error
    except ApiError as error:
        result.waiting.append(str(error))
        return error
    return None


async def _clear_start_time(api: Api, job: Job) -> None:
    """Make the template of a stopped Job mutable on Kubernetes before 1.36;
    if it is refused, the next pass says so again.
    """
    meta = job.metadata
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"startTime": None},
    }
    ignored = ReleasePass()
    await _tried(
        api.patch(JOBS, meta.name, body, namespace=meta.namespace, subresource="status"), "", ignored
    )


def _named(obj: Job | Pod) -> str:
    kind = "Job" if isinstance(obj, Job) else "Pod"
    return f"{kind} {obj.metadata.namespace}/{obj.metadata.name}"
