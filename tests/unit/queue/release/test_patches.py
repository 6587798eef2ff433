from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import make_job, make_pod
from support.memory_api import merged
from support.queue_builders import EPOCH, a_job, a_pod

from fluxqueue.api import hostlists
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.jobs import Job
from fluxqueue.queue.model.records import FluxionJobId
from fluxqueue.queue.release.patches import (
    LONGEST_LIST_BYTES,
    clear_job,
    gate_release_job,
    hold_node_release_job,
    label_job,
    pin_release_job,
    release_pod,
    resize_job,
    uncount_pod,
    withdraw_pod,
)

JOBID = FluxionJobId(42)
UNTIL = EPOCH + timedelta(seconds=30)


def template(patch: dict[str, Any]) -> Any:
    return patch["spec"]["template"]


def test_a_pin_release_is_one_guarded_patch_with_the_node_of_every_index() -> None:
    patch = pin_release_job(a_job(make_job().indexed(4).suspended()), JOBID, ["n1", "n3", "n3", "n2"], UNTIL)
    assert patch["spec"]["suspend"] is False
    assert template(patch)["metadata"]["annotations"] == {
        "fluxqueue/allocation": "42",
        "fluxqueue/fluxion-nodes": "n[1,3,3,2]",
        "fluxqueue/pin-until": "2026-01-01T00:00:30Z",
        "fluxqueue/scheduler": "stock",
    }
    assert template(patch)["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("job-uid", "10")


def test_a_release_removes_our_mark_so_that_the_next_suspension_is_the_users() -> None:
    for patch in (
        pin_release_job(a_job(make_job().suspended()), JOBID, ["n1"], UNTIL),
        gate_release_job(a_job(make_job().suspended()), JOBID),
    ):
        assert patch["metadata"]["annotations"] == {"fluxqueue/suspended-by": None}


def test_an_indexed_job_of_one_pod_at_a_time_has_its_node_for_every_index() -> None:
    patch = pin_release_job(
        a_job(make_job().pods(1, 3).with_("spec.completionMode", "Indexed").suspended()), JOBID, ["n1"], UNTIL
    )
    assert template(patch)["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n[1,1,1]"


def test_a_gate_release_leaves_no_allocation_in_the_template() -> None:
    patch = gate_release_job(a_job(make_job().pods(3, 3).suspended()), JOBID)
    assert template(patch)["metadata"] == {"annotations": {"fluxqueue/scheduler": "stock"}}
    assert template(patch)["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]


def test_a_pod_loses_only_our_gate_and_is_tied_to_exactly_one_node() -> None:
    patch = release_pod(a_pod(make_pod().gate("fluxqueue", "theirs")), JOBID, "n7")
    assert patch["spec"]["schedulingGates"] == [{"name": "fluxqueue", "$patch": "delete"}]
    required = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]
    }


def test_the_pin_goes_into_each_of_the_pods_own_terms() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    other = {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}
    patch = release_pod(a_pod(make_pod().gate("fluxqueue").required_terms(term, other)), JOBID, "n7")
    terms = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [item["matchExpressions"] for item in terms] == [
        term["matchExpressions"],
        other["matchExpressions"],
    ]
    assert all(item["matchFields"][0]["values"] == ["n7"] for item in terms)


@pytest.mark.parametrize(
    "empty", [{}, {"matchExpressions": []}, {"matchExpressions": None, "matchFields": []}]
)
def test_a_term_that_matches_nothing_stays_as_it_is(empty: dict[str, Any]) -> None:
    """The API server refuses any change of it, and with a pin it would match."""
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    patch = release_pod(a_pod(make_pod().gate("fluxqueue").required_terms(term, empty)), JOBID, "n7")
    terms = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms[1] == empty


def test_clearing_removes_every_trace_and_is_nothing_where_there_is_none() -> None:
    assert clear_job(a_job(make_job().suspended())) is None
    stale = a_job(
        make_job().suspended().label("fluxqueue/jobid", "42").pod_annotation("fluxqueue/allocation", "42")
    )
    patch = clear_job(stale)
    assert patch is not None
    assert template(patch)["metadata"]["annotations"] == {
        "fluxqueue/allocation": None,
        "fluxqueue/fluxion-nodes": None,
        "fluxqueue/gang-size": None,
        "fluxqueue/pin-until": None,
        "fluxqueue/scheduler": None,
    }
    assert patch["metadata"]["labels"] == {"fluxqueue/jobid": None, "fluxqueue/pinned": None}
    assert "spec" not in template(patch), "its affinity is its user's"


def test_a_template_that_holds_its_node_needs_neither_a_gate_nor_the_webhook() -> None:
    patch = hold_node_release_job(a_job(make_job().suspended()), JOBID, "n7")
    assert template(patch)["metadata"] == {
        "labels": {"fluxqueue/jobid": "42", "fluxqueue/pinned": "yes"},
        "annotations": {
            "fluxqueue/allocation": "42",
            "fluxqueue/fluxion-nodes": "n7",
            "fluxqueue/scheduler": "stock",
        },
    }
    required = template(patch)["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert required == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]
    }
    assert "schedulingGates" not in template(patch)["spec"]
    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("job-uid", "10")
    assert patch["metadata"]["annotations"] == {"fluxqueue/suspended-by": None}


def test_a_gate_that_an_earlier_release_left_in_the_template_is_removed() -> None:
    gated = (
        make_job()
        .suspended()
        .with_("spec.template.spec.schedulingGates", [{"name": "theirs"}, {"name": "fluxqueue"}])
    )
    patch = hold_node_release_job(a_job(gated), JOBID, "n7")
    assert template(patch)["spec"]["schedulingGates"] == [{"name": "fluxqueue", "$patch": "delete"}]


def test_a_template_of_our_own_scheduler_holds_its_node_by_annotation_alone() -> None:
    patch = hold_node_release_job(a_job(make_job().suspended()), JOBID, "n7", SchedulerName.FLUXION)
    assert template(patch)["spec"] == {}
    assert template(patch)["metadata"]["annotations"]["fluxqueue/scheduler"] == "fluxion"


def test_clearing_takes_the_node_out_of_the_template_again() -> None:
    document = make_job().suspended().with_("spec.template.spec.affinity", {"podAffinity": {}}).build()
    released = merged(
        document, hold_node_release_job(msgspec.convert(document, Job), JOBID, "n7"), by_key=True
    )
    patch = clear_job(msgspec.convert(released, Job))
    assert patch is not None
    cleared = merged(released, patch, by_key=True)["spec"]["template"]
    assert cleared["spec"] == document["spec"]["template"]["spec"]
    assert (cleared["metadata"]["labels"], cleared["metadata"]["annotations"]) == ({}, {})


def test_a_list_of_nodes_too_long_for_an_annotation_is_released_by_gate() -> None:
    hosts = [
        f"ip-10-{number >> 8}-{number & 255}-{number * 7919 % 251}.us-west-2.compute.internal"
        for number in range(7_000)
    ]
    job = a_job(make_job().indexed(len(hosts)).suspended())
    assert pin_release_job(job, JOBID, hosts, UNTIL) == gate_release_job(job, JOBID)
    assert len(hostlists.encode(hosts[:4_000])) < LONGEST_LIST_BYTES
    assert (
        "fluxqueue/allocation"
        in template(pin_release_job(job, JOBID, hosts[:4_000], UNTIL))["metadata"]["annotations"]
    )


def test_a_template_says_who_binds_its_pods_and_how_many_are_bound_together() -> None:
    job, hosts = a_job(make_job().indexed(3).suspended()), ["n1", "n2", "n3"]
    ours = template(pin_release_job(job, JOBID, hosts, UNTIL, SchedulerName.FLUXION, 3))["metadata"][
        "annotations"
    ]
    assert (ours["fluxqueue/scheduler"], ours["fluxqueue/gang-size"]) == ("fluxion", "3")
    stock = template(pin_release_job(job, JOBID, hosts, UNTIL, SchedulerName.STOCK, 3))["metadata"][
        "annotations"
    ]
    assert (stock["fluxqueue/scheduler"], stock["fluxqueue/gang-size"]) == ("stock", "3")
    assert (
        "fluxqueue/gang-size"
        not in template(pin_release_job(job, JOBID, hosts, UNTIL, SchedulerName.FLUXION, 1))["metadata"][
            "annotations"
        ]
    )
    assert template(gate_release_job(job, JOBID, SchedulerName.FLUXION))["metadata"] == {
        "annotations": {"fluxqueue/scheduler": "fluxion"}
    }


def test_a_pod_of_our_scheduler_gets_its_node_by_annotation_alone() -> None:
    pod = a_pod(
        make_pod()
        .gate("fluxqueue")
        .with_("spec.schedulerName", "FluxionScheduler")
        .required_terms({"matchExpressions": []})
    )
    patch = release_pod(pod, JOBID, "n7", 4)
    assert patch["spec"] == {"schedulingGates": [{"name": "fluxqueue", "$patch": "delete"}]}
    assert patch["metadata"]["annotations"] == {
        "fluxqueue/allocation": "42",
        "fluxqueue/fluxion-nodes": "n7",
        "fluxqueue/gang-size": "4",
    }
    assert "fluxqueue/gang-size" not in release_pod(pod, JOBID, "n7")["metadata"]["annotations"]
    assert release_pod(a_pod(make_pod().by_fluxion()), JOBID, "n7")["spec"] == {}, (
        "a pod that was withdrawn has no gate any more"
    )


@pytest.mark.parametrize("name", ["default-scheduler", "volcano"])
def test_a_pod_of_another_scheduler_gets_its_node_by_affinity_and_its_gang_size(name: str) -> None:
    patch = release_pod(a_pod(make_pod().gate("fluxqueue").with_("spec.schedulerName", name)), JOBID, "n7", 4)
    assert "affinity" in patch["spec"]
    assert patch["metadata"]["annotations"]["fluxqueue/gang-size"] == "4"


def test_a_withdrawal_removes_the_allocation_of_the_version_that_was_read() -> None:
    metadata = withdraw_pod(a_pod(make_pod().by_fluxion("n1")))["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("pod-uid", "10")
    assert metadata["labels"] == {"fluxqueue/jobid": None, "fluxqueue/pinned": None}
    keys = ("allocation", "fluxion-nodes", "gang-size", "pin-until")
    assert metadata["annotations"] == {f"fluxqueue/{key}": None for key in keys}


@pytest.mark.parametrize("parallelism", [3, 8])
def test_a_release_sets_the_parallelism_of_a_moldable_job_and_notes_a_smaller_start(parallelism: int) -> None:
    job = a_job(make_job().indexed(8).suspended())
    note = str(parallelism) if parallelism < 8 else None
    for patch in (
        gate_release_job(job, JOBID, parallelism=parallelism),
        pin_release_job(job, JOBID, ["n1"] * 8, UNTIL, parallelism=parallelism),
    ):
        assert patch["spec"]["parallelism"] == parallelism
        assert patch["metadata"]["annotations"]["fluxqueue/started-pods"] == note


def test_a_job_that_its_user_resumed_gets_its_parallelism_with_the_label() -> None:
    small = a_job(
        make_job().indexed(8).with_("spec.parallelism", 2).annotation("fluxqueue/started-pods", "2")
    )
    patch = label_job(small, JOBID, parallelism=8)
    assert patch["spec"] == {"parallelism": 8}
    assert patch["metadata"]["annotations"] == {"fluxqueue/started-pods": None}
    assert "spec" not in label_job(small, JOBID)


def test_a_resize_is_guarded_and_changes_nothing_else() -> None:
    small = a_job(make_job().indexed(8).annotation("fluxqueue/started-pods", "2"))
    assert resize_job(small, 5) == {
        "metadata": {"uid": "job-uid", "resourceVersion": "10"},
        "spec": {"parallelism": 5},
    }


def test_a_job_that_is_made_smaller_is_marked_so_that_its_slots_pass_on() -> None:
    patch = resize_job(a_job(make_job().indexed(8)), 5)
    assert patch["metadata"]["annotations"] == {"fluxqueue/started-pods": "5"}


def test_a_pod_loses_the_finalizer_of_the_job_controller_and_no_other() -> None:
    pod = a_pod(
        make_pod().with_("metadata.finalizers", ["example.com/mine", "batch.kubernetes.io/job-tracking"])
    )
    assert uncount_pod(pod)["metadata"]["finalizers"] == ["example.com/mine"]
