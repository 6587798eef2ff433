from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import AsyncClient, Client, Job, NoCluster, SubmissionFailed, Workload
from fluxqueue.client.portals import Portal


@pytest.fixture
def server() -> WatchedApi:
    return WatchedApi()


@pytest.fixture
def client(server: WatchedApi) -> Iterator[Client]:
    client = Client.__new__(Client)
    client.portal = Portal()
    client.asynchronous = AsyncClient(server.api, "team")
    yield client
    client.portal.call(client.asynchronous.connection.close())
    client.close()


def submitted(server: WatchedApi, client: Client, name: str, state: str = "Completed") -> Workload:
    work = client.submit(Job(name=name, image="i"))

    async def show() -> None:
        server.show("Job", name, server.uid_of("jobs", name), state=state)

    client.portal.call(show())
    return work


def test_it_does_what_the_asynchronous_client_does(server: WatchedApi, client: Client) -> None:
    work = submitted(server, client, "a")
    assert work.wait(timeout=timedelta(minutes=1)).succeeded
    assert (work.kind, work.name, work.namespace, work.state()) == ("Job", "a", "team", "Completed")
    assert repr(client.get("job/a")) == "<Job team/a>"
    assert client.workload(work.handle).status().succeeded
    assert work.eta() is None
    assert "completed" in work.explain().text
    work.delete()
    assert server.get("jobs", "a", "team") is None


def test_verbs_are_sent(server: WatchedApi, client: Client) -> None:
    work = submitted(server, client, "a", "Pending")
    work.hold()
    work.prioritize(3)
    work.cancel()
    assert [write.body["spec"] for write in server.written("patch", "fluxjobs")] == [
        {"hold": True},
        {"priority": 3},
        {"cancel": True},
    ]


def test_many_are_waited_for(server: WatchedApi, client: Client) -> None:
    works = [submitted(server, client, name) for name in "abc"]
    assert len(client.wait(works, timeout=60)) == 3
    assert {work.name for work in client.as_ended(works, timeout=60)} == {"a", "b", "c"}


def test_what_was_submitted_beside_a_refusal_can_be_used(server: WatchedApi, client: Client) -> None:
    submitted(server, client, "b")
    with pytest.raises(SubmissionFailed) as caught:
        client.submit_all([Job(name="a", image="i"), Job(name="b", image="i")])
    (fine,) = caught.value.submitted
    assert isinstance(fine, Workload)
    fine.delete()


def test_without_a_configuration_no_thread_stays() -> None:
    import threading

    before = threading.active_count()
    with pytest.raises(NoCluster):
        Client("/nowhere/config")
    assert threading.active_count() == before
