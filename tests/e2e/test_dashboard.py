"""The dashboard with the real queue behind it: a person finds out why work waits, steers it,
and reads what became of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import JobBuilder, make_job
from support.dashboard_stage import Browserless
from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.local.cluster_options import ClusterOptions
from fluxqueue.local.inprocess import InProcessCluster

ACCOUNT = "fluxqueue-history"


@pytest.fixture(scope="module")
def whole_cluster(service_folder: Path) -> Iterator[InProcessCluster]:
    """A cluster whose chart enables the dashboard, as that of the demo."""
    cluster = InProcessCluster(
        service_folder / "e2e-dashboard", ClusterOptions(nodes=2, values={"dashboard": {"enabled": True}})
    )
    cluster.start()
    yield cluster
    cluster.destroy()


def job(name: str, cpu: str = "2") -> JobBuilder:
    return make_job(name).cpu(cpu).pod_annotation("fluxqueue.local/run-seconds", "0.5")


def browser(stage: Stage, account: str) -> Browserless:
    """Sign in with a token of a ServiceAccount of the stage's namespace."""
    status = next(each for each in stage.cluster.running() if each.name == "dashboard")
    assert status.port is not None
    client = Browserless(status.port)
    path = f"/api/v1/namespaces/{stage.namespace}/serviceaccounts/{account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3_600},
    }
    token = stage.cluster.control_plane.client.request("POST", path, body)["status"]["token"]
    stage.until("the dashboard serves", lambda: client.get("/readyz").status == 200)
    assert client.sign_in(token).status == 303
    return client


@pytest.fixture
def person(stage: Stage) -> Browserless:
    """Somebody with the role edit in the namespace, whose history may be read."""
    stage.kubectl("create", "serviceaccount", "me")
    stage.kubectl(
        "create", "rolebinding", "me", "--clusterrole=edit", f"--serviceaccount={stage.namespace}:me"
    )
    stage.kubectl("create", "serviceaccount", ACCOUNT)
    stage.kubectl(
        "create",
        "rolebinding",
        ACCOUNT,
        f"--clusterrole={ACCOUNT}",
        f"--serviceaccount={stage.namespace}:{ACCOUNT}",
    )
    return browser(stage, "me")


def address(stage: Stage, name: str) -> tuple[str, str]:
    """Return the path of the page of a job, and the uid of its FluxJob."""
    found = next(each for each in stage.fluxjobs() if each.spec.object_ref.name == name)
    return f"/jobs/{stage.namespace}/{found.metadata.name}", found.metadata.uid


def test_a_person_finds_out_why_his_job_waits_and_holds_and_cancels_it(
    stage: Stage, person: Browserless
) -> None:
    stage.apply(job("waits", "512").build())
    stage.until_reason("waits", Reason.UNSATISFIABLE)
    path, uid = address(stage, "waits")
    stage.until("the page says why", lambda: "Unsatisfiable" in person.get(path).text)
    page = person.get(path)
    assert "What helps" in page.text
    assert "YAML of Job waits" in page.text
    assert person.post(f"{path}/hold", {"csrf": page.csrf, "uid": uid}).status == 303
    stage.until_reason("waits", Reason.HELD)
    assert person.post(f"{path}/cancel", {"csrf": page.csrf, "uid": uid}).status == 303
    stage.until_state("waits", State.CANCELLED)
    stage.until("the page shows the end", lambda: "<strong>Cancelled</strong>" in person.get(path).text)


def test_what_ran_has_its_way_and_is_in_the_history(stage: Stage, person: Browserless) -> None:
    stage.apply(job("ran").build())
    stage.until_state("ran", State.COMPLETED)
    path, _ = address(stage, "ran")
    stage.until("the page shows the end", lambda: "<strong>Completed</strong>" in person.get(path).text)
    text = person.get(path).text
    for step in ("Submitted", "Allocated", "Running"):
        assert f'<li class="done"><strong>{step}</strong>' in text
    stage.until(
        "the history has it", lambda: "job/ran" in person.get(f"/history?namespace={stage.namespace}").text
    )
    assert "Use of cores by " in person.get(f"/history?namespace={stage.namespace}").text
    assert "You may not ask the doctor" in person.get("/doctor").text


def test_an_operator_asks_the_doctor(stage: Stage) -> None:
    stage.kubectl("create", "serviceaccount", "operator")
    binding = f"operator-{stage.namespace}"
    stage.kubectl(
        "create",
        "clusterrolebinding",
        binding,
        "--clusterrole=cluster-admin",
        f"--serviceaccount={stage.namespace}:operator",
    )
    try:
        operator = browser(stage, "operator")
        stage.until(
            "all agree", lambda: "The cluster, the queue and its graph agree." in operator.get("/doctor").text
        )
        assert "2 ready." in operator.get("/nodes").text
        assert "default" in operator.get("/limits").text
    finally:
        stage.kubectl("delete", "clusterrolebinding", binding)
