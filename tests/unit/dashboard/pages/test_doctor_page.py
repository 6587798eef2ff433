from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dashboard_site import Stage
from support.queue_standin import QueueStandin, claims_token, run_queue_standin

from fluxqueue.dashboard.pages.doctor_page import doctor_page
from fluxqueue.dashboard.settings import QueueAddress
from fluxqueue.dashboard.site import Asked, Content

SYSTEM = "/api/v1/namespaces/fluxqueue-system"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueStandin]:
    with run_queue_standin(tmp_path) as running:
        yield running


async def page(stage: Stage) -> Content:
    viewer = await stage.viewer("alice")
    return await doctor_page(stage.site, Asked(viewer, await stage.site.visible(viewer)))


def stage(queue: QueueStandin) -> Stage:
    made = Stage(queue=QueueAddress(queue.url, queue.ca))
    made.api.objects[f"{SYSTEM}/pods"] = {"items": []}
    made.api.objects[f"{SYSTEM}/serviceaccounts/fluxqueue-doctor/token"] = {
        "status": {"token": claims_token("fluxqueue-doctor")}
    }
    return made


async def test_findings_have_their_remedies(queue: QueueStandin) -> None:
    text = (await page(stage(queue))).html
    assert "1 difference between" in text
    assert "Fluxion holds 4 cpu of node-2" in text
    assert "the next sweep frees it" in text


async def test_agreement_is_said(queue: QueueStandin) -> None:
    queue.answers["/doctor"] = {"findings": [], "repaired": []}
    assert "The cluster, the queue and its graph agree." in (await page(stage(queue))).html


async def test_who_may_not_ask_is_told_the_remedy(queue: QueueStandin) -> None:
    made = stage(queue)
    made.api.refused.add(("alice", f"{SYSTEM}/pods"))
    text = (await page(made)).html
    assert "You may not ask the doctor" in text
    assert "create rolebinding" in text
