"""An API server stand-in for benchmarks: it answers list, watch, create, patch and delete from memory, over
plain HTTP.

It is no API server: there is no storage, no schema, no admission, no authorisation and no priority. It exists
so that the queue service can be measured at a scale at which a real API server on the same machine would take
all of its time. `scale_jobs` stands in for the Job controller, the scheduler and the kubelets.

    PYTHONPATH=tests python benchmarks/scale/scale_api_server.py --port 8001 --nodes 5000

What the benchmark asks it: ``POST /standin/make/running/1000``, ``POST /standin/make/pending/1000``,
``POST /standin/finish/1`` and ``GET /standin/counts``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from typing import Any
from urllib.parse import unquote

import orjson
import uvloop
from aiohttp import web
from scale_jobs import JobRunner
from scale_objects import NAMESPACE, Json, node
from scale_store import ObjectStore, Refused, Selection

from fluxqueue.api import names

BOOKMARK_S = 20.0
_NOT_STORED = ("events", "tokenreviews", "subjectaccessreviews")


class ApiServerStandIn:
    """Translates requests to a store."""

    def __init__(self, store: ObjectStore, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        self._pages: dict[str, tuple[list[Json], str]] = {}
        self._tokens = itertools.count(1)

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/standin/make/{what}/{count}", self._make)
        app.router.add_post("/standin/finish/{count}", self._finish)
        app.router.add_get("/standin/counts", self._counts)
        app.router.add_route("*", "/{path:apis?/.*}", self._answer)
        return app

    # ---- for the benchmark ---------------------------------------------------------------------------------

    async def _make(self, request: web.Request) -> web.Response:
        made = self._runner.make(request.match_info["what"], int(request.match_info["count"]))
        return web.json_response({"made": made})

    async def _finish(self, request: web.Request) -> web.Response:
        return web.json_response({"finished": self._runner.finish(int(request.match_info["count"]))})

    async def _counts(self, _request: web.Request) -> web.Response:
        objects = {
            plural: len(self._store.collection(plural))
            for plural in ("jobs", "pods", "nodes", names.FLUXJOBS)
        }
        return web.json_response(
            {"objects": objects, "writes": self._store.writes, "running": len(self._runner.running)}
        )

    # ---- as an API server ----------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            plural, namespace, name, part = _parse(request.path)
            if request.method == "GET" and request.query.get("watch") in ("true", "1"):
                return await self._watch(request, plural, Selection.of(namespace, request.query))
            content = await request.read()
            body = orjson.loads(content) if content else {}
            if request.method == "GET":
                return _json(
                    self._store.get(plural, namespace, name)
                    if name
                    else self._list(request, plural, namespace)
                )
            return _json(
                self._write(request, plural, namespace, name, part, body),
                201 if request.method == "POST" else 200,
            )
        except Refused as refused:
            return web.Response(status=refused.status, body=refused.body(), content_type="application/json")

    def _list(self, request: web.Request, plural: str, namespace: str) -> Json:
        limit, token = int(request.query.get("limit", "0")), request.query.get("continue", "")
        if token:
            rest, version = self._pages.pop(token, ([], ""))
            if not version:
                raise Refused(410, "Expired", "the continue token is unknown")
        else:
            rest, version = (
                self._store.select(plural, Selection.of(namespace, request.query)),
                str(self._store.version),
            )
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Json = {"resourceVersion": version}
        if rest:
            meta["continue"] = str(next(self._tokens))
            self._pages[meta["continue"]] = rest, version
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": page}

    async def _watch(self, request: web.Request, plural: str, selection: Selection) -> web.StreamResponse:
        watcher = self._store.watch(plural, selection, int(request.query.get("resourceVersion") or 0))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        ends_at = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", "300"))
        try:
            while (left := ends_at - asyncio.get_running_loop().time()) > 0:
                try:
                    async with asyncio.timeout(min(left, BOOKMARK_S)):
                        await watcher.woken.wait()
                except TimeoutError:
                    metadata = {"resourceVersion": str(self._store.version)}
                    watcher.lines.append(
                        orjson.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}) + b"\n"
                    )
                watcher.woken.clear()
                lines, watcher.lines = watcher.lines, []
                await response.write(b"".join(lines))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._store.unwatch(plural, watcher)
        return response

    def _write(
        self, request: web.Request, plural: str, namespace: str, name: str, part: str, body: Any
    ) -> Json:
        resource = f"{plural}/{part}" if part else plural
        self._store.count(f"{request.method} {resource}")
        if plural in _NOT_STORED:
            return _review(plural, body)
        match request.method:
            case "POST":
                return self._store.create(plural, namespace, body)
            case "PATCH":
                return self._store.patch(
                    plural, namespace, name, body, request.content_type, status=part == "status"
                )
            case "DELETE":
                return self._store.delete(plural, namespace, name, body.get("preconditions") or {})
        raise Refused(405, "MethodNotAllowed", f"the stand-in has no {request.method} {request.path}")


def _review(plural: str, body: Json) -> Json:
    """Answer what is not stored: every token is the administrator's, and everything is allowed."""
    match plural:
        case "tokenreviews":
            audiences = body["spec"].get("audiences") or []
            return {
                **body,
                "metadata": {},
                "status": {"authenticated": True, "user": {"username": "admin"}, "audiences": audiences},
            }
        case "subjectaccessreviews":
            return {**body, "metadata": {}, "status": {"allowed": True}}
    return {**body, "metadata": {"resourceVersion": "1", "uid": "event", **(body.get("metadata") or {})}}


def _parse(path: str) -> tuple[str, str, str, str]:
    """Return plural, namespace, name and subresource of a path; missing parts are empty."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts and parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    if not parts:
        raise Refused(404, "NotFound", f"the stand-in has no discovery: {path}")
    plural, name, part = (*parts, "", "")[:3]
    return plural, namespace, name, part


def _json(obj: Json, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(obj), content_type="application/json")


async def serve(port: int, nodes: int, policy: str, seed: int) -> None:
    """Serve until terminated."""
    store = ObjectStore()
    runner = JobRunner(store, seed)
    for name, labels in (
        (NAMESPACE, {names.MANAGED_LABEL: "true"}),
        ("fluxqueue-system", {}),
        ("kube-system", {}),
    ):
        store.create("namespaces", "", {"metadata": {"name": name, "labels": labels}})
    store.create(
        names.FLUXQUEUES, "", {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {"policy": policy}}
    )
    for number in range(nodes):
        store.create("nodes", "", node(number))
    web_runner = web.AppRunner(ApiServerStandIn(store, runner).app(), access_log=None)
    await web_runner.setup()
    await web.TCPSite(web_runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.nodes, options.policy, options.seed))


if __name__ == "__main__":
    main()
