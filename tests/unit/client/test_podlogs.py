from __future__ import annotations

import pytest
from support.watched_api import WatchedApi

from fluxqueue.api.pods import Pod
from fluxqueue.client import LogsUnavailable
from fluxqueue.client import podlogs as module
from fluxqueue.client.podlogs import MAX_BYTES, MAX_FOLLOWED, LogLine, LogOptions, PodLogs
from fluxqueue.kube.kinds import PODS


def server_with(phases: dict[str, str]) -> WatchedApi:
    server = WatchedApi()
    for index, (name, phase) in enumerate(phases.items()):
        key = {"batch.kubernetes.io/job-completion-index": str(index)}
        server.put(
            "pods",
            {
                "metadata": {"name": name, "namespace": "team", "annotations": key},
                "spec": {},
                "status": {"phase": phase},
            },
        )
    return server


async def read(server: WatchedApi, options: LogOptions | None = None, *, ended: bool = True) -> list[str]:
    async def pods() -> list[Pod]:
        return await server.api.list(PODS, "team")

    async def over() -> bool:
        return ended

    return [str(line) async for line in PodLogs(server.api, pods, over).read(options or LogOptions())]


async def test_lines_have_their_rank_and_pods_that_wait_are_left_out() -> None:
    server = server_with({"a-0": "Succeeded", "a-1": "Running", "a-2": "Pending"})
    server.logs |= {"a-0": "one\ntwo\n", "a-1": "three"}
    assert await read(server) == ["[0] one", "[0] two", "[1] three"]
    assert sorted(await read(server, LogOptions(follow=True))) == ["[0] one", "[0] two", "[1] three"]


async def test_only_a_line_feed_ends_a_line() -> None:
    server = server_with({"a-0": "Succeeded"})
    server.logs["a-0"] = '10%\r20%\n\n{"a": "x\u2028y\x0c\x85"}\n'
    assert await read(server) == ["[0] 10%\r20%", "[0] ", '[0] {"a": "x\u2028y\x0c\x85"}']
    server.logs["a-0"] = ""
    assert await read(server) == []


@pytest.mark.parametrize("follow", [False, True])
async def test_a_pod_that_cannot_be_read_is_named_with_the_remedy(follow: bool) -> None:
    server = server_with({"a-0": "Running"})
    server.logs["a-0"] = 403
    with pytest.raises(
        LogsUnavailable, match=r"Pod team/a-0 cannot be read: .*ask for the right to read pods/log"
    ):
        await read(server, LogOptions(follow=follow))
    server.logs["a-0"] = 500
    with pytest.raises(LogsUnavailable, match="see kubectl describe pod"):
        await read(server, LogOptions(follow=follow))


@pytest.mark.parametrize("follow", [False, True])
async def test_a_pod_on_a_simulated_node_says_so(follow: bool) -> None:
    server = server_with({"a-0": "Running"})
    meta = {"name": "a-0", "namespace": "team"}
    server.put("pods", {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}})
    server.logs["a-0"] = 500
    for runtime, said in (
        ("kwok://0.8", "Pod team/a-0 has no output: node node-1 is simulated"),
        ("containerd://2", "see kubectl describe pod"),
    ):
        server.put(
            "nodes",
            {"metadata": {"name": "node-1"}, "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}},
        )
        with pytest.raises(LogsUnavailable, match=said):
            await read(server, LogOptions(follow=follow))


async def test_a_pod_that_was_deleted_meanwhile_has_no_output() -> None:
    assert await read(server_with({"a-0": "Running"})) == []


async def test_a_pod_whose_node_does_not_know_it_yet_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.001)
    server = server_with({"a-0": "Running", "a-1": "Running"})
    server.logs["a-1"] = "there"
    looks = 0

    async def pods() -> list[Pod]:
        return await server.api.list(PODS, "team")

    async def over() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            server.logs["a-0"] = "at last"
        return looks > 5

    lines = [str(line) async for line in PodLogs(server.api, pods, over).read(LogOptions(follow=True))]
    assert sorted(lines) == ["[0] at last", "[1] there"]


async def test_without_a_started_pod_the_remedy_is_said() -> None:
    with pytest.raises(LogsUnavailable, match="read with follow=True"):
        await read(server_with({"a-0": "Pending"}))


async def test_too_many_pods_are_not_followed() -> None:
    server = server_with({f"a-{number}": "Running" for number in range(MAX_FOLLOWED + 1)})
    with pytest.raises(LogsUnavailable, match=f"more than {MAX_FOLLOWED} pods"):
        await read(server, LogOptions(follow=True))


def test_requests_are_bounded_unless_they_follow() -> None:
    assert LogOptions().query() == {"limitBytes": str(MAX_BYTES)}
    assert LogOptions(follow=True, tail=3, container="c").query() == {
        "follow": "true",
        "tailLines": "3",
        "container": "c",
    }
    assert str(LogLine("p", None, "x")) == "[p] x"
