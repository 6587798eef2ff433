"""An allocation in an object is trustworthy, because only the queue can write it there."""

import pytest
from support.builders import Builder, make_job, make_pod
from support.chart_installation import JOB_CONTROLLER, Installation, Person

from fluxqueue.api.templatepins import node_affinity
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

pytestmark = pytest.mark.usefixtures("installation")

WRITTEN_BY_US = (
    "fluxqueue/allocation, fluxqueue/fluxion-nodes, fluxqueue/gang-size, fluxqueue/pin-until, "
    "fluxqueue/jobid and fluxqueue/pinned are written by fluxqueue only, not by "
)
ALLOCATION = {"fluxqueue/allocation": "7", "fluxqueue/fluxion-nodes": "node-1"}
TEMPLATE_ALLOCATION = {"spec": {"template": {"metadata": {"annotations": ALLOCATION}}}}
RELEASE = {"spec": {"suspend": False, "template": {"metadata": {"annotations": ALLOCATION}}}}
UNGATE = {"spec": {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}}


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(make_job("forged").annotation("fluxqueue/allocation", "7"), id="on a Job"),
        pytest.param(make_job("forged").label("fluxqueue/jobid", "7"), id="as a label of a Job"),
        pytest.param(
            make_job("forged").pod_annotation("fluxqueue/fluxion-nodes", "node-1"), id="in a Job's template"
        ),
        pytest.param(
            make_job("forged").pod_label("fluxqueue/jobid", "7"), id="as a label in a Job's template"
        ),
        pytest.param(make_pod("forged").allocation("node-1"), id="on a Pod"),
        pytest.param(make_pod("forged").label("fluxqueue/jobid", "7"), id="as a label of a Pod"),
    ],
)
def test_an_allocation_cannot_be_forged_even_by_an_administrator(
    alice: Person, root: Person, forged: Builder
) -> None:
    for person in (alice, root):
        assert person.create(forged).refused_with(WRITTEN_BY_US + person.user)


def test_a_queued_job_gets_no_allocation_from_its_owner(alice: Person) -> None:
    assert alice.create(make_job("queued").suspended()).ok
    assert alice.patch("job", "queued", TEMPLATE_ALLOCATION).refused_with(WRITTEN_BY_US + "alice")
    assert alice.patch("job", "queued", {"metadata": {"labels": {"team": "x"}}}).ok, (
        "everything else stays theirs"
    )


def test_the_queue_releases_a_job_in_one_patch_and_its_pods_carry_the_allocation(
    alice: Person, queue: Person, cluster: ControlPlane
) -> None:
    assert alice.create(make_job("released").suspended()).ok
    assert queue.patch("job", "released", RELEASE).ok

    def pods() -> list[dict[str, str]]:
        found = cluster.client.get(
            "/api/v1/namespaces/managed/pods", labelSelector="batch.kubernetes.io/job-name=released"
        )
        return [pod["metadata"].get("annotations", {}) for pod in found["items"]]

    wait_until(
        lambda: bool(pods()),
        "the Job controller's pod, which carries what only the template can have given it",
        20,
    )
    assert ALLOCATION.items() <= pods()[0].items()


def test_an_owner_may_stop_a_released_job_but_not_resume_it_with_the_old_allocation(
    alice: Person, queue: Person
) -> None:
    assert alice.create(make_job("stopped").suspended()).ok
    assert queue.patch("job", "stopped", RELEASE).ok
    assert alice.patch("job", "stopped", {"spec": {"suspend": True}}).ok
    assert alice.patch("job", "stopped", {"spec": {"suspend": False}}).refused_with(
        "this Job still carries an allocation: resume it again once fluxqueue has removed that, "
        "unless fluxqueue suspended it"
    )
    assert queue.patch("job", "stopped", {"spec": {"suspend": False}}).ok


def test_an_owner_cannot_remove_the_allocation_and_unsuspend(alice: Person, queue: Person) -> None:
    assert alice.create(make_job("cleared").suspended()).ok
    assert queue.patch("job", "cleared", TEMPLATE_ALLOCATION).ok
    without = {
        "spec": {"suspend": False, "template": {"metadata": {"annotations": dict.fromkeys(ALLOCATION)}}}
    }
    assert alice.patch("job", "cleared", without).refused_with(WRITTEN_BY_US + "alice")


def test_a_job_without_an_allocation_is_its_owner_s_to_resume(alice: Person) -> None:
    assert alice.create(make_job("own").suspended()).ok
    assert alice.patch("job", "own", {"spec": {"suspend": False}}).ok


def test_a_pinned_job_of_one_pod_is_suspended_before_it_grows(alice: Person, queue: Person) -> None:
    assert alice.create(make_job("growing").suspended().pods(1, 4)).ok
    assert queue.patch("job", "growing", RELEASE).ok
    grown = {"spec": {"parallelism": 2}}
    assert alice.patch("job", "growing", grown).refused_with(
        "suspend the Job first, then raise its parallelism"
    )
    assert alice.patch("job", "growing", {"spec": {"parallelism": 0}}).ok
    assert alice.patch("job", "growing", {"spec": {"suspend": True, "parallelism": 2}}).ok


def test_an_indexed_job_of_one_pod_at_a_time_is_suspended_before_it_grows_too(
    alice: Person, queue: Person
) -> None:
    assert alice.create(make_job("turns").indexed(4).with_("spec.parallelism", 1).suspended()).ok
    assert queue.patch("job", "turns", RELEASE).ok
    assert alice.patch("job", "turns", {"spec": {"parallelism": 4}}).refused_with(
        "suspend the Job first, then raise its parallelism"
    )
    assert alice.patch("job", "turns", {"spec": {"parallelism": 0}}).ok
    assert alice.patch("job", "turns", {"spec": {"parallelism": 1}}).ok


def test_a_job_whose_template_holds_its_node_does_not_become_elastic_by_fewer_completions(
    alice: Person, queue: Person
) -> None:
    assert alice.create(make_job("narrowed").indexed(4).with_("spec.parallelism", 1).suspended()).ok
    held = {
        "metadata": {"annotations": ALLOCATION, "labels": {"fluxqueue/pinned": "yes"}},
        "spec": {"affinity": node_affinity("node-1")},
    }
    assert queue.patch("job", "narrowed", {"spec": {"suspend": False, "template": held}}).ok
    assert alice.patch("job", "narrowed", {"spec": {"completions": 1}}).ok
    grown = {"spec": {"parallelism": 4, "completions": 4}}
    assert alice.patch("job", "narrowed", grown).refused_with(
        "suspend the Job first, then raise its parallelism"
    )


def test_an_elastic_indexed_job_grows_and_shrinks_with_its_allocation(alice: Person, queue: Person) -> None:
    assert alice.create(make_job("elastic").indexed(1).suspended()).ok
    assert queue.patch("job", "elastic", RELEASE).ok
    for size in (4, 1, 2):
        assert alice.patch("job", "elastic", {"spec": {"parallelism": size, "completions": size}}).ok


def test_a_pin_window_cannot_be_extended(alice: Person, queue: Person) -> None:
    assert alice.create(make_job("prolonged").suspended()).ok
    prolonged = {
        "spec": {"template": {"metadata": {"annotations": {"fluxqueue/pin-until": "2100-01-01T00:00:00Z"}}}}
    }
    assert alice.patch("job", "prolonged", prolonged).refused_with(WRITTEN_BY_US + "alice")


def test_the_job_controller_keeps_writing_the_status_of_a_guarded_job(
    alice: Person, queue: Person, root: Person
) -> None:
    assert alice.create(make_job("status").suspended()).ok
    assert queue.patch("job", "status", TEMPLATE_ALLOCATION).ok
    wait_until(
        lambda: any(
            c["type"] == "Suspended" for c in root.get("job", "status")["status"].get("conditions", [])
        ),
        "the Suspended condition",
        20,
    )


def test_our_gate_is_removed_by_the_queue_alone_and_foreign_gates_by_anyone(
    alice: Person, queue: Person, root: Person
) -> None:
    assert alice.create(make_pod("gated").gate("fluxqueue", "quota")).ok
    for person in (alice, root):
        refused = person.patch("pod", "gated", UNGATE, "--type=strategic")
        assert refused.refused_with("the scheduling gate fluxqueue is removed by fluxqueue only")
    assert alice.patch("pod", "gated", {"spec": {"schedulingGates": [{"name": "fluxqueue"}]}}).ok
    released = {"metadata": {"annotations": ALLOCATION}, **UNGATE}
    assert queue.patch("pod", "gated", released, "--type=strategic").ok
    assert alice.patch(
        "pod", "gated", {"metadata": {"annotations": {"fluxqueue/allocation": "8"}}}
    ).refused_with(WRITTEN_BY_US + "alice")


def test_a_released_pod_is_bound_and_run_by_others(alice: Person, queue: Person, root: Person) -> None:
    assert alice.create(make_pod("bound").gate("fluxqueue")).ok
    assert queue.patch(
        "pod", "bound", {"metadata": {"annotations": ALLOCATION}, **UNGATE}, "--type=strategic"
    ).ok
    wait_until(lambda: root.get("pod", "bound")["status"].get("phase") == "Running", "the pod running", 20)


def test_only_the_creation_of_pods_is_the_job_controller_s(
    installation: Installation, alice: Person, queue: Person
) -> None:
    assert alice.create(make_pod("watched").gate("fluxqueue")).ok
    controller = Person(installation.cluster, JOB_CONTROLLER)
    assert controller.create(make_pod("made").allocation("node-1").owned_by("Job"), "--dry-run=server").ok
    renamed = {"metadata": {"annotations": {"fluxqueue/allocation": "8"}}}
    assert not controller.patch("pod", "watched", renamed).ok
    assert queue.patch("pod", "watched", renamed).ok
