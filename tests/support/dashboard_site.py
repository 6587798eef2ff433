"""A dashboard in one process for unit tests: FluxJobs as structs, an API server that answers for people,
and a client that calls the application by ASGI.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import msgspec
import orjson
from support.dashboard_answers import Answer

from fluxqueue.api.fluxjobs import FluxJob, fluxjob_name
from fluxqueue.api.nodes import Node
from fluxqueue.dashboard.access import AccessReviews, Right
from fluxqueue.dashboard.app import make_app
from fluxqueue.dashboard.cluster import ClusterState
from fluxqueue.dashboard.people import ProxyHeaders, TokenReviews
from fluxqueue.dashboard.questions import Questions
from fluxqueue.dashboard.sessions import Sessions
from fluxqueue.dashboard.settings import DashboardSettings, QueueAddress
from fluxqueue.dashboard.site import SharedRenders, Site
from fluxqueue.dashboard.viewers import Door, Viewer
from fluxqueue.kube.callers import CallerApis
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, ServerError, TooLong
from fluxqueue.kube.transport import Api
from fluxqueue.kube.wire import Request, Wire
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Clock:
    """Seconds that a test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def at(seconds: float) -> str:
    """Return a time so many seconds from :data:`NOW`, as the API server writes it."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(
    name: str, namespace: str = "blue", *, version: int = 1, kind: str = "Job", cpu: int = 2, **parts: Any
) -> FluxJob:
    """Return a FluxJob; ``spec`` among the keywords changes its spec, all others its status."""
    spec = {"queue": "default", "pods": 1, "durationSeconds": 300, **parts.pop("spec", {})}
    jobspec = jobspec_of(
        f"{namespace}/{name}", [SizedPods({"cpu": Decimal(cpu)}, spec["pods"])], duration_s=300
    )
    ref = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    meta = {
        "name": fluxjob_name(kind, name, ref["uid"]),
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": at(-600),
    }
    status = {"state": "Pending", "submittedAt": at(-600), **parts}
    return msgspec.convert(
        {"metadata": meta, "spec": {"objectRef": ref, "jobspec": jobspec, **spec}, "status": status}, FluxJob
    )


def node(
    name: str,
    *,
    version: int = 1,
    cpu: int = 8,
    ready: bool = True,
    cordoned: bool = False,
    why: tuple[str, str] = ("", ""),
    **labels: str,
) -> Node:
    """Return a node; ``why`` has reason and message of one that is not ready, keywords are labels."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {
        "allocatable": {"cpu": str(cpu), "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"},
        "conditions": [condition if ready else {**condition, "reason": why[0], "message": why[1]}],
    }
    meta = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version), "labels": labels}
    return msgspec.convert({"metadata": meta, "spec": {"unschedulable": cordoned}, "status": status}, Node)


@dataclass
class PeopleApi:
    """An API server that knows people by tokens, knows their rights, and keeps objects by path.

    Attributes
    ----------
    tokens
        Token -> user name.
    groups
        User name -> groups; missing: all who are authenticated.
    rights
        User name, verb, resource, namespace; an empty namespace is all.
    objects
        Path -> what a GET returns.
    refused
        User name and path of requests that are forbidden.
    asked
        Who (``""``: the dashboard itself), method, path and body of each request.
    failing
        True: it answers nothing but 500.
    logs
        Path of a log -> what is yielded to who follows it.
    """

    tokens: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    rights: set[tuple[str, str, str, str]] = field(default_factory=set)
    objects: dict[str, Any] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    failing: bool = False
    logs: dict[str, Callable[[Request], AsyncGenerator[list[bytes], None]]] = field(default_factory=dict)

    @property
    def own(self) -> Api:
        """A client with the dashboard's identity."""
        return Api(cast("Wire", _Connection(self, "")))

    def with_token(self, token: str) -> Api:
        """Return a client of a person."""
        return Api(cast("Wire", _Connection(self, self.tokens.get(token, "nobody"))))

    def impersonating(self, username: str, _groups: Sequence[str]) -> Api:
        """Return a client that impersonates somebody."""
        return Api(cast("Wire", _Connection(self, f"as:{username}")))

    def person(self, username: str, *rights: tuple[str, str, str]) -> str:
        """Let a person in, with rights (verb, resource, namespace); returns his token."""
        token = f"token-of-{username}"
        self.tokens[token] = username
        self.rights.update((username, *right) for right in rights)
        return token

    def reviews(self, kind: str) -> int:
        """Return how many reviews of a kind (a plural) were asked for."""
        return sum(path.endswith(kind) for _, _, path, _ in self.asked)

    def writes(self) -> list[tuple[str, str, Any]]:
        """Return who changed what: his name, the path and the body."""
        return [(who, path, body) for who, method, path, body in self.asked if method == "PATCH"]

    def answer(self, who: str, request: Request) -> Any:
        """Answer a request."""
        body: Any = orjson.loads(request.body) if request.body else None
        self.asked.append((who, request.method, request.path, body))
        if self.failing:
            raise ServerError(500, "InternalError", "as the test wants it")
        if (who, request.path) in self.refused:
            raise Forbidden(403, "Forbidden", "as the test wants it")
        if request.path.endswith("/tokenreviews"):
            name = self.tokens.get(body["spec"]["token"])
            groups = self.groups.get(name or "", ["system:authenticated"])
            return {
                "status": {
                    "authenticated": name is not None,
                    "user": {"username": name or "", "groups": groups},
                }
            }
        if request.path.endswith("/subjectaccessreviews"):
            wanted = body["spec"]["resourceAttributes"]
            namespaces = {wanted.get("namespace", ""), ""}
            kind = "/".join(wanted[part] for part in ("resource", "subresource") if wanted.get(part))
            rights = {(body["spec"]["user"], wanted["verb"], kind, namespace) for namespace in namespaces}
            return {"status": {"allowed": bool(rights & self.rights)}}
        if request.method == "PATCH":
            return {"metadata": {"name": "patched"}}
        if request.path not in self.objects:
            raise NotFound(404, "NotFound", f"{request.path} not found")
        found = self.objects[request.path]
        if isinstance(found, ApiError):
            raise found
        return (
            {"metadata": {"resourceVersion": "1"}, **found}
            if isinstance(found, dict) and "items" in found
            else found
        )


class _Connection:
    def __init__(self, api: PeopleApi, who: str) -> None:
        self._api = api
        self._who = who

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        del timeout_s, tries
        found = self._api.answer(self._who, request)
        answer = found if isinstance(found, bytes) else orjson.dumps(found)
        if request.most_bytes and len(answer) > request.most_bytes:
            raise TooLong(200, "TooLong", f"{request.action}: too long")
        return answer

    async def stream(
        self, request: Request, *, idle_s: float, whole: bool = True, longest: int = 0
    ) -> AsyncGenerator[list[bytes], None]:
        del idle_s, whole, longest
        self._api.asked.append((self._who, request.method, request.path, None))
        if (self._who, request.path) in self._api.refused:
            raise Forbidden(403, "Forbidden", "as the test wants it")
        yield []
        async with aclosing(self._api.logs[request.path](request)) as pieces:
            async for lines in pieces:
                yield lines


@dataclass
class Stage:
    """A site, with what it is made from."""

    queue: QueueAddress = field(default_factory=QueueAddress)
    levels: tuple[str, ...] = ()
    proxy: ProxyHeaders | None = None
    impersonate: bool = False
    clock_of_day: Callable[[], datetime] = lambda: NOW

    def __post_init__(self) -> None:
        self.api = PeopleApi()
        self.clock = Clock()
        self.state = ClusterState(lambda: self.clock_of_day().timestamp())
        self.sessions = Sessions(self.clock)
        self.access = AccessReviews(self.api.own, self.clock)
        callers = cast("CallerApis", self.api)
        reviews = TokenReviews(self.api.own, self.clock)
        self.door = Door(
            self.sessions, reviews, self.access, callers, proxy=self.proxy, impersonate=self.impersonate
        )
        settings = DashboardSettings("127.0.0.1", 0, Path(), queue=self.queue, levels=self.levels)
        questions, shared = Questions(self.queue, self.clock), SharedRenders(self.clock)
        self.site = Site(settings, self.state, self.door, questions, shared, clock=self.clock_of_day)
        self.problem: str | None = None
        self.app = make_app(self.site, lambda: self.problem)

    def show(self, *jobs: FluxJob) -> None:
        """Let the watch of FluxJobs deliver some."""
        for each in jobs:
            self.state.jobs.apply(each)

    async def viewer(self, username: str, *rights: tuple[str, str, str]) -> Viewer:
        """Sign somebody in who has these rights."""
        return await self.door.sign_in(self.api.person(username, *rights))


@dataclass
class InProcess:
    """Calls an application as a browser does, and keeps its cookies and the last answer; ``endless``:
    no body of a request ends.
    """

    stage: Stage
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    endless: bool = False
    last: Answer | None = None

    async def get(self, path: str, **headers: str) -> Answer:
        """Send a GET."""
        return await self._send("GET", path, b"", headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form of our own page; keywords change headers (``sec_fetch_site``)."""
        body = urlencode(fields).encode()
        sent = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
            "content-length": str(len(body)),
        }
        return await self._send("POST", path, body, {**sent, **headers})

    async def sign_in(self, username: str, *rights: tuple[str, str, str]) -> Answer:
        """Sign in as somebody who has these rights."""
        return await self.post("/sign-in", {"token": self.stage.api.person(username, *rights), "next": "/"})

    async def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        sent = {
            "host": "dashboard.example",
            **self.headers,
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        url = urlsplit(path)
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(url.path),
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in sent.items()],
            "scheme": "https",
            "server": ("dashboard.example", 443),
            "http_version": "1.1",
            "root_path": "",
        }
        started: dict[str, Any] = {}
        data = bytearray()
        messages = [{"type": "http.request", "body": body, "more_body": self.endless}]

        async def receive() -> dict[str, Any]:
            if self.endless and not messages:
                await asyncio.Event().wait()
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                data.extend(message.get("body", b""))

        try:
            await self.stage.app(scope, receive, send)
        finally:
            self.last = self._answer(started, data)
        return self.last

    def _answer(self, started: Mapping[str, Any], data: bytearray) -> Answer:
        pairs = [(name.decode().lower(), text.decode()) for name, text in started["headers"]]
        for name, text in pairs:
            if name == "set-cookie":
                key, _, value = text.partition(";")[0].partition("=")
                self.cookies[key] = value.strip('"')
        return Answer(started["status"], data.decode(), dict(pairs))


def query_of(address: str) -> dict[str, str]:
    """Return the parameters of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


LISTS_ALL = ("list", "fluxjobs", "")
RIGHT = Right("list", "jobs.converged-computing.org", "fluxjobs", "blue")
