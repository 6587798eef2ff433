"""What people see of a FluxJob, and which of its fields they may edit."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.builders import make_queue
from support.chart_installation import Installation, Person, fluxjob
from support.chart_rendering import SHARED

from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.usefixtures("installation")

STATUS = {
    "state": "Pending",
    "reason": "WaitingForNodes",
    "message": "2 of 4 nodes are free",
    "position": 3,
    "eta": "2030-01-02T03:04:05Z",
    "jobid": 41,
}


@pytest.fixture(scope="module", autouse=True)
def waiting(queue: Person, installation: object) -> None:
    assert queue.create({**fluxjob("waiting"), "status": STATUS}).ok


def _table(person: Person, *flags: str) -> tuple[list[str], str]:
    answer = person.run("get", "fj", "waiting", *flags)
    assert answer.ok, answer.output
    header, row = answer.output.splitlines()
    return header.split(), row


def test_kubectl_shows_state_queue_reason_and_when_it_starts(eve: Person) -> None:
    header, row = _table(eve)
    assert header == ["NAME", "STATE", "QUEUE", "NODES", "REASON", "ETA", "AGE"]
    assert row.split()[:5] == ["waiting", "Pending", "default", "WaitingForNodes", "2030-01-02T03:04:05Z"]


def test_kubectl_shows_more_when_asked(eve: Person) -> None:
    header, row = _table(eve, "--output=wide")
    assert header[7:] == ["POSITION", "PODS", "JOBID", "MESSAGE"]
    assert "2 of 4 nodes are free" in row


@pytest.mark.parametrize(
    ("field", "value"),
    [("hold", True), ("priority", 10), ("queue", "debug"), ("durationSeconds", 60), ("cancel", True)],
)
def test_a_person_steers_their_workload(alice: Person, queue: Person, field: str, value: Any) -> None:
    queue.create(fluxjob("steered"))
    assert alice.patch("fluxjob", "steered", {"spec": {field: value}}).ok
    assert alice.get("fluxjob", "steered")["spec"][field] == value


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        pytest.param({"jobspec": "{'version': 1}"}, "spec.jobspec", id="the request"),
        pytest.param({"pods": 1, "hold": True}, "spec.pods", id="the size, beside something that is theirs"),
        pytest.param({"jobspec": None}, "spec.jobspec", id="the request taken away"),
        pytest.param({"pods": 1, "jobspec": ""}, "spec.jobspec, spec.pods", id="two at once"),
    ],
)
def test_the_rest_of_the_spec_is_refused_by_field_also_to_an_administrator(
    alice: Person, root: Person, change: Any, fields: str
) -> None:
    for person in (alice, root):
        refused = person.patch("fluxjob", "waiting", {"spec": change})
        assert not refused.ok
        named, _, remedy = refused.output.partition(": written by fluxqueue only")
        assert sorted(named.split("denied request: ")[-1].split(", ")) == fields.split(", ")
        assert remedy.startswith(
            "; you can change spec.hold, spec.cancel, spec.priority, spec.queue, spec.durationSeconds"
        )


def test_the_queue_rewrites_a_request_that_was_edited(queue: Person) -> None:
    queue.create(fluxjob("edited"))
    assert queue.patch("fluxjob", "edited", {"spec": {"jobspec": "{'version': 1}", "pods": 8}}).ok


def test_a_fluxjob_refers_to_one_object_even_for_the_queue(queue: Person) -> None:
    refused = queue.patch("fluxjob", "waiting", {"spec": {"objectRef": {"uid": "u-2"}}})
    assert refused.refused_with("objectRef cannot change: a FluxJob stands for one object for all its life")


def test_people_neither_make_nor_delete_fluxjobs(alice: Person, root: Person) -> None:
    assert alice.create(fluxjob("own")).refused_with("forbidden")
    assert alice.run("delete", "fluxjob", "waiting").refused_with("forbidden")
    assert root.create(fluxjob("own")).refused_with(
        "FluxJobs are made by fluxqueue, one for each Job and Pod of a managed namespace"
    )


def test_the_queue_creates_a_fluxjob_with_its_status(queue: Person, eve: Person) -> None:
    assert queue.create({**fluxjob("at-once"), "status": {"state": "Running", "jobid": 7}}).ok
    assert eve.get("fluxjob", "at-once")["status"] == {"state": "Running", "jobid": 7}


CHANGES = pytest.mark.parametrize(
    "change", [{"state": "Running"}, {"jobid": 9_000_000_000}, {"jobid": None}, None]
)


@CHANGES
def test_the_status_is_the_queue_s(alice: Person, root: Person, queue: Person, change: Any) -> None:
    for person in (alice, root):
        refused = person.patch("fluxjob", "waiting", {"status": change, "spec": {"priority": 3}})
        assert refused.refused_with("the status of a FluxJob is written by fluxqueue only"), refused.output
        assert person.patch("fluxjob", "waiting", {"spec": {"priority": 4}}, "--dry-run=server").ok
        assert not person.patch("fluxjob", "waiting", {"status": {"jobid": 42}}, "--subresource=status").ok, (
            "there is none"
        )
    assert queue.patch("fluxjob", "waiting", {"status": STATUS}).ok


@pytest.fixture
def with_the_subresource(installation: Installation) -> Iterator[None]:
    """The kind as versions up to 0.1 defined it: in a rollback, or where another tool keeps the CRDs."""
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fluxjobs.jobs.converged-computing.org"
    client = installation.cluster.client

    def switch(subresources: Any) -> None:
        client.request(
            "PATCH", crd, {"spec": {"versions": [{**version, "subresources": subresources}]}}, patch="merge"
        )

    def served() -> bool:
        kinds = client.get("/apis/jobs.converged-computing.org/v1alpha1")["resources"]
        return any(each["name"] == "fluxjobs/status" for each in kinds)

    (version,) = client.get(crd)["spec"]["versions"]
    switch({"status": {}})
    wait_until(served, "the subresource", 30)
    yield
    switch(None)
    wait_until(lambda: not served(), "no subresource", 30)


@pytest.mark.usefixtures("with_the_subresource")
@CHANGES
def test_the_status_of_an_older_crd_is_the_queue_s_too(
    alice: Person, root: Person, queue: Person, change: Any
) -> None:
    before = root.get("fluxjob", "waiting")["status"]
    assert alice.patch("fluxjob", "waiting", {"status": change}, "--subresource=status").refused_with(
        "forbidden"
    )
    refused = root.patch("fluxjob", "waiting", {"status": change}, "--subresource=status")
    assert refused.refused_with("the status of a FluxJob is written by fluxqueue only"), refused.output
    for person in (alice, root):
        person.patch("fluxjob", "waiting", {"status": change, "spec": {"priority": 3}})
        assert root.get("fluxjob", "waiting")["status"] == before, (
            "dropped by the API server, or refused by the policy"
        )
    assert queue.patch("fluxjob", "waiting", {"status": STATUS}, "--subresource=status").ok


def test_a_viewer_changes_nothing(eve: Person) -> None:
    assert eve.patch("fluxjob", "waiting", {"spec": {"hold": True}}).refused_with("forbidden")


@pytest.mark.parametrize(
    ("status", "named"),
    [
        ({"state": "Sleeping"}, "status.state"),
        ({"reason": "Because"}, "status.reason"),
        ({"outcome": "Fine"}, "status.outcome"),
        ({"position": 0}, "status.position"),
        ({"eta": "tomorrow"}, "status.eta"),
    ],
)
def test_a_status_outside_the_closed_sets_is_refused_even_to_the_queue(
    queue: Person, status: Any, named: str
) -> None:
    assert queue.patch("fluxjob", "waiting", {"status": status}).refused_with(named)


def test_a_reason_that_went_is_cleared_either_way(queue: Person) -> None:
    queue.create(fluxjob("cleared"))
    for gone in ("", None):
        assert queue.patch("fluxjob", "cleared", {"status": STATUS}).ok
        assert queue.patch("fluxjob", "cleared", {"status": {"reason": gone, "eta": None}}).ok


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"durationSeconds": -1}, "spec.durationSeconds"),
        ({"durationSeconds": "1h"}, "spec.durationSeconds"),
        ({"durationSeconds": 315_360_001}, "spec.durationSeconds"),
        ({"queue": "Not A Queue"}, "spec.queue"),
        ({"priority": 2**31}, "spec.priority"),
    ],
)
def test_nonsense_is_refused_to_a_person_by_field(alice: Person, spec: Any, named: str) -> None:
    assert alice.patch("fluxjob", "waiting", {"spec": spec}).refused_with(named)


def test_the_default_queue_is_there_and_read_by_everybody(eve: Person) -> None:
    spec = eve.get("fluxqueue", "default")["spec"]
    assert spec == {
        "policy": "easy",
        "state": "open",
        "priority": 0,
        "maxPriority": 0,
        "defaultDurationSeconds": 3600,
        "enforceDuration": {"enabled": True, "onlyStated": True, "graceSeconds": 60},
    }
    assert "default" in eve.run("get", "fq").output


def test_the_default_queue_of_a_shared_cluster_is_accepted(root: Person) -> None:
    spec = yaml.safe_load(SHARED.read_text())["defaultQueue"]["spec"]
    answer = root.create(make_queue("shared", **spec), "--dry-run=server", "--validate=strict")
    assert answer.ok, answer.output


def test_queues_are_made_by_operators_only(alice: Person, root: Person) -> None:
    debug = make_queue(
        "debug",
        policy="conservative",
        reservationDepth=10,
        limits={"running": 4, "perNamespace": {"nodes": 2}},
    )
    assert alice.create(debug).refused_with("forbidden")
    assert root.create(debug).ok


def flavor(name: str, wait_s: int = 0) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"capacity": name}, "waitSeconds": wait_s}


def test_a_queue_may_have_eight_flavors(root: Person) -> None:
    flavors = [flavor(f"f{number}", 60 * number) for number in range(8)]
    answer = root.create(make_queue("many", flavors=flavors), "--dry-run=server", "--validate=strict")
    assert answer.ok, answer.output


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param(
            {"policy": "fcfs", "reservationDepth": 3},
            "reservationDepth is for the policies hybrid and conservative",
            id="fcfs that reserves",
        ),
        pytest.param(
            {"reservationDepth": 3},
            "reservationDepth is for the policies hybrid and conservative",
            id="easy of another depth",
        ),
        pytest.param(
            {"maxDurationSeconds": 60},
            "defaultDurationSeconds is longer than maxDurationSeconds",
            id="a default beyond the maximum",
        ),
        pytest.param(
            {"priority": 10, "maxPriority": 5},
            "priority is higher than maxPriority",
            id="a priority it does not allow itself",
        ),
        pytest.param({"policy": "magic"}, "spec.policy", id="an unknown policy"),
        pytest.param({"matchPolicy": "magic"}, "spec.matchPolicy", id="an unknown match policy"),
        pytest.param(
            {"planning": {"reservedNodes": "best"}},
            "spec.planning.reservedNodes",
            id="an unknown choice of nodes",
        ),
        pytest.param(
            {"planning": {"backfillDurations": "guessed"}},
            "spec.planning.backfillDurations",
            id="unknown durations",
        ),
        pytest.param({"preemption": "always"}, "spec.preemption", id="an unknown kind of preemption"),
        pytest.param({"defaultDurationSeconds": 0}, "spec.defaultDurationSeconds", id="no time at all"),
        pytest.param({"maxDurationSeconds": -60}, "spec.maxDurationSeconds", id="less than no time"),
        pytest.param(
            {"maxDurationSeconds": 315_360_001}, "spec.maxDurationSeconds", id="more than ten years"
        ),
        pytest.param({"atLimit": "wait"}, "spec.atLimit", id="nothing that it could do at a limit"),
        pytest.param({"state": "closed"}, "spec.state", id="an unknown state"),
        pytest.param({"limits": {"running": -1}}, "spec.limits.running", id="less than nothing"),
        pytest.param(
            {"flavors": [flavor("a", 60)]},
            "the first flavor has waitSeconds",
            id="a wait for the first flavor",
        ),
        pytest.param(
            {"flavors": [flavor("a"), flavor("b", 60), flavor("c", 59)]},
            "a flavor has fewer waitSeconds than the one before it",
            id="flavors out of order",
        ),
        pytest.param({"flavors": [flavor("a"), flavor("a")]}, "spec.flavors[1]", id="two flavors of a name"),
        pytest.param(
            {"flavors": [flavor(f"f{number}") for number in range(9)]}, "spec.flavors", id="nine flavors"
        ),
        pytest.param(
            {"flavors": [{**flavor("a"), "nodeSelector": {}}]},
            "spec.flavors[0].nodeSelector",
            id="a flavor without labels",
        ),
        pytest.param(
            {"flavors": [flavor("a")], "provision": "pods"},
            "flavors are not together with provision",
            id="flavors of nodes that are requested",
        ),
    ],
)
def test_a_contradictory_queue_is_refused_with_a_sentence(root: Person, spec: Any, sentence: str) -> None:
    assert root.create(make_queue("odd", **spec)).refused_with(sentence)


def test_a_queue_s_name_fits_into_a_label(root: Person) -> None:
    assert root.create(make_queue("q" * 64)).refused_with("metadata.name")
    assert root.create(make_queue("a.b")).refused_with("metadata.name")
