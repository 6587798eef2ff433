"""Which objects of other projects are watched, as the cluster gets and loses their CRDs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from support.controller_bench import until

from fluxqueue.kube.decoding import Page, decode_page
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster import gang_objects
from fluxqueue.queue.cluster.gang_objects import GangObjects, Readable
from fluxqueue.queue.model.sources.appwrappers import APP_WRAPPERS
from fluxqueue.queue.model.sources.gang_sources import GangSource, SizedObject
from fluxqueue.queue.model.sources.kueue import KUEUE_POD_GROUPS
from fluxqueue.queue.model.sources.mpijobs import MPI_JOBS
from fluxqueue.queue.model.sources.native_groups import NATIVE_POD_GROUPS, NATIVE_WORKLOADS
from fluxqueue.queue.model.sources.rayclusters import RAY_CLUSTERS
from fluxqueue.queue.model.sources.registry import SOURCES
from fluxqueue.queue.model.sources.scheduler_plugins import SCHEDULER_PLUGINS
from fluxqueue.queue.model.sources.volcano import VOLCANO

GROUP = "/apis/scheduling.x-k8s.io/v1alpha1"


class Server:
    """An API server that serves some resources, lists their objects,
    and has watches on which nothing happens.
    """

    def __init__(self) -> None:
        self.served: dict[str, list[str]] = {}
        self.objects: list[dict[str, Any]] = []
        self.forbidden = self.fails = self.starts = False
        self.broken: set[str] = set()
        self.asked: list[str] = []
        self.watches_end = asyncio.Event()

    async def request(self, _method: str, path: str) -> bytes:
        self.asked.append(path)
        if self.starts:  # as a real one answers before it knows its CRDs
            if path == "/apis":
                return msgspec.json.encode({"groups": []})
            raise ApiError(503, "ServiceUnavailable", path)
        if path == "/apis":
            versions = [
                {"groupVersion": each.removeprefix("/apis/")} for each in {*self.served, *self.broken}
            ]
            return msgspec.json.encode({"groups": [{"versions": versions}]})
        if path in self.broken:
            raise ApiError(503, "ServiceUnavailable", path)
        if path not in self.served:
            raise NotFound(404, "NotFound", path)
        return msgspec.json.encode({"resources": [{"name": name} for name in self.served[path]]})

    async def page(self, kind: Kind[Any], _namespace: str | None, **_selection: Any) -> Page[Any]:
        if self.forbidden:
            raise Forbidden(403, "Forbidden", f"list {kind.plural}")
        if self.fails:
            raise ApiError(500, "InternalError", f"list {kind.plural}")
        undecodable = {("default", "odd"): "Expected `int`"}
        return Page([msgspec.convert(each, kind.type) for each in self.objects], "1", "", undecodable)

    async def watch(self, *_args: Any, **_kwargs: Any) -> AsyncGenerator[list[bytes], None]:
        if self.forbidden:
            raise Forbidden(403, "Forbidden", "watch")
        yield []
        await self.watches_end.wait()


def pod_group(name: str, size: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"minMember": size},
    }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(gang_objects, "_DISCOVERY_S", (0.01, 0.02))
    return Server()


@asynccontextmanager
async def watched(
    server: Server, *sources: GangSource
) -> AsyncIterator[tuple[GangObjects, list[tuple[str, str, str]]]]:
    objects = GangObjects(cast("Api", server), sources or (SCHEDULER_PLUGINS, VOLCANO, KUEUE_POD_GROUPS))
    seen: list[tuple[str, str, str]] = []
    objects.add_handler(lambda *change: seen.append(change))
    task = asyncio.create_task(objects.run())
    try:
        yield objects, seen
    finally:
        task.cancel()


def readable(objects: GangObjects) -> Readable:
    return objects.find(SCHEDULER_PLUGINS, "default", "a").readable


async def test_a_crd_that_appears_later_is_noticed_and_its_gangs_are_read_again(server: Server) -> None:
    server.objects = [pod_group("a")]
    async with watched(server) as (objects, seen):
        assert readable(objects) is Readable.NOT_YET
        await until(lambda: readable(objects) is Readable.NOT_SERVED)
        server.served[GROUP] = ["podgroups"]
        await until(lambda: readable(objects) is Readable.YES)
        assert objects.find(SCHEDULER_PLUGINS, "default", "a").obj.spec.min_member == 2
        await until(
            lambda: ("scheduler-plugins", "default", "a") in seen and ("scheduler-plugins", "", "") in seen
        )


async def test_a_crd_that_is_deleted_is_followed_no_more(server: Server) -> None:
    server.served[GROUP], server.objects = ["podgroups"], [pod_group("a")]
    async with watched(server) as (objects, _):
        await until(lambda: objects.find(SCHEDULER_PLUGINS, "default", "a").obj is not None)
        server.served.clear()
        await until(lambda: readable(objects) is Readable.NOT_SERVED)
        assert objects.find(SCHEDULER_PLUGINS, "default", "a").obj is None


async def test_nothing_is_known_of_objects_while_their_version_changes(server: Server) -> None:
    """An object that is not read at this moment does not count as deleted:
    slots that are kept for its pods would be freed.
    """
    group, answers = "/apis/scheduling.k8s.io", set[tuple[Readable, bool]]()
    server.served[f"{group}/v1alpha2"], server.objects = ["podgroups"], [pod_group("a")]
    async with watched(server, NATIVE_POD_GROUPS) as (objects, _):

        def answer() -> tuple[Readable, bool]:
            found = objects.find(NATIVE_POD_GROUPS, "default", "a")
            return found.readable, found.obj is not None

        await until(lambda: answer() == (Readable.YES, True))
        objects.add_handler(lambda *_: answers.add(answer()))
        server.fails = True
        server.served = {f"{group}/v1alpha3": ["podgroups"]}
        await until(lambda: answer()[1] is False)
        answers.add(answer())
        server.fails = False
        await until(lambda: answer() == (Readable.YES, True))
    assert (Readable.YES, False) not in answers
    assert (Readable.NOT_YET, False) in answers


async def test_a_resource_that_must_not_be_read_is_asked_for_again(server: Server) -> None:
    server.served[GROUP], server.forbidden = ["podgroups"], True
    async with watched(server) as (objects, _):
        await until(lambda: readable(objects) is Readable.FORBIDDEN)
        server.forbidden = False
        await until(lambda: readable(objects) is Readable.YES)


async def test_one_refusal_says_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that has just started refuses all but its administrators for a moment."""
    server.served[GROUP], server.objects = ["podgroups"], [pod_group("a")]
    page, refused = server.page, list[bool]()

    async def refuses_once(kind: Kind[Any], namespace: str | None, **selection: Any) -> Page[Any]:
        if not refused:
            refused.append(True)
            raise Forbidden(403, "Forbidden", f"list {kind.plural}")
        return await page(kind, namespace, **selection)

    monkeypatch.setattr(server, "page", refuses_once)
    async with watched(server) as (objects, _):
        found = set[Readable]()
        objects.add_handler(lambda *_: found.add(readable(objects)))
        await until(lambda: readable(objects) is Readable.YES)
    assert refused
    assert Readable.FORBIDDEN not in found


async def test_a_right_that_is_taken_away_is_noticed_when_the_watch_ends(server: Server) -> None:
    """What is in the cache gets old then, and an object that is not in it may exist all the same."""
    server.served[GROUP], server.objects = ["podgroups"], [pod_group("a")]
    async with watched(server) as (objects, seen):
        await until(lambda: readable(objects) is Readable.YES)
        server.forbidden = True
        server.watches_end.set()
        await until(lambda: readable(objects) is Readable.FORBIDDEN)
        assert objects.find(SCHEDULER_PLUGINS, "default", "a").obj is None
        assert seen[-1] == ("scheduler-plugins", "", "")
        server.watches_end.clear()
        server.forbidden = False
        await until(lambda: readable(objects) is Readable.YES)


async def test_a_resource_whose_discovery_fails_does_not_stop_the_others(server: Server) -> None:
    server.served["/apis/scheduling.volcano.sh/v1beta1"] = ["podgroups"]
    server.broken.add(GROUP)
    async with watched(server) as (objects, _):
        await until(lambda: objects.find(VOLCANO, "default", "a").readable is Readable.YES)
        assert readable(objects) is Readable.NOT_YET


@pytest.mark.parametrize("known", [True, False])
async def test_a_server_that_starts_does_not_say_that_a_crd_is_gone(server: Server, known: bool) -> None:
    """It lists no group of a CRD for some moments. Gangs would be matched pod by pod."""
    server.served[GROUP], server.objects, server.starts = ["podgroups"], [pod_group("a")], not known
    async with watched(server) as (objects, _):
        if known:
            await until(lambda: readable(objects) is Readable.YES)
        server.starts = True
        asked = len(server.asked)
        await until(lambda: server.asked[asked:].count("/apis") >= 3)
        assert readable(objects) is (Readable.YES if known else Readable.NOT_YET)
        server.starts = False
        await until(lambda: objects.find(SCHEDULER_PLUGINS, "default", "a").obj is not None)


async def test_a_cluster_with_none_of_them_is_asked_for_each_once_and_then_one_question_at_a_time(
    server: Server,
) -> None:
    async with watched(server) as (objects, _):
        await until(lambda: readable(objects) is Readable.NOT_SERVED and server.asked.count("/apis") >= 3)
    assert sorted(set(server.asked)) == ["/apis", "/apis/scheduling.volcano.sh/v1beta1", GROUP]
    assert max(server.asked.count(path) for path in server.asked if path != "/apis") == 1


async def test_an_object_that_does_not_fit_is_named_with_its_problem(server: Server) -> None:
    server.served[GROUP] = ["podgroups"]
    async with watched(server) as (objects, _):
        await until(lambda: readable(objects) is Readable.YES)
        assert objects.find(SCHEDULER_PLUGINS, "default", "odd").problem == "Expected `int`"


async def test_a_source_whose_pods_say_all_is_always_readable(server: Server) -> None:
    async with watched(server) as (objects, _):
        assert objects.find(KUEUE_POD_GROUPS, "default", "a").readable is Readable.YES


async def test_a_change_of_the_status_alone_is_no_change(server: Server) -> None:
    async with watched(server) as (objects, seen):
        cache = objects.cache("scheduler-plugins")
        for version, size in (("1", 2), ("2", 2), ("3", 3)):
            body = pod_group("a", size)
            body["metadata"]["resourceVersion"] = version
            cache.apply(msgspec.convert(body, SCHEDULER_PLUGINS.resource.struct))  # type: ignore[union-attr]  # it has one
        assert seen.count(("scheduler-plugins", "default", "a")) == 2


@pytest.mark.parametrize(
    ("source", "spec"),
    [
        (
            MPI_JOBS,
            {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"tolerations": [{"key": "a"}] * 20_000}}}}},
        ),
        (RAY_CLUSTERS, {"workerGroupSpecs": [{"groupName": f"g{number}"} for number in range(20_000)]}),
        (APP_WRAPPERS, {"components": [{"podSets": [{"replicas": 1}]}] * 20_000}),
        (NATIVE_WORKLOADS, {"podGroups": [{"name": f"g{number}"} for number in range(20_000)]}),
        (SCHEDULER_PLUGINS, {"minMember": 2}),
    ],
    ids=lambda each: each.name if isinstance(each, GangSource) else "",
)
def test_an_object_with_a_longer_spec_than_any_gang_has_is_not_kept(
    source: GangSource, spec: dict[str, Any]
) -> None:
    """So many worker groups would be as many roles, each of which is looked at whenever a pod of the gang
    changes.
    """
    assert source.resource is not None
    metadata = {
        "labels": {f"l-{number}": "x" for number in range(20_000)},
        "annotations": {"kubectl": "x" * 200_000},
    }
    objects = [
        {"metadata": {"name": name, "namespace": "ada", **metadata}, "spec": spec if name == "a" else {}}
        for name in "ab"
    ]
    page = decode_page(
        msgspec.json.encode({"metadata": {}, "items": objects}), source.resource.struct, "list"
    )
    names = ["a", "b"] if source is SCHEDULER_PLUGINS else ["b"]
    assert [each.metadata.name for each in page.items] == names
    assert page.items[0].metadata.annotations == {}
    assert len(page.items[0].metadata.labels or ()) == 256
    assert [*page.undecodable] == [("ada", "a")][: 2 - len(names)]
    assert all("no more than 131072 are kept" in problem for problem in page.undecodable.values())


def test_every_object_of_another_project_has_the_bounds() -> None:
    assert all(
        issubclass(source.resource.struct, SizedObject) for source in SOURCES if source.resource is not None
    )
