import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from support.dashboard_site import InProcess, Stage, job

from fluxqueue.dashboard import pod_logs as module
from fluxqueue.dashboard.app import _EventStream
from fluxqueue.dashboard.pages.job_log import job_log
from fluxqueue.dashboard.pages.job_page import find_job
from fluxqueue.dashboard.pod_logs import cleaned, find_log, log_events, tail
from fluxqueue.dashboard.site import Asked
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound, ServerError
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.wire import Request

BLUE = ("list", "fluxjobs", "blue")
LOGS = ("get", "pods/log", "blue")
PATH = {"namespace": "blue", "name": job("wrf").metadata.name}
PAGE = f"/jobs/blue/{PATH['name']}"
LOG = PODS.path("blue", "wrf-0", "log")
RUNS: dict[str, Any] = {"running": {}}


def pod(
    name: str = "wrf-0", owner: str = "uid-of-wrf", phase: str = "Running", **main: Any
) -> dict[str, Any]:
    statuses = [{"name": "main", "restartCount": 0, "state": RUNS, **main}, {"name": "side", "state": RUNS}]
    return {
        "metadata": {
            "name": name,
            "namespace": "blue",
            "labels": {"batch.kubernetes.io/controller-uid": owner},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}, {"name": "side"}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def stage(*pods: dict[str, Any]) -> Stage:
    made = Stage()
    made.show(job("wrf", state="Running", nodes="node-1"))
    made.api.objects[PODS.path("blue")] = {"items": list(pods or (pod(),))}
    made.api.objects[LOG] = b"one\ntwo\n"
    return made


def ended(stage: Stage, code: int = 1) -> None:
    over = pod(state={"terminated": {"exitCode": code, "reason": "Error"}})
    stage.api.objects[PODS.path("blue")] = {"items": [over]}


async def asked(stage: Stage, *rights: tuple[str, str, str], **parameters: str) -> Asked:
    viewer = await stage.viewer("alice", *(rights or (BLUE, LOGS)))
    return Asked(viewer, await stage.site.visible(viewer), {"pod": "wrf-0", **parameters}, PATH)


def prints(stage: Stage, *pieces: list[bytes], then: Any = None) -> list[str]:
    """Let the pod print; returns what happens to its stream."""
    seen: list[str] = []

    async def lines(request: Request) -> AsyncGenerator[list[bytes], None]:
        seen.append(json.dumps(request.query))
        try:
            for piece in pieces:
                yield piece
            if then is None:
                await asyncio.Event().wait()
            then()
        finally:
            seen.append("closed")

    stage.api.logs[LOG] = lines
    return seen


async def events(stage: Stage, question: Asked, **options: float) -> AsyncIterator[dict[str, Any]]:
    async for event in log_events(stage.site, question, **options):
        for line in event.decode().splitlines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def test_lines_come_until_the_container_ends_which_is_said() -> None:
    made = stage()
    seen = prints(made, [b"one", b""], [b"two"], then=lambda: ended(made, 3))
    found = [each async for each in events(made, await asked(made))]
    assert found == [
        {"lines": [], "begin": True},
        {"lines": ["one", ""]},
        {"lines": ["two"]},
        {"why": "The container has ended, with exit code 3, Error."},
    ]
    assert seen == ['{"container": "main", "tailLines": "500", "follow": "true"}', "closed"]
    assert {who for who, _, path, _ in made.api.asked if path == LOG} == {"alice"}


async def test_nothing_is_read_on_when_the_browser_is_gone() -> None:
    made = stage()
    seen = prints(made, [b"one"])
    stream = log_events(made.site, await asked(made))
    for _ in range(3):
        await anext(stream)
    await stream.aclose()
    assert seen[-1] == "closed"


async def test_nothing_is_read_on_when_a_browser_goes_that_read_nothing() -> None:
    client = InProcess(stage())
    seen = prints(client.stage, [b"one"])
    await client.sign_in("alice", BLUE, LOGS)
    stalled, sent = asyncio.Event(), 0

    async def receive() -> dict[str, Any]:
        await stalled.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == 4:
            stalled.set()
            await asyncio.Event().wait()

    viewer = await client.stage.viewer("alice")
    question = Asked(viewer, await client.stage.site.visible(viewer), {"pod": "wrf-0"}, PATH)
    response = _EventStream(log_events(client.stage.site, question), lambda: seen.append("left"))
    await asyncio.wait_for(response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send), 10)
    assert seen[-2:] == ["closed", "left"]


async def test_a_right_that_is_taken_away_ends_a_log_that_is_silent() -> None:
    made = stage()
    seen = prints(made, [b"one"])
    found = events(made, await asked(made), look_s=0.01)
    assert [await anext(found) for _ in range(2)][1] == {"lines": ["one"]}
    made.api.rights.discard(("alice", *LOGS))
    made.clock.now += 20
    assert "You may not read logs in the namespace blue" in (await anext(found))["why"]
    assert seen[-1] == "closed"


@pytest.mark.parametrize("rights", [(BLUE,), (LOGS,)])
async def test_without_the_rights_no_log_is_opened(rights: tuple[tuple[str, str, str]]) -> None:
    made = stage()
    prints(made, [b"secret"])
    found = [each async for each in events(made, await asked(made, *rights))]
    assert len(found) == 1
    assert "You may not read logs" in found[0]["why"]
    assert not [path for _, _, path, _ in made.api.asked if path == LOG]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pod": "wrf-9"}, "The pod wrf-9 is not there: it was deleted, and its log with it."),
        ({"pod": "../secrets"}, "This is not the name of a pod"),
        ({"container": "other"}, "has no container 'other'"),
        ({"previous": "1"}, "was not started again"),
    ],
)
async def test_what_is_not_there_is_said(change: dict[str, str], sentence: str) -> None:
    made = stage()
    made.api.objects[PODS.path("blue")] = {"items": [] if change.get("pod") == "wrf-9" else [pod()]}
    (found,) = [each async for each in events(made, await asked(made, **change))]
    assert sentence in found["why"]


async def test_the_pod_of_another_job_has_no_log_here() -> None:
    made = stage(pod(owner="uid-of-another"))
    prints(made, [b"of another"])
    (found,) = [each async for each in events(made, await asked(made))]
    assert "is not there" in found["why"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (NotFound(404, "NotFound", "gone"), "The pod wrf-0 is gone, and its log with it."),
        (Forbidden(403, "Forbidden", "no"), "You may not read pods and their logs here"),
        (ServerError(502, "", "dial tcp: refused"), "does not come from the node node-1: dial tcp: refused"),
    ],
)
async def test_a_log_that_cannot_be_read_says_why_on_the_page(error: ApiError, sentence: str) -> None:
    client = InProcess(stage())
    client.stage.api.objects[LOG] = error
    await client.sign_in("alice", BLUE)
    answer = await client.get(f"{PAGE}?pod=wrf-0")
    assert answer.status == 200
    assert sentence in answer.text


async def test_a_container_that_has_not_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    made = stage(pod(state={"waiting": {"reason": "ContainerCreating"}}))
    prints(made, [b"one"], then=lambda: ended(made))
    found = events(made, await asked(made))
    assert await anext(found) == {"wait": "The container main has not started yet (ContainerCreating)."}
    made.api.objects[PODS.path("blue")] = {"items": [pod()]}
    assert (await anext(found))["begin"]


@pytest.mark.parametrize("between", ["waiting", "terminated"])
async def test_in_a_crash_loop_each_line_is_sent_once(between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    over = {"exitCode": 3, "reason": "Error"}
    state = {"waiting": {"reason": "CrashLoopBackOff"}} if between == "waiting" else {"terminated": over}
    down = pod(state=state, lastState={"terminated": over}, restartCount=1)
    down["spec"]["restartPolicy"] = "OnFailure"
    made = stage(down)
    seen = prints(made, [b"of run 1"], then=lambda: None)
    stream = log_events(made.site, await asked(made))
    texts = [(await anext(stream)).decode() for _ in range(8)]
    assert len([text for text in texts if "of run 1" in text]) == 1
    wait = "The container main ended with exit code 3, Error; it is started again."
    assert [text for text in texts if wait in text] == [f'data: {{"wait":"{wait}"}}\n\n']
    assert len(seen) == 2

    prints(made, [b"of run 2"], then=lambda: ended(made, 3))
    made.api.objects[PODS.path("blue")] = {"items": [pod(restartCount=2)]}
    rest = "".join([each.decode() async for each in stream])
    assert rest.count('"begin":true') == rest.count("of run 2") == 1
    assert "has ended, with exit code 3" in rest


async def test_an_init_container_that_succeeded_is_not_started_again() -> None:
    first = pod(state={"terminated": {"exitCode": 0, "reason": "Completed"}})
    first["spec"] |= {"restartPolicy": "Always", "initContainers": [{"name": "main"}]}
    made = stage(first)
    prints(made, [b"one"], then=lambda: None)
    found = [each async for each in events(made, await asked(made))]
    assert found[-1] == {"why": "The container has ended, with exit code 0, Completed."}


async def test_a_log_that_breaks_off_while_its_container_runs_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    made = stage()
    prints(made, [b"one"], then=lambda: None)
    found = events(made, await asked(made))
    assert [await anext(found) for _ in range(4)] == 2 * [{"lines": [], "begin": True}, {"lines": ["one"]}]


async def test_without_scripts_a_page_has_the_last_lines() -> None:
    client = InProcess(stage(pod(restartCount=2)))
    client.stage.api.objects[LOG] = b"<b>one</b>\n\x1b[31mtwo\x1b[0m\n"
    await client.sign_in("alice", BLUE)
    text = (await client.get(f"{PAGE}?pod=wrf-0")).text
    assert "&lt;b&gt;one&lt;/b&gt;\ntwo\n" in text
    assert "<option selected>main</option><option>side</option>" in text
    assert "2 restarts" in text
    assert f'data-log="{PAGE}/log?pod=wrf-0&amp;container=main"' in text
    assert 'id="log-text"' not in (await client.get(PAGE)).text


async def test_of_long_lines_the_last_are_shown() -> None:
    class Long:
        async def request(self, *_: Any, query: dict[str, str], **__: Any) -> bytes:
            last = [b"%d " % number + b"x" * 8_000 for number in range(500)][-int(query["tailLines"]) :]
            return b"\n".join(last)[: int(query["limitBytes"])]

    made = stage()
    question = await asked(made)
    log = await find_log(made.site.door.api(question.viewer), find_job(made.site, question), {"pod": "wrf-0"})
    lines = await tail(Long(), log)  # type: ignore[arg-type]
    assert lines[-1].startswith("499 ")


async def test_a_job_that_goes_while_its_page_is_made_has_no_log() -> None:
    made = stage()
    question = await asked(made)
    made.state.jobs.remove(job("wrf", state="Running", nodes="node-1"))
    assert await job_log(made.site, question) == ""


async def test_a_fast_log_is_slowed_down_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 200_000)
    monkeypatch.setattr(module, "_BURST_BYTES", 64 << 10)
    pauses: list[float] = []
    pause_s = module._Pace.pause_s

    def counted(pace: Any, size: int) -> float:
        pauses.append(pause_s(pace, size))
        return 0.0

    monkeypatch.setattr(module._Pace, "pause_s", counted)
    made = stage()
    prints(made, *([b"x" * 999] * 100 for _ in range(100)))
    found = [each async for each in events(made, await asked(made))]
    assert "MiB were shown" in found[-1]["why"]
    assert 190_000 <= sum(len(line) for each in found[:-1] for line in each["lines"]) < 300_000
    assert pauses[-1] > 1.5
    assert max(len(each["lines"]) for each in found[:-1]) <= 33


async def test_a_session_follows_some_logs_at_a_time() -> None:
    client = InProcess(stage())
    followed = prints(client.stage, [b"one"])
    await client.sign_in("alice", BLUE, LOGS)
    client.endless = True
    open_logs = [asyncio.create_task(client.get(f"{PAGE}/log?pod=wrf-0")) for _ in range(3)]
    async with asyncio.timeout(10):
        while len(followed) < len(open_logs):
            await asyncio.sleep(0)
    assert (await client.get(f"{PAGE}/log?pod=wrf-0")).status == 429
    for each in open_logs:
        each.cancel()
    await asyncio.gather(*open_logs, return_exceptions=True)
    assert (await InProcess(client.stage).get(f"{PAGE}/log?pod=wrf-0")).status == 401


def test_lines_command_no_terminal() -> None:
    assert cleaned(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07end\r") == "red end"
    assert cleaned(b"10%\r20%\x00\xff") == "10%␍20%␀�"
    assert cleaned(b"x" * 100_000) == "x" * 4_000 + " ..."
