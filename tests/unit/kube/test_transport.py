"""What each call of the client sends, and what it makes of the response."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest

from fluxqueue.kube.errors import ServerError, TooLong, Undecodable
from fluxqueue.kube.kinds import JOBS, NODES, PODS
from fluxqueue.kube.transport import Api, PatchType
from fluxqueue.kube.wire import Request, Wire


class FakeWire:
    """Keeps the requests, and answers from a list."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[Request] = []
        self.answers = list(answers)
        self.date: str | None = None

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 5) -> bytes:
        del timeout_s, tries
        self.requests.append(request)
        if self.answers and isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)
        return orjson.dumps(self.answers.pop(0) if self.answers else {})

    def body(self) -> Any:
        (request,) = self.requests
        return orjson.loads(request.body or b"null")


def client(wire: FakeWire) -> Api:
    return Api(cast("Wire", wire))


async def test_a_list_follows_the_pages_and_keeps_the_selectors() -> None:
    pages = [
        {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "b"}}]},
    ]
    wire = FakeWire(*pages)
    pods = await client(wire).list(PODS, "ns", label_selector="app=web")
    assert [pod.metadata.name for pod in pods] == ["a", "b"]
    assert [request.path for request in wire.requests] == ["/api/v1/namespaces/ns/pods"] * 2
    assert [request.query for request in wire.requests] == [
        {"labelSelector": "app=web", "limit": "500"},
        {"labelSelector": "app=web", "limit": "500", "continue": "next"},
    ]


async def test_a_page_that_is_too_long_is_asked_for_in_parts_down_to_single_objects() -> None:
    too_long = TooLong(200, "TooLong", "list pods: too long")
    wire = FakeWire(
        too_long,
        too_long,
        {"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}}]},
        *[too_long] * 3,
    )
    page = await client(wire).page(PODS)
    assert [request.query for request in wire.requests] == [{"limit": "500"}, {"limit": "62"}, {"limit": "7"}]
    assert page.limit == 14, "a short page may be followed by a longer one"
    assert all(request.most_bytes for request in wire.requests)
    wire.answers = [too_long, {"metadata": {}, "items": []}]
    assert (await client(wire).page(PODS, limit=7, continue_token="next")).limit == 2
    assert wire.requests[-1].most_bytes == 0, "one object cannot be divided"


async def test_a_page_that_is_nearly_too_long_is_followed_by_one_of_as_many_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = await client(
        FakeWire({"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}}]})
    ).page(PODS, limit=7, most_bytes=100)
    assert page.limit == 7


async def test_a_list_with_an_invalid_object_is_refused_with_the_problem() -> None:
    wire = FakeWire({"metadata": {}, "items": [{"metadata": {"name": "a"}, "spec": 1}]})
    with pytest.raises(Undecodable, match=r"list pods in ns: .*Expected `object`"):
        await client(wire).list(PODS, "ns")


async def test_a_create_adds_version_and_kind_and_names_the_object() -> None:
    wire = FakeWire({"metadata": {"name": "lammps"}})
    await client(wire).create(JOBS, {"metadata": {"name": "lammps", "namespace": "ns"}})
    assert wire.body() == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "lammps", "namespace": "ns"},
    }
    (request,) = wire.requests
    assert (request.path, request.action) == ("/apis/batch/v1/namespaces/ns/jobs", "create Job ns/lammps")


async def test_a_namespaced_object_is_not_created_without_a_namespace() -> None:
    with pytest.raises(ValueError, match="in which namespace"):
        await client(FakeWire()).create(JOBS, {"metadata": {"name": "lammps"}})


async def test_a_patch_names_its_subresource_its_type_and_its_field_manager() -> None:
    wire = FakeWire({"metadata": {"name": "p"}})
    patch = {"status": {"phase": "Failed"}}
    await client(wire).patch(
        PODS,
        "p",
        patch,
        namespace="ns",
        patch_type=PatchType.STRATEGIC,
        subresource="status",
        field_manager="me",
    )
    (request,) = wire.requests
    assert request.path == "/api/v1/namespaces/ns/pods/p/status"
    assert request.content_type == "application/strategic-merge-patch+json"
    assert (request.query, request.kind) == ({"fieldManager": "me"}, "pods/status")
    assert request.action == "patch status of Pod ns/p"


async def test_a_delete_always_says_what_happens_to_owned_objects() -> None:
    wire = FakeWire()
    await client(wire).delete(JOBS, "lammps", namespace="ns", uid="u", resource_version="7")
    assert wire.body() == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


async def test_a_bind_has_the_pods_uid_and_version_as_preconditions() -> None:
    wire = FakeWire()
    await client(wire).bind("p", "ns", "node-1", uid="u", resource_version="7")
    (request,) = wire.requests
    assert request.path == "/api/v1/namespaces/ns/pods/p/binding"
    assert wire.body()["metadata"] == {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    assert wire.body()["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}


async def test_an_eviction_that_the_server_answers_with_a_failure_is_refused_whatever_the_code_of_http() -> (
    None
):
    said = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    wire = FakeWire(
        {"kind": "Status", "status": "Failure", "message": said, "code": 500},
        {"kind": "Status", "status": "Success"},
    )
    with pytest.raises(ServerError, match="evict Pod ns/p: 500: This pod has more than one"):
        await client(wire).evict("p", "ns", uid="u")
    await client(wire).evict("p", "ns", uid="u")


async def test_another_type_in_a_response_is_refused_with_the_action() -> None:
    with pytest.raises(Undecodable, match="get Node n1: the answer does not fit"):
        await client(FakeWire([1])).get(NODES, "n1")


@pytest.mark.parametrize(
    ("date", "told"),
    [
        ("Tue, 24 Nov 2026 14:00:00 GMT", datetime(2026, 11, 24, 14, 0, 0, 500_000, UTC)),
        ("Tue, 24 Nov 2026 14:00:00 -0000", datetime(2026, 11, 24, 14, 0, 0, 500_000, UTC)),
        ("soon", None),
        (None, None),
    ],
)
async def test_the_time_of_the_server_has_a_zone_whatever_a_proxy_writes(
    date: str | None, told: datetime | None
) -> None:
    wire = FakeWire({"gitVersion": "v1.36.3"})
    wire.date = date
    assert await client(wire).time() == told
