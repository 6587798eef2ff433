"""The extender's application called in process: limits, failures, and binds with a scripted API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from support.builders import PodBuilder, make_pod

from fluxqueue.api.nodes import Node
from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import Conflict, ServerError
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender import app as extender_app
from fluxqueue.scheduler_plugin.extender.app import MAX_BINDING_BYTES, ExtenderState, create_app
from fluxqueue.scheduler_plugin.extender.decisions import Decider
from fluxqueue.scheduler_plugin.extender.verbs import ExtenderVerbs


class Server:
    """An API server that accepts Bindings, or responds as a test sets."""

    def __init__(self) -> None:
        self.bound: list[dict[str, Any]] = []
        self.reply: Callable[[], None] = lambda: None

    async def bind(self, name: str, namespace: str, node: str, **preconditions: Any) -> None:
        self.bound.append({"name": name, "node": node, **preconditions})
        self.reply()


class Caller:
    """Calls the application by ASGI, with caches of three nodes."""

    def __init__(self, *, deadline_s: float = 4.0) -> None:
        self.caches, self.server = SchedulerCaches(cast(Any, None)), Server()
        self.draining = False
        self.decider = Decider(self.caches)
        self.answerer = ExtenderVerbs(cast(Api, self.server), self.caches, self.decider)
        gate = ExtenderState(lambda: None, lambda: self.draining, deadline_s)
        self.app = create_app(self.answerer, gate)
        self.headers: dict[bytes, bytes] = {}
        self.status = 0
        for name in ("n1", "n2"):
            status = {
                "allocatable": {"cpu": "4", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            self.caches.nodes.apply(
                msgspec.convert(
                    {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "status": status}, Node
                )
            )

    def see(self, builder: PodBuilder, version: str = "5") -> Pod:
        pod = msgspec.convert(document(builder, version), Pod)
        self.caches.pods.apply(pod)
        return pod

    async def call(self, path: str, body: bytes, *, hang_up: bool = False) -> Any:
        messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        if hang_up:
            messages = [{"type": "http.disconnect"}]
        answer = b""

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        async def send(message: Any) -> None:
            nonlocal answer
            if message["type"] == "http.response.start":
                self.status, self.headers = message["status"], dict(message["headers"])
            else:
                answer += message.get("body", b"")

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
            "root_path": "",
        }
        await self.app(scope, receive, send)
        try:
            return json.loads(answer)
        except ValueError:
            return answer.decode()

    async def filter(self, builder: PodBuilder, version: str = "5") -> Any:
        return await self.call(
            "/v1/filter", json.dumps({"Pod": document(builder, version), "NodeNames": ["n1", "n2"]}).encode()
        )

    async def bind(self, node: str = "n1") -> str:
        asked = {"PodName": "p", "PodNamespace": "team", "PodUID": "p", "Node": node}
        return str((await self.call("/v1/bind", json.dumps(asked).encode()))["Error"])


def document(builder: PodBuilder, version: str) -> dict[str, Any]:
    return builder.namespace("team").uid("p").with_("metadata.resourceVersion", version).build()


def released(node: str = "n1") -> PodBuilder:
    return (
        make_pod("p")
        .cpu("1")
        .annotation("fluxqueue/allocation", "7")
        .annotation("fluxqueue/fluxion-nodes", node)
    )


@pytest.fixture
def caller() -> Caller:
    return Caller()


async def test_a_released_pod_is_filtered_as_the_watch_shows_it(caller: Caller) -> None:
    asked = asyncio.create_task(caller.filter(released("n1"), "5"))
    await asyncio.sleep(0)
    caller.see(released("n2"), "6")
    assert (await asked)["NodeNames"] == ["n2"], "its allocation has changed since kube-scheduler saw it"


async def test_a_released_pod_that_the_watch_never_shows_is_an_error(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.scheduler_plugin.extender.verbs.LAG_S", 0.01)
    caller.see(released(), "4")
    assert (await caller.filter(released(), "5"))[
        "Error"
    ] == "the extender of fluxqueue has not seen pod team/p in this state yet"


async def test_other_pods_need_not_be_known(caller: Caller) -> None:
    assert (await caller.filter(make_pod("p").cpu("1")))["NodeNames"] == ["n1", "n2"]


async def test_a_released_pod_is_bound_in_the_state_that_was_decided_on(caller: Caller) -> None:
    caller.see(released())
    assert await caller.bind() == ""
    assert caller.server.bound == [
        {"name": "p", "node": "n1", "uid": "p", "resource_version": "5", "timeout_s": 4.0}
    ]


async def test_another_pod_that_changed_meanwhile_is_bound_as_it_is_now(caller: Caller) -> None:
    caller.see(make_pod("p"))

    def change() -> None:
        caller.server.reply = lambda: None
        asyncio.get_running_loop().call_soon(caller.see, make_pod("p"), "6")
        raise Conflict(409, "Conflict", "bind pod team/p: it has changed")

    caller.server.reply = change
    assert await caller.bind("n2") == ""
    assert [(sent["node"], sent["resource_version"]) for sent in caller.server.bound] == [
        ("n2", "5"),
        ("n2", "6"),
    ]


async def test_a_pod_that_changed_meanwhile_is_decided_on_again(caller: Caller) -> None:
    caller.see(released())

    def change() -> None:
        caller.server.reply = lambda: None
        asyncio.get_running_loop().call_soon(caller.see, released("n2"), "6")
        raise Conflict(409, "Conflict", "bind pod team/p: it has changed")

    caller.server.reply = change
    assert await caller.bind() == "fluxqueue has found node n2 for this pod, not n1"
    assert len(caller.server.bound) == 1


async def test_a_pod_that_is_bound_there_already_is_done(caller: Caller) -> None:
    caller.see(released().on_node("n1"))
    assert await caller.bind() == ""
    assert await caller.bind("n2") == "pod team/p is bound to node n1 already"
    assert not caller.server.bound


async def test_an_error_of_the_api_server_is_the_response_and_unassumes_the_pod(caller: Caller) -> None:
    caller.see(released())

    def refuse() -> None:
        assert "p" in caller.decider._reserved.assumed
        raise ServerError(500, "InternalError", "bind pod team/p: etcd is away")

    caller.server.reply = refuse
    assert "etcd is away" in await caller.bind()
    assert "p" not in caller.decider._reserved.assumed


async def test_a_pod_that_cannot_have_its_node_is_not_bound(caller: Caller) -> None:
    caller.see(released("n3"))
    assert await caller.bind("n3") == "node n3 does not exist"
    assert not caller.server.bound


async def test_a_failure_of_ours_is_one_sentence(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller.decider, "filter", lambda *_: 1 // 0)
    monkeypatch.setattr(caller.decider, "prioritize", lambda *_: 1 // 0)
    error = (await caller.filter(make_pod("p")))["Error"]
    assert error == "the extender of fluxqueue could not answer this request: its log says why"
    body = await caller.call("/v1/prioritize", json.dumps({"Pod": {}, "NodeNames": []}).encode())
    assert (caller.status, body) == (503, f"{error}\n")


@pytest.mark.parametrize("path", ["/v1/filter", "/v1/bind"])
async def test_an_unreadable_body_gets_a_response(caller: Caller, path: str) -> None:
    assert "cannot be read" in (await caller.call(path, b"{"))["Error"]
    assert caller.status == 200


async def test_a_body_beyond_the_limit_is_refused(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extender_app, "MAX_BODY_BYTES", 100)
    assert (
        "larger than 100 bytes: set nodeCacheCapable"
        in (await caller.call("/v1/filter", b" " * 101))["Error"]
    )
    assert "larger than" in (await caller.call("/v1/bind", b" " * (MAX_BINDING_BYTES + 1)))["Error"]


async def test_too_many_requests_at_once_are_turned_away(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_app, "MOST_AT_ONCE", 1)
    first = asyncio.create_task(caller.filter(released()))
    await asyncio.sleep(0)
    assert "requests in flight" in (await caller.filter(make_pod("q")))["Error"]
    caller.see(released())
    assert (await first)["NodeNames"] == ["n1"]


async def test_a_request_that_takes_too_long_gets_an_error() -> None:
    caller = Caller(deadline_s=0.01)
    assert (await caller.filter(released()))[
        "Error"
    ] == "the extender of fluxqueue could not answer within 0.01 s"


async def test_a_client_that_hangs_up_harms_nothing(caller: Caller) -> None:
    await caller.call("/v1/filter", b"", hang_up=True)
    assert (await caller.filter(make_pod("p")))["NodeNames"] == ["n1", "n2"]


async def test_while_it_drains_it_responds_and_closes_connections(caller: Caller) -> None:
    caller.draining = True
    assert (await caller.filter(make_pod("p")))["NodeNames"] == ["n1", "n2"]
    assert caller.headers[b"connection"] == b"close"
