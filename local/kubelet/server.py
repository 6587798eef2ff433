"""The kubelet's API, as the API server uses it: logs now, and sessions in containers (`sessions`).

Only the API server may call it: the TLS context accepts no client without a certificate of the cluster's
authority, and each request is refused unless that certificate has the name of the API server's client. Who
may read which log has been decided by the API server.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from fluxqueue.local.kubelet.container_log import LogOptions
from fluxqueue.local.kubelet.container_runner import ContainerRunner
from fluxqueue.local.kubelet.pod_runner import PodRunner
from fluxqueue.local.kubelet.pod_status import ContainerRecord, Ended, Running, Waiting, former_state
from fluxqueue.local.kubelet.port_forwarding import forward_ports
from fluxqueue.local.kubelet.remote_commands import attach, execute

__all__ = ["Pods", "find_container", "log_options", "make_app", "never_ran"]


class Pods(Protocol):
    """The pods that can be asked for."""

    def runner(self, namespace: str, name: str) -> PodRunner | None:
        """Return the runner of a pod."""


PODS: web.AppKey[Pods] = web.AppKey("pods")


def make_app(pods: Pods, client: str) -> web.Application:
    """Return the application; ``client`` is the common name of the API server's certificate."""

    @web.middleware
    async def only_api_server(request: web.Request, handler: Handler) -> web.StreamResponse:
        certificate = (request.get_extra_info("peercert") or {}) if request.transport is not None else {}
        names = [
            value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"
        ]
        if names != [client]:
            raise web.HTTPForbidden(text="only the API server may ask the node agent")
        return await handler(request)

    app = web.Application(middlewares=[only_api_server])
    app[PODS] = pods
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", _logs)
    for place in ("{namespace}/{pod}/{container}", "{namespace}/{pod}/{uid}/{container}"):
        for method in ("GET", "POST"):
            app.router.add_route(method, f"/exec/{place}", _exec)
            app.router.add_route(method, f"/attach/{place}", _attach)
    for place in ("{namespace}/{pod}", "{namespace}/{pod}/{uid}"):
        for method in ("GET", "POST"):
            app.router.add_route(method, f"/portForward/{place}", _port_forward)
    return app


async def _exec(request: web.Request) -> web.StreamResponse:
    return await execute(request, find_container(request))


async def _attach(request: web.Request) -> web.StreamResponse:
    return await attach(request, find_container(request))


async def _port_forward(request: web.Request) -> web.StreamResponse:
    pod = find_pod(request)
    if not pod.address:
        raise web.HTTPBadRequest(text=f"pod {pod.pod.metadata.name} does not run")
    return await forward_ports(request, pod.address)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def find_pod(request: web.Request) -> PodRunner:
    """Return the pod that a request names.

    Raises
    ------
    aiohttp.web.HTTPException
        It does not run here.
    """
    names = request.match_info
    pod = request.app[PODS].runner(names["namespace"], names["pod"])
    if pod is None:
        raise web.HTTPNotFound(text=f"pod {names['namespace']}/{names['pod']} does not run on these nodes")
    return pod


def find_container(request: web.Request) -> ContainerRunner:
    """Return the container that a request names.

    Raises
    ------
    aiohttp.web.HTTPException
        There is none, or it has never been started.
    """
    names = request.match_info
    pod = find_pod(request)
    runner = pod.containers.get(names["container"])
    if runner is None and former_state(pod.pod, names["container"]):
        what = (
            f"container {names['container']} of pod {names['pod']} ran before the node agent was started "
            "again"
        )
        raise web.HTTPBadRequest(text=f"{what}: its log went with the former agent")
    if runner is None:
        why = f": {pod.pod.refusal}" if pod.pod.refusal else ""
        raise web.HTTPBadRequest(
            text=f"container {names['container']} of pod {names['pod']} has not been started{why}"
        )
    return runner


def log_options(query: dict[str, str], now: datetime) -> LogOptions:
    """Read the options of a request for a log.

    Raises
    ------
    ValueError
        One of them is invalid.
    """
    since = None
    if "sinceSeconds" in query:
        since = now - timedelta(seconds=int(query["sinceSeconds"]))
    elif "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"])
    stream = query.get("stream", "All").lower()
    return LogOptions(
        follow=query.get("follow") == "true",
        tail=max(0, int(query["tailLines"])) if "tailLines" in query else None,
        timestamps=query.get("timestamps") == "true",
        since=since,
        limit_bytes=max(0, int(query["limitBytes"])) if "limitBytes" in query else None,
        stream="" if stream == "all" else stream,
    )


def never_ran(record: ContainerRecord, *, previous: bool) -> str:
    """Return why a run of a container has no log, in the kubelet's words: its process was never started.
    Empty if it was.
    """
    state: Waiting | Running | Ended | None = record.state
    if previous or (isinstance(state, Waiting) and state.reason == "CrashLoopBackOff"):
        state = record.last
    if isinstance(state, Waiting) and state.message:
        return f"is waiting to start: {state.reason}: {state.message}"
    if isinstance(state, Ended) and not state.container_id:
        return f"is terminated: {state.reason}: {state.message}"
    return ""


async def _logs(request: web.Request) -> web.StreamResponse:
    runner = find_container(request)
    try:
        options = log_options(dict(request.query), datetime.now(UTC))
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    previous = request.query.get("previous") == "true"
    if why := never_ran(runner.record, previous=previous):
        raise web.HTTPBadRequest(
            text=f'container "{runner.container.name}" in pod "{request.match_info["pod"]}" {why}'
        )
    log = runner.previous_log() if previous else runner.log
    if log is None:
        raise web.HTTPBadRequest(text=f"container {runner.container.name} has no log of a previous run")
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    with contextlib.suppress(ConnectionError):
        async for part in log.read(options):
            await answer.write(part)
        await answer.write_eof()
    return answer
