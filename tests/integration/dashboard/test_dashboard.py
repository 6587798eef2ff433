"""The dashboard against a real API server: who sees what, who may change what, and what arrives by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from support.dashboard_stage import Browserless, RunningDashboard, change, create, fluxjob, make_person, read

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import fluxjob_name
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

Browse = Callable[[str], Browserless]

WAITS = fluxjob_name("Job", "waits", "uid-of-waits")
SECRET = fluxjob_name("Job", "secret", "uid-of-secret")


def eventually(question: Callable[[], bool]) -> None:
    wait_until(question, "it to hold", 60)


def test_nothing_is_shown_before_somebody_signs_in(dashboard: RunningDashboard) -> None:
    client = Browserless(dashboard.port)
    for path in ("/", f"/jobs/blue/{WAITS}"):
        answer = client.get(path)
        assert answer.status == 303
        assert answer.headers["location"].startswith("/sign-in?next=")
    assert client.get("/live/queue").status == 401
    assert client.get("/sign-in").status == 200


def test_a_wrong_token_is_refused_with_a_sentence(dashboard: RunningDashboard) -> None:
    answer = Browserless(dashboard.port).sign_in("eyJhbGciOiJSUzI1NiJ9.e30.AAAA")
    assert answer.status == 401
    assert "The API server does not accept this token" in answer.text
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    dashboard: RunningDashboard, tokens: dict[str, str]
) -> None:
    answer = Browserless(dashboard.port).sign_in(tokens["viewer"])
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("__host-fluxqueue=")
    for attribute in ("httponly", "secure", "samesite=lax", "path=/", "max-age=3600"):
        assert attribute in cookie
    assert tokens["viewer"] not in cookie


def test_people_see_the_work_of_namespaces_that_they_may_list(browse: Browse) -> None:
    seen = {who: browse(who).get("/queue").text for who in ("viewer", "operator", "nobody")}
    assert "job/waits" in seen["viewer"]
    assert "job/secret" not in seen["viewer"]
    assert "red" not in seen["viewer"].split("<main", 1)[1]
    assert "job/waits" in seen["operator"]
    assert "job/secret" in seen["operator"]
    assert "job/" not in seen["nobody"]
    assert "No job that you may see matches" in seen["nobody"]


def test_a_job_of_another_tenant_looks_like_one_that_is_not_there(browse: Browse) -> None:
    viewer = browse("viewer")
    hidden = viewer.get(f"/jobs/red/{SECRET}")
    missing = viewer.get("/jobs/red/job-missing")
    assert (hidden.status, missing.status) == (404, 404)
    assert hidden.text.replace(SECRET, "X") == missing.text.replace("job-missing", "X")
    assert viewer.get("/queue?q=secret").text.count("job/secret") == 0


def test_hostile_texts_are_shown_as_texts(browse: Browse) -> None:
    operator = browse("operator")
    for path in (
        "/",
        f"/jobs/red/{SECRET}",
        "/queue?q=%3Cscript%3Ealert(1)%3C/script%3E&queue=%22%3E%3Cb%3E",
    ):
        answer = operator.get(path)
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert '"><b>' not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in operator.get(f"/jobs/red/{SECRET}").text


def test_the_page_of_a_job_says_why_and_until_when(browse: Browse) -> None:
    text = browse("viewer").get(f"/jobs/blue/{WAITS}").text
    assert "job/waits in namespace blue waits in queue default at position 1" in text
    assert "needs 24 cpu, 8 are free" in text
    assert "What helps" in text
    assert "Submitted" in text
    assert "You may not change work in the namespace blue" in text
    assert "YAML of FluxJob" in text
    assert "Its object cannot be found" in text


def test_an_editor_holds_and_cancels_with_his_own_token(browse: Browse, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("to-hold", "blue"))
    cluster.apply(
        {"apiVersion": names.API_VERSION, "kind": "FluxQueue", "metadata": {"name": "night"}, "spec": {}}
    )
    editor = browse("editor")
    path = f"/jobs/blue/{name}"
    eventually(lambda: editor.get(path).status == 200)
    page = editor.get(path)
    uid = read(cluster, "blue", name)["metadata"]["uid"]
    assert editor.post(f"{path}/hold", {"csrf": page.csrf, "uid": uid}).status == 303
    held = read(cluster, "blue", name)
    assert held["spec"]["hold"] is True
    manager = [
        entry for entry in held["metadata"]["managedFields"] if entry["manager"] == "fluxqueue-dashboard"
    ]
    assert len(manager) == 1
    assert "Job/to-hold is held." in editor.get(path).text
    assert "Job/to-hold is held." not in editor.get(path).text
    for verb, fields, expected in (
        ("release", {}, {"hold": False}),
        ("prioritize", {"priority": "50"}, {"priority": 50}),
        ("move", {"queue": "night"}, {"queue": "night"}),
        ("cancel", {}, {"cancel": True}),
    ):
        eventually(lambda verb=verb: f'action="{path}/{verb}"' in editor.get(path).text)  # type: ignore[misc]
        assert editor.post(f"{path}/{verb}", {"csrf": page.csrf, "uid": uid, **fields}).status == 303
        assert expected.items() <= read(cluster, "blue", name)["spec"].items()


def test_a_viewer_is_refused_by_the_api_server(browse: Browse, cluster: ControlPlane) -> None:
    viewer = browse("viewer")
    page = viewer.get(f"/jobs/blue/{WAITS}")
    uid = read(cluster, "blue", WAITS)["metadata"]["uid"]
    answer = viewer.post(f"/jobs/blue/{WAITS}/hold", {"csrf": page.csrf, "uid": uid})
    assert answer.status == 409
    assert "you may not hold work in the namespace blue" in answer.text
    assert not read(cluster, "blue", WAITS)["spec"].get("hold")


def test_forms_of_other_sites_and_sessions_are_refused(browse: Browse, cluster: ControlPlane) -> None:
    editor, other = browse("editor"), browse("editor")
    csrf, foreign = editor.get("/queue").csrf, other.get("/queue").csrf
    path, uid = f"/jobs/blue/{WAITS}/hold", read(cluster, "blue", WAITS)["metadata"]["uid"]
    assert csrf != foreign
    assert editor.post(path, {"csrf": foreign, "uid": uid}).status == 403
    assert editor.post(path, {"uid": uid}).status == 403
    assert editor.post(path, {"csrf": csrf, "uid": uid}, sec_fetch_site="cross-site").status == 403
    assert editor.post(path, {"csrf": csrf, "uid": uid}, origin="https://evil.example").status == 403
    assert editor.post(path, {"csrf": csrf, "uid": uid}, content_type="text/plain").status == 400
    assert editor.post(path, {"csrf": csrf, "uid": "another"}).status == 409
    assert not read(cluster, "blue", WAITS)["spec"].get("hold")


def test_signing_out_ends_the_session(browse: Browse) -> None:
    viewer = browse("viewer")
    cookies = dict(viewer.cookies)
    assert viewer.post("/sign-out", {"csrf": viewer.get("/queue").csrf}).status == 303
    viewer.cookies = cookies
    assert viewer.get("/queue").status == 303


def test_a_deleted_account_loses_its_session(
    browse: Browse, cluster: ControlPlane, dashboard: RunningDashboard
) -> None:
    token = make_person(cluster, "leaver", {"blue": "view"})
    client = Browserless(dashboard.port)
    assert client.sign_in(token).status == 303
    assert client.get("/queue").status == 200
    cluster.client.request("DELETE", "/api/v1/namespaces/people/serviceaccounts/leaver")
    wait_until(lambda: client.get("/queue").status == 303, "the session to end", 120)


def test_changes_arrive_as_rows(browse: Browse, cluster: ControlPlane) -> None:
    name = create(cluster, fluxjob("alive", "blue"))
    viewer = browse("viewer")
    eventually(lambda: "job/alive" in viewer.get("/queue").text)
    uid = read(cluster, "blue", name)["metadata"]["uid"]
    events = viewer.events("/live/queue?version=none")
    assert uid in json.loads(next(events))["rows"]
    change(cluster, "blue", name, status={"state": "Running", "nodes": "node-3"})
    update = next(each for each in map(json.loads, events) if uid in each["rows"])
    assert "node-3" in update["rows"][uid]
    assert "Running" in update["rows"][uid]
    assert uid in update["order"]
    create(cluster, fluxjob("hidden", "red"))
    cluster.client.request(
        "DELETE", f"/apis/jobs.converged-computing.org/v1alpha1/namespaces/blue/fluxjobs/{name}"
    )
    gone = next(each for each in map(json.loads, events) if uid not in each["order"])
    assert "hidden" not in json.dumps(gone)


def test_a_right_that_is_taken_away_ends_the_view(cluster: ControlPlane, dashboard: RunningDashboard) -> None:
    token = make_person(cluster, "former", {"blue": "view"})
    client = Browserless(dashboard.port)
    assert client.sign_in(token).status == 303
    assert "job/waits" in client.get("/queue").text
    events = client.events("/live/queue?version=none", seconds=120)
    assert json.loads(next(events))["order"]
    cluster.client.request(
        "DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/blue/rolebindings/former-view"
    )
    assert next(each for each in map(json.loads, events) if not each["order"])
    assert "job/waits" not in client.get("/queue").text


def test_the_log_has_no_token(dashboard: RunningDashboard, tokens: dict[str, str], browse: Browse) -> None:
    browse("viewer").get("/queue")
    log = dashboard.log.read_text()
    assert "session.begun" in log
    for token in tokens.values():
        assert token not in log
        assert token.rpartition(".")[2] not in log


@pytest.mark.parametrize(
    "path", ["/static/000000000000/live.js", "/static/x/../main.py", "/none", "/live/none"]
)
def test_other_addresses_are_refused_in_words(path: str, browse: Browse) -> None:
    answer = browse("viewer").get(path)
    assert answer.status == 404
    assert "Traceback" not in answer.text


def test_a_probe_needs_no_session(dashboard: RunningDashboard) -> None:
    client = Browserless(dashboard.port)
    assert client.get("/healthz").status == 200
    assert time.monotonic() > 0
