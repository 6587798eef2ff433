from __future__ import annotations

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import InvalidWork
from fluxqueue.client.handles import Handle, parse_title


@pytest.mark.parametrize(
    ("title", "found"),
    [
        ("solver", ("Job", "solver")),
        ("jobs/solver", ("Job", "solver")),
        ("po/p", ("Pod", "p")),
        ("Pod-Group/g", ("PodGroup", "g")),
        ("minicluster/m", ("MiniCluster", "m")),
    ],
)
def test_titles_are_those_of_kubectl(title: str, found: tuple[str, str]) -> None:
    assert parse_title(title) == found


@pytest.mark.parametrize("title", ["", "job/", "deployment/web", "a/b/c"])
def test_other_titles_are_refused_with_the_forms(title: str) -> None:
    with pytest.raises(InvalidWork, match="write job/NAME"):
        parse_title(title)


async def test_only_objects_with_the_known_uids_are_read_and_deleted() -> None:
    server = WatchedApi()
    server.put("jobs", {"metadata": {"name": "a", "namespace": "team", "uid": "new"}, "spec": {}})
    old, new = Handle("Job", "team", "a", ("old",)), Handle("Job", "team", "a", ("new",))
    assert not await old.objects(server.api)
    assert await old.job(server.api) is None
    await old.delete(server.api)
    assert server.get("jobs", "a", "team") is not None
    await new.delete(server.api)
    assert server.get("jobs", "a", "team") is None
    await new.delete(server.api)


async def test_pods_are_those_of_the_job_or_the_group() -> None:
    server = WatchedApi()
    server.put("jobs", {"metadata": {"name": "a", "namespace": "team", "uid": "u"}, "spec": {}})
    label = {"batch.kubernetes.io/controller-uid": "u"}
    server.put("pods", {"metadata": {"name": "a-0", "namespace": "team", "labels": label}, "spec": {}})
    server.put("pods", {"metadata": {"name": "other", "namespace": "team", "labels": {}}, "spec": {}})
    assert [pod.metadata.name for pod in await Handle("Job", "team", "a", ("u",)).pods(server.api)] == ["a-0"]
    assert await Handle("Pod", "team", "gone", ("u",)).pods(server.api) == []
    assert await Handle("Pod", "team", "gone", ("u",)).job(server.api) is None
