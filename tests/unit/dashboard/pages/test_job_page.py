import asyncio
import re
from dataclasses import replace

import pytest
from support.dashboard_site import LISTS_ALL, Stage, at, job

from fluxqueue.dashboard.job_objects import JobObjects
from fluxqueue.dashboard.pages import job_page as module
from fluxqueue.dashboard.pages.job_page import find_job, job_page
from fluxqueue.dashboard.people import ProxyHeaders
from fluxqueue.dashboard.rendering import moment
from fluxqueue.dashboard.site import Asked, NoSuchPage
from fluxqueue.kube.kinds import EVENTS, PODS

BLUE = ("list", "fluxjobs", "blue")
MAY = ("patch", "fluxjobs", "blue")
PATH = {"namespace": "blue", "name": job("wrf").metadata.name}


async def asked(stage: Stage, *rights: tuple[str, str, str]) -> Asked:
    viewer = await stage.viewer("alice", *(rights or (BLUE,)))
    return Asked(viewer, await stage.site.visible(viewer), path=PATH)


async def html(stage: Stage, *rights: tuple[str, str, str]) -> str:
    return str((await job_page(stage.site, await asked(stage, *rights))).html)


async def test_it_says_why_and_until_when_as_explain_does() -> None:
    stage = Stage()
    stage.show(
        job("wrf", reason="WaitingForNodes", message="needs 24 cpu, 8 are free", position=1, eta=at(600))
    )
    text = await html(stage)
    assert "job/wrf in namespace blue waits in queue default at position 1" in text
    assert "needs 24 cpu, 8 are free" in text
    assert "<dt>What helps</dt>" in text


async def test_all_its_times_are_those_of_one_clock() -> None:
    stage = Stage()
    stage.show(job("wrf", reason="WaitingForNodes", eta=at(600)))
    text = await html(stage)
    assert f"estimated for {moment(at(600))}, in 10m" in text
    assert re.findall(r"[ >]\d\d:\d\d:\d\d", re.sub(r"<time.*?</time>", "", text)) == []


async def test_verbs_are_offered_to_who_may_and_as_far_as_they_are_possible() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    text = await html(stage, BLUE, MAY)
    assert all(f'id="{name}"' in text for name in ("hold", "prioritize", "move", "cancel"))
    assert 'id="release"' not in text
    stage.show(job("wrf", version=2, state="Running"))
    text = await html(stage, BLUE, MAY)
    assert 'id="cancel"' in text
    assert 'id="hold"' not in text
    assert "Hold, release, prioritize and move are not possible: it runs" in text


async def test_verbs_say_what_they_do_before_they_do_it() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    text = await html(stage, BLUE, MAY)
    assert 'id="hold" aria-describedby="hold-does"' in text
    assert "It leaves the queue and never starts." in text
    assert "it keeps its submit time there." in text
    stage.show(job("wrf", version=2, state="Running", spec={"pods": 4}))
    assert "It ends now: its 4 pods are stopped" in await html(stage, BLUE, MAY)


async def test_logs_are_linked_from_wherever_the_page_is_shown() -> None:
    stage = Stage()
    shown = job("wrf", state="Running", nodes="node-1")
    stage.show(shown)
    labels = {"batch.kubernetes.io/controller-uid": shown.spec.object_ref.uid}
    pod = {
        "metadata": {"name": "wrf-0", "namespace": "blue", "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    stage.api.objects[PODS.path("blue")] = {"items": [pod]}
    text = await html(stage, BLUE)
    assert f'href="/jobs/blue/{shown.metadata.name}?pod=wrf-0#log"' in text


async def test_work_that_runs_has_its_cost_so_far() -> None:
    class Costs:
        async def of_job(self, *_: object) -> str:
            return "0.50 EUR"

    stage = Stage()
    stage.show(job("wrf", state="Running"))
    site = replace(stage.site, costs=Costs())  # type: ignore[arg-type]
    text = str((await job_page(site, await asked(stage))).html)
    assert "<dt>Cost</dt><dd>0.50 EUR so far</dd>" in text


async def test_who_may_not_change_it_is_offered_nothing() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    text = await html(stage)
    assert "<form" not in text
    assert "the role edit there lets you" in text


async def test_pods_are_shown_by_rank() -> None:
    stage = Stage()
    stage.show(job("wrf", state="Running", nodes="node-[1-2]", spec={"pods": 2}))
    meta = {"name": "wrf-1", "uid": "u", "annotations": {"batch.kubernetes.io/job-completion-index": "1"}}
    pod = {"metadata": meta, "spec": {"nodeName": "node-7"}, "status": {"phase": "Running"}}
    stage.api.objects[PODS.path("blue")] = {"items": [pod]}
    text = await html(stage)
    assert "wrf-1" in text
    assert "node-7 <strong>(not its node)</strong>" in text


async def test_without_a_token_it_says_what_is_missing() -> None:
    stage = Stage(proxy=ProxyHeaders("secret"))
    stage.show(job("wrf"))
    stage.api.person("carol", LISTS_ALL)
    session, _ = stage.sessions.begin((await stage.viewer("carol")).person, "")
    question = await asked(stage)
    viewer = type(question.viewer)(session, proxied=True)
    text = str((await job_page(stage.site, Asked(viewer, question.visible, path=PATH))).html)
    assert "A proxy signed you in without a token" in text
    assert "There are no Events" not in text
    assert "It has no nodes." in text


async def test_what_could_not_be_read_is_not_said_to_be_missing() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    stage.api.objects[PODS.path("blue")] = stage.api.objects[EVENTS.path("blue")] = {"items": []}
    text = await html(stage)
    assert "There are no Events of the last hour" in text
    assert "It has no pods and no nodes" in text
    stage.api.refused = {("alice", PODS.path("blue")), ("alice", EVENTS.path("blue"))}
    text = await html(stage)
    assert "There are no Events" not in text
    assert "It has no nodes." in text
    assert "You may not read its Events." in text


async def test_what_is_not_seen_is_not_there() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    question = await asked(stage, ("list", "fluxjobs", "red"))
    with pytest.raises(NoSuchPage, match="that you may see"):
        find_job(stage.site, question)


async def test_the_objects_of_one_job_at_a_time_are_in_memory_for_one_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    stage.show(job("wrf"))
    question = await asked(stage)
    session = question.viewer.session
    people = [replace(session.person, username=f"p{number}") for number in range(9)]
    viewers = [replace(question.viewer, session=replace(session, person=person)) for person in people]
    running, most = 0, 0

    async def reading(_api: object, _job: object) -> JobObjects:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return JobObjects()

    monkeypatch.setattr(module, "read_objects", reading)
    await asyncio.gather(*(job_page(stage.site, question) for _ in range(60)))
    assert most == 1
    await asyncio.gather(*(job_page(stage.site, replace(question, viewer=viewer)) for viewer in viewers))
    assert most == 4


METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/blue/pods"


def running(stage: Stage) -> None:
    """Show a job that has run for 5 minutes of 20, on one node."""
    stage.show(
        job("wrf", state="Running", nodes="node-1", startedAt=at(-300), spec={"durationSeconds": 1200})
    )
    labels = {"batch.kubernetes.io/controller-uid": "uid-of-wrf"}
    pod = {
        "metadata": {"name": "wrf-0", "namespace": "blue", "labels": labels},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    stage.api.objects[PODS.path("blue")] = {"items": [pod]}


async def test_what_runs_is_compared_with_what_it_asked_for() -> None:
    stage = Stage()
    running(stage)
    measured = {"metadata": {"name": "wrf-0"}, "containers": [{"usage": {"cpu": "500m", "memory": "1Gi"}}]}
    stage.api.objects[METRICS] = {"items": [measured]}
    text = await html(stage)
    assert "0.5 of 2 (25%) in use now" in text
    assert "1 GiB, without a request, in use now" in text
    assert [who for who, _, path, _ in stage.api.asked if path == METRICS] == ["alice"]


async def test_without_figures_of_use_a_sentence_says_why() -> None:
    stage = Stage()
    running(stage)
    assert "not known: this cluster serves no metrics" in await html(stage)
    stage.api.refused = {("alice", PODS.path("blue"))}
    assert "not known: its pods cannot be read" in await html(stage)


async def test_ended_work_has_its_time_and_waiting_work_no_efficiency() -> None:
    stage = Stage()
    stage.show(job("wrf"))
    assert ">Efficiency<" not in await html(stage)
    stage.show(job("wrf", version=2, state="Completed", startedAt=at(-300), finishedAt=at(-225)))
    text = await html(stage)
    assert "75s of 5m (25%)" in text
    assert "Kubernetes keeps no figures of pods that have ended" in text


async def test_a_verb_says_how_many_others_may_start_earlier() -> None:
    stage = Stage()
    stage.show(
        job("wrf", position=2),
        job("ahead", position=1),
        job("behind", position=3),
        job("secret", "red", position=4),
        job("elsewhere", position=5, spec={"queue": "gpu"}),
    )
    text = await html(stage, BLUE, MAY)
    assert "It does not start until it is released. 1 other may start earlier." in text
    stage.show(job("wrf", version=2, state="Running", startedAt=at(-60)))
    stage.show(job("next", eta=at(240)), job("too", reservedAt=at(250)), job("later", eta=at(900)))
    assert "may be lost. 2 others may start earlier." in await html(stage, BLUE, MAY)
