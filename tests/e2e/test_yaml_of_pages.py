"""Every object in the documentation is one that a cluster with fluxqueue takes:
a dry run asks its schemas, policies and webhook.
"""

from __future__ import annotations

import json
from pathlib import Path

from support.end_to_end import Stage
from support.page_objects import PageObject, page_objects

from fluxqueue.api import names

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
HELD = ("Job", "Pod")


def refusal(stage: Stage, found: PageObject) -> str:
    """Return why an object is refused or not handled; nothing if all is well."""
    here = {key: value for key, value in found.document["metadata"].items() if key != "namespace"}
    text = json.dumps({**found.document, "metadata": here})
    done = stage.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=text, check=False)
    if done.returncode:
        return f"{found.title}: {done.stderr.strip()}"
    if done.stderr.strip():
        return f"{found.title}: warning: {done.stderr.strip()}"
    made = json.loads(done.stdout)
    seen = (made["metadata"].get("labels") or {}).get(names.SEEN_LABEL)
    return (
        f"{found.title}: the webhook did not handle it" if found.document["kind"] in HELD and not seen else ""
    )


def test_every_object_of_the_documentation_is_taken(stage: Stage) -> None:
    found = [each for page in PAGES for each in page_objects(page)]
    assert len(found) >= 20
    assert {each.document["kind"] for each in found} >= {
        "Job",
        "Pod",
        "Deployment",
        "FluxQueue",
        "FluxAccount",
        "FluxReservation",
    }
    named = [each for each in found if queue_of(each) not in ("", names.DEFAULT_QUEUE)]
    queues = {queue_of(each) for each in named}
    for queue in queues:
        stage.plugin("queue", "create", queue)
    knows = f"admission knows the queues of the pages: {', '.join(queues)}"
    stage.until(knows, lambda: not any("there is no queue" in refusal(stage, each) for each in named))
    assert [said for each in found if (said := refusal(stage, each))] == []
    stage.kubectl("delete", "fluxqueue", *queues)


def queue_of(found: PageObject) -> str:
    """Return the queue that an object names; empty if it names none."""
    return str((found.document["metadata"].get("labels") or {}).get(names.QUEUE_LABEL, ""))


def test_an_object_that_the_cluster_refuses_is_named(stage: Stage) -> None:
    job = next(each for page in PAGES for each in page_objects(page) if each.document["kind"] == "Job")
    wrong = {
        **job.document,
        "metadata": {"name": "wrong", "annotations": {names.DURATION_ANNOTATION: "soon"}},
    }
    assert names.DURATION_ANNOTATION in refusal(stage, PageObject("page.md", 1, wrong))
