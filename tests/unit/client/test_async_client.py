from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.builders import make_queue
from support.watched_api import WatchedApi

from fluxqueue.client import (
    AsyncClient,
    InvalidWork,
    Job,
    MiniCluster,
    NameTaken,
    NoCluster,
    NoSuchWork,
    NotInstalled,
    NotManaged,
    NotPermitted,
    NotPossible,
    PodGroup,
    Refused,
    SubmissionFailed,
    WaitTimeout,
    WorkFailed,
    WorkGone,
)

MINUTE = timedelta(minutes=1)


@pytest.fixture
def server() -> WatchedApi:
    return WatchedApi()


@pytest.fixture
async def client(server: WatchedApi) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(server.api, "team")
    yield client
    await client.connection.close()


def job(name: str = "solver") -> Job:
    return Job(name=name, image="i", command=["run"])


async def test_a_job_is_followed_from_its_submission_to_its_end(
    server: WatchedApi, client: AsyncClient
) -> None:
    server.put("fluxqueues", make_queue("night"))
    work = await client.submit(job(), queue="night")
    assert server.get("jobs", "solver", "team")["metadata"]["labels"]["fluxqueue/queue"] == "night"
    assert await work.state() == "Pending"
    uid = server.uid_of("jobs", "solver")
    waiting = asyncio.create_task(work.wait(timeout=MINUTE))
    server.show("Job", "solver", uid, state="Pending", reason="Held", eta="2026-01-02T04:00:00Z")
    while (await work.status()).reason != "Held":
        await asyncio.sleep(0)
    assert str(await work.eta()) == "2026-01-02 04:00:00+00:00"
    server.show("Job", "solver", uid, state="Completed", outcome="Succeeded", nodes="node-[1-2]")
    status = await waiting
    assert status.succeeded
    assert status.nodes == ("node-1", "node-2")


async def test_a_field_that_does_not_exist_is_refused(server: WatchedApi, client: AsyncClient) -> None:
    server.unknown_fields = {"bakoffLimit"}
    manifest = job().manifest()
    with pytest.raises(Refused, match=r'unknown field "spec.bakoffLimit": correct Job solver as it says'):
        await client.submit({**manifest, "spec": {**manifest["spec"], "bakoffLimit": 3}})
    await client.submit(job("first"))
    with pytest.raises(Refused, match="unknown field"):  # also where the namespace is known to be managed
        await client.submit({**manifest, "spec": {**manifest["spec"], "bakoffLimit": 3}})


async def test_a_warning_of_admission_is_a_warning_of_python(server: WatchedApi, client: AsyncClient) -> None:
    server.warnings = [
        "Job team/solver: label fluxqueue/queu is unknown and has no effect: did you mean fluxqueue/queue?"
    ]
    with pytest.warns(UserWarning, match=r"^Job team/solver: label fluxqueue/queu is unknown") as told:
        await client.submit(job())
    assert len(told) == 1


async def test_what_is_no_handle_is_refused(client: AsyncClient) -> None:
    with pytest.raises(
        InvalidWork,
        match=(
            r"handle: 'solver' is no Handle: keep the handle of a workload, "
            r"or write client.get\('job/NAME'\)"
        ),
    ):
        client.workload("solver")  # type: ignore[arg-type]  # that is what is tested


async def test_a_queue_that_does_not_exist_is_refused_with_those_that_do(
    server: WatchedApi, client: AsyncClient
) -> None:
    server.put("fluxqueues", make_queue("night"))
    with pytest.raises(
        InvalidWork,
        match=r"Job solver: queue: there is no queue 'nigth': did you mean night\? there are default, night",
    ):
        await client.submit(job(), queue="nigth")
    with pytest.raises(InvalidWork, match="MiniCluster flux: queue: there is no queue 'x'"):
        await client.submit(MiniCluster(name="flux", image="i"), queue="x")
    assert (await client.submit(job(), queue="night")).name == "solver"
    assert (await client.submit(job("other"), queue="default")).name == "other"


async def test_the_queue_is_listed_as_the_terminal_shows_it(server: WatchedApi, client: AsyncClient) -> None:
    server.show("Job", "runs", "u1", state="Running", nodes="n1")
    server.show("Job", "waits", "u2", state="Pending", reason="Held", position=1)
    listed = await client.jobs()
    assert [(job.title, job.status.state) for job in listed] == [
        ("job/runs", "Running"),
        ("job/waits", "Pending"),
    ]
    assert [job.title for job in await client.jobs(states=["pending"])] == ["job/waits"]
    assert str(listed).splitlines()[0].split() == ["OBJECT", "QUEUE", "STATE", "PODS", "WAIT", "POS", "INFO"]
    assert "<td>job/waits</td>" in listed._repr_html_()
    assert len(await client.jobs(namespace="other")) == 0
    assert len(await client.jobs(all_namespaces=True)) == 2


async def test_a_list_of_what_does_not_exist_is_refused(server: WatchedApi, client: AsyncClient) -> None:
    server.put("fluxqueues", make_queue("night"))
    with pytest.raises(InvalidWork, match="there is no queue 'nigth': did you mean night"):
        await client.jobs(queue="nigth")
    with pytest.raises(InvalidWork, match="states: 'asleep' is not a state: there are pending, "):
        await client.jobs(states=["asleep"])


async def test_waiting_work_is_moved_to_a_queue_that_exists(server: WatchedApi, client: AsyncClient) -> None:
    server.put("fluxqueues", make_queue("night"))
    work = await client.submit(job())
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Pending")
    with pytest.raises(InvalidWork, match="there is no queue 'x': there are default, night"):
        await work.move("x")
    await work.move("night")
    (listed,) = await client.jobs(queue="night")
    assert listed.title == "job/solver"


async def test_a_failure_is_raised_only_if_success_was_asked_for(
    server: WatchedApi, client: AsyncClient
) -> None:
    work = await client.submit(job())
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Failed", message="exit code 3")
    assert (await work.wait(timeout=MINUTE)).state == "Failed"
    with pytest.raises(WorkFailed, match=r"Job team/solver ended as Failed \(exit code 3\)"):
        await work.wait(check=True)


async def test_a_time_out_says_what_it_waits_for(server: WatchedApi, client: AsyncClient) -> None:
    work = await client.submit(job())
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Pending", reason="QueueHeld")
    with pytest.raises(WaitTimeout, match="still Pending, QueueHeld: wait longer") as caught:
        await work.wait(timeout=0.01)
    assert isinstance(caught.value, TimeoutError)


async def test_work_that_vanishes_ends_every_wait(
    server: WatchedApi, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluxqueue.client.waiting._LOOK_S", 0.01)
    work = await client.submit(job())
    waiting = asyncio.create_task(work.wait())
    await asyncio.sleep(0)
    server.remove("jobs", "solver", "team")
    with pytest.raises(WorkGone, match="submit it again"):
        await waiting


async def test_an_end_that_was_seen_stands_after_the_deletion(
    server: WatchedApi, client: AsyncClient
) -> None:
    work = await client.submit(job())
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Completed")
    assert (await work.wait(timeout=MINUTE)).succeeded
    await work.delete()
    for fluxjob in ("job-solver",):
        (name,) = [key[2] for key in server._objects if key[0] == "fluxjobs" and key[2].startswith(fluxjob)]
        server.remove("fluxjobs", name, "team")
    while (await client.connection.watch("team")).all(work.handle.key):
        await asyncio.sleep(0)
    assert (await work.wait(timeout=MINUTE)).succeeded


async def test_the_job_itself_tells_its_end_while_it_has_no_fluxjob(
    server: WatchedApi, client: AsyncClient
) -> None:
    work = await client.submit(job())
    stored = server.get("jobs", "solver", "team")
    server.put("jobs", {**stored, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    assert (await work.wait(timeout=MINUTE)).succeeded


async def test_another_object_of_the_same_name_is_not_this_work(
    server: WatchedApi, client: AsyncClient
) -> None:
    flux = await client.submit(MiniCluster(name="flux", image="i"))
    server.put("jobs", {"metadata": {"name": "flux", "namespace": "team", "uid": "foreign"}, "spec": {}})
    server.show("Job", "flux", "foreign", state="Completed")
    assert await flux.state() == "Pending"
    owner = {
        "kind": "MiniCluster",
        "name": "flux",
        "uid": server.uid_of("miniclusters", "flux"),
        "controller": True,
    }
    server.remove("jobs", "flux", "team")
    server.put(
        "jobs",
        {
            "metadata": {"name": "flux", "namespace": "team", "uid": "own", "ownerReferences": [owner]},
            "spec": {},
        },
    )
    server.show("Job", "flux", "own", state="Running")
    assert (await flux.wait(started=True, timeout=MINUTE)).state == "Running"


async def test_a_group_is_followed_by_its_pods_and_undone_if_one_is_refused(
    server: WatchedApi, client: AsyncClient
) -> None:
    group = await client.submit(PodGroup(name="mesh", image="i", pods=2))
    server.show("PodGroup", "mesh", "another", owners=("other",), state="Completed")
    assert await group.state() == "Pending"
    server.show("PodGroup", "mesh", "mine", owners=group.handle.uids, state="Running")
    assert (await group.wait(started=True, timeout=MINUTE)).started
    await group.delete()
    server.put("pods", {"metadata": {"name": "torus-1", "namespace": "team"}, "spec": {}})
    with pytest.raises(NameTaken, match="Pod team/torus-1"):
        await client.submit(PodGroup(name="torus", image="i", pods=2))
    assert server.get("pods", "torus-0", "team") is None
    assert server.get("pods", "torus-1", "team") is not None
    server.fail_next("delete", "pods", 403, "Forbidden", "pods is forbidden")
    with pytest.raises(
        NameTaken,
        match=r"Pod team/torus-1.*; the pods of torus that were created are still there: .*pods is forbidden",
    ):
        await client.submit(PodGroup(name="torus", image="i", pods=2))


async def test_nothing_is_created_where_admission_does_not_see_it(
    server: WatchedApi, client: AsyncClient
) -> None:
    server.managed = False
    with pytest.raises(NotManaged, match="kubectl label namespace team fluxqueue/managed=true"):
        await client.submit(job())
    assert server.writes == []


async def test_whether_a_namespace_is_managed_is_asked_once(server: WatchedApi, client: AsyncClient) -> None:
    await client.submit_all([job(f"j{number}") for number in range(5)])
    server.managed = False
    assert (await client.submit(job("more"))).name == "more"


async def test_all_that_is_submitted_together_waits_for_what_an_iterator_yields(
    server: WatchedApi, client: AsyncClient
) -> None:
    await client.submit_all([job("a"), job("b")], after=(each for each in ["ok:job/x"]))
    for name in "ab":
        assert server.get("jobs", name, "team")["metadata"]["annotations"]["fluxqueue/after"] == "ok:job/x"


async def test_one_refusal_does_not_keep_others_from_being_submitted(
    server: WatchedApi, client: AsyncClient
) -> None:
    await client.submit(job("b"))
    with pytest.raises(
        SubmissionFailed, match="1 of 3 could not be submitted; the first: .*exists"
    ) as caught:
        await client.submit_all([job("a"), job("b"), job("c")])
    assert [work.name for work in caught.value.submitted] == ["a", "c"]  # type: ignore[attr-defined]
    assert list(caught.value.failures) == [1]


async def test_verbs_edit_the_fluxjob_and_only_if_it_changes(server: WatchedApi, client: AsyncClient) -> None:
    work = await client.submit(job())
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Pending")
    await work.prioritize(5)
    await work.hold()
    assert [write.body["spec"] for write in server.written("patch", "fluxjobs")] == [
        {"priority": 5},
        {"hold": True},
    ]
    while not (await work.status()).held:
        await asyncio.sleep(0)
    await work.hold()
    assert len(server.written("patch", "fluxjobs")) == 2
    server.show("Job", "solver", server.uid_of("jobs", "solver"), state="Running")
    while (await work.status()).state != "Running":
        await asyncio.sleep(0)
    with pytest.raises(NotPossible, match="Job team/solver runs: only what waits can be released"):
        await work.release()


async def test_work_is_found_by_its_name(server: WatchedApi, client: AsyncClient) -> None:
    await client.submit(job())
    assert (await client.get("solver")).handle == (await client.get("job/solver")).handle
    for title in ("job/none", "pod-group/none"):
        with pytest.raises(NoSuchWork, match="check name and namespace"):
            await client.get(title)


async def test_a_watch_that_is_not_allowed_is_said_at_once(server: WatchedApi, client: AsyncClient) -> None:
    work = await client.submit(job())
    server.fail_next("watch", "fluxjobs", 403, "Forbidden")
    with pytest.raises(
        NotPermitted, match="lists and watches fluxjobs in namespace team, so ask for that right"
    ):
        await work.wait(timeout=MINUTE)


async def test_a_cluster_without_fluxqueue_is_said_at_once(server: WatchedApi, client: AsyncClient) -> None:
    work = await client.submit(job())
    server.fail_next("watch", "fluxjobs", 404, "NotFound")
    with pytest.raises(NotInstalled, match="install fluxqueue"):
        await work.status()
    server.fail_next("create", "miniclusters", 404, "NotFound")
    with pytest.raises(NotInstalled, match="miniclusters"):
        await client.submit(MiniCluster(name="flux", image="i"))


async def test_no_configuration_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for kubeconfig in ("/nowhere/config",):
        with pytest.raises(NoCluster, match="set KUBECONFIG, or give kubeconfig="):
            async with AsyncClient.connect(kubeconfig, namespace="team"):
                pass


async def test_it_is_who_the_kubeconfig_says(tmp_path: Path) -> None:
    config = """
current-context: a
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: admin, user: {token: t, as: bob, as-groups: [x, y]}}]
contexts: [{name: a, context: {cluster: a, user: admin}}, {name: b, context: {cluster: a}}]
"""
    (tmp_path / "config").write_text(config)
    async with AsyncClient.connect(tmp_path / "config") as client:
        found = client.api._wire._headers
    assert found == (("Impersonate-User", "bob"), ("Impersonate-Group", "x"), ("Impersonate-Group", "y"))


async def test_explain_has_the_reason_the_remedy_and_the_text_of_the_plugin(
    server: WatchedApi, client: AsyncClient
) -> None:
    work = await client.submit(job())
    server.show(
        "Job",
        "solver",
        server.uid_of("jobs", "solver"),
        state="Pending",
        reason="QueueLimit",
        message="the queue runs 3 of 3",
    )
    explanation = await work.explain()
    assert (explanation.why, explanation.remedy) == (
        "the queue runs 3 of 3",
        (
            "wait until others of the queue or the namespace end, ask for less, "
            "delete what is not needed, or have the limit raised"
        ),
    )
    assert "job/solver in namespace team waits in queue default" in str(explanation)


async def test_many_are_waited_for_as_they_end(server: WatchedApi, client: AsyncClient) -> None:
    works = await client.submit_all([job(name) for name in ("a", "b", "c")])
    order = []

    async def ends() -> None:
        async for work in client.as_ended(works, timeout=MINUTE):
            order.append(work.name)
            if len(order) < 3:
                show("ca"[len(order) - 1])

    def show(name: str) -> None:
        server.show("Job", name, server.uid_of("jobs", name), state="Completed")

    ending = asyncio.create_task(ends())
    show("b")
    await ending
    assert order == ["b", "c", "a"]
    assert [status.state for status in await client.wait(works, timeout=MINUTE)] == ["Completed"] * 3
