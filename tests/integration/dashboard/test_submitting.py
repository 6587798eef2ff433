"""The page Submit against a real API server: what is written, tried and created, by whom."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.builders import make_job
from support.dashboard_stage import Browserless

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane

Browse = Callable[[str], Browserless]
FORM = {
    "namespace": "blue",
    "image": "example/solver",
    "command": "solve",
    "nodes": "2",
    "cpus": "8",
    "time": "10m",
}


def as_admitted(name: str, nodes: int) -> str:
    """Return a Job as the webhook would have it, which is not here."""
    job = make_job(name).indexed(nodes).cpu("1").suspended().annotation(names.DURATION_ANNOTATION, "10m")
    job = job.annotation(names.SUSPENDED_BY_ANNOTATION, names.SUSPENDED_BY_WEBHOOK).label(
        names.SEEN_LABEL, names.SEEN_VALUE
    )
    return json.dumps(job.with_("metadata.namespace", "blue").build())


def press(client: Browserless, action: str, **fields: str) -> Any:
    return client.post("/submit", {"csrf": client.get("/submit").csrf, "action": action, **fields})


def jobs(cluster: ControlPlane) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in cluster.client.get("/apis/batch/v1/namespaces/blue/jobs")["items"]
    }


def test_the_form_writes_a_job_that_can_be_changed(browse: Browse) -> None:
    answer = press(browse("editor"), "write", **FORM)
    assert answer.status == 200
    assert "kind: Job" in answer.text
    assert "completions: 2" in answer.text
    wrong = press(browse("editor"), "write", **{**FORM, "time": "soon"})
    assert wrong.status == 409
    assert "soon" in wrong.text


def test_a_trial_says_when_and_where_and_creates_nothing(browse: Browse, cluster: ControlPlane) -> None:
    answer = press(browse("operator"), "try", manifest=as_admitted("tried", 2))
    assert answer.status == 200, answer.text
    assert "What would become of job/tried" in answer.text
    assert '<p class="big">Starts ' in answer.text  # when depends on the work that the other tests have left
    never = press(browse("operator"), "try", manifest=as_admitted("tried", 90))
    assert "No start is known" in never.text
    assert "wants 90 pods" in never.text
    assert "tried" not in jobs(cluster)


def test_fields_that_changed_since_they_wrote_the_job_are_not_dropped(
    browse: Browse, cluster: ControlPlane
) -> None:
    editor = browse("editor")
    written = press(editor, "write", **FORM)
    mark = re.search(r'name="written" value="([^"]+)"', written.text)
    assert mark is not None
    manifest = as_admitted("fields", 2)
    changed = press(editor, "create", **{**FORM, "nodes": "4"}, manifest=manifest, written=mark[1])
    assert changed.status == 409
    assert "The fields have changed since they wrote the Job" in changed.text
    by_hand = press(editor, "write", **FORM, manifest=manifest, written=mark[1])
    assert "The Job was changed by hand" in by_hand.text
    assert "fields" not in jobs(cluster)


def test_a_job_that_would_not_wait_for_its_turn_is_not_created(browse: Browse, cluster: ControlPlane) -> None:
    plain = json.loads(as_admitted("plain", 1))
    del plain["metadata"]["labels"]
    answer = press(browse("editor"), "create", manifest=json.dumps(plain))
    assert "Fluxqueue does not manage namespace blue" in answer.text
    plain["metadata"]["labels"] = {names.MANAGED_LABEL: "false"}
    assert "keep it out of the queue" in press(browse("editor"), "create", manifest=json.dumps(plain)).text
    assert "plain" not in jobs(cluster)


def test_who_may_not_read_the_cluster_learns_that_the_job_would_be_accepted(browse: Browse) -> None:
    answer = press(browse("editor"), "try", manifest=as_admitted("tried", 1))
    assert "It would be accepted. There is no forecast, which reads the whole cluster" in answer.text


def test_a_job_is_created_in_the_name_of_the_person(browse: Browse, cluster: ControlPlane) -> None:
    editor = browse("editor")
    answer = press(editor, "create", manifest=as_admitted("made", 1))
    assert (answer.status, answer.headers["location"]) == (303, "/queue?namespace=blue")
    assert "job/made in blue is submitted." in editor.get("/queue?namespace=blue").text
    assert "made" in jobs(cluster)
    again = press(editor, "create", manifest=as_admitted("made", 1))
    assert again.status == 409
    assert "already exists" in again.text


@pytest.mark.parametrize("action", ["try", "create"])
def test_who_may_not_create_jobs_is_told_so(action: str, browse: Browse, cluster: ControlPlane) -> None:
    answer = press(browse("viewer"), action, manifest=as_admitted("refused", 1))
    assert answer.status == 409
    assert "cannot create resource" in answer.text
    assert "refused" not in jobs(cluster)


def test_a_field_that_does_not_exist_is_refused(browse: Browse) -> None:
    manifest = json.loads(as_admitted("typo", 1))
    manifest["spec"]["paralelism"] = 3
    answer = press(browse("editor"), "create", manifest=json.dumps(manifest))
    assert answer.status == 409
    assert "paralelism" in answer.text


def test_a_form_of_another_site_submits_nothing(browse: Browse, cluster: ControlPlane) -> None:
    editor = browse("editor")
    fields = {"csrf": editor.get("/submit").csrf, "action": "create", "manifest": as_admitted("foreign", 1)}
    assert editor.post("/submit", fields, sec_fetch_site="cross-site").status == 403
    assert editor.post("/submit", {**fields, "csrf": "0" * 32}).status == 403
    assert "foreign" not in jobs(cluster)
