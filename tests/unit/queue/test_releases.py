from typing import Any

from builders import make_job, make_pod
from queue_builders import a_job, a_pod

from fluxqueue.queue.records import FluxionJobId
from fluxqueue.queue.releases import clear_job, gate_release_job, pin_release_job, release_pod

JOBID = FluxionJobId(42)


def template(patch: dict[str, Any]) -> Any:
    return patch["spec"]["template"]


def test_a_pin_release_is_one_guarded_patch_with_the_node_of_every_index() -> None:
    patch = pin_release_job(a_job(make_job().indexed(4).suspended()), JOBID, ["n1", "n3", "n3", "n2"])
    assert patch["spec"]["suspend"] is False
    assert template(patch)["metadata"]["annotations"] == {"fluxqueue/allocation": "42", "fluxqueue/fluxion-nodes": "n[1,3,3,2]"}
    assert template(patch)["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("job-uid", "10")


def test_a_release_takes_the_mark_of_our_suspension_away_so_that_the_next_one_is_the_users() -> None:
    for patch in (
        pin_release_job(a_job(make_job().suspended()), JOBID, ["n1"]),
        gate_release_job(a_job(make_job().suspended()), JOBID),
    ):
        assert patch["metadata"]["annotations"] == {"fluxqueue/suspended-by": None}


def test_an_indexed_job_of_one_pod_at_a_time_has_its_node_for_every_index() -> None:
    patch = pin_release_job(a_job(make_job().pods(1, 3).with_("spec.completionMode", "Indexed").suspended()), JOBID, ["n1"])
    assert template(patch)["metadata"]["annotations"]["fluxqueue/fluxion-nodes"] == "n[1,1,1]"


def test_a_gate_release_leaves_no_allocation_in_the_template() -> None:
    patch = gate_release_job(a_job(make_job().pods(3, 3).suspended()), JOBID)
    assert "metadata" not in template(patch)
    assert template(patch)["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]


def test_a_pod_loses_only_our_gate_and_is_tied_to_exactly_one_node() -> None:
    patch = release_pod(a_pod(make_pod().gate("fluxqueue", "theirs")), JOBID, "n7")
    assert patch["spec"]["schedulingGates"] == [{"name": "fluxqueue", "$patch": "delete"}]
    required = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]}


def test_the_pin_goes_into_each_of_the_pods_own_terms() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    patch = release_pod(a_pod(make_pod().gate("fluxqueue").required_terms(term, {"matchExpressions": []})), JOBID, "n7")
    terms = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(terms) == 2
    assert terms[0]["matchExpressions"] == term["matchExpressions"]
    assert all(item["matchFields"][0]["values"] == ["n7"] for item in terms)


def test_clearing_removes_every_trace_and_is_nothing_where_there_is_none() -> None:
    assert clear_job(a_job(make_job().suspended())) is None
    stale = a_job(make_job().suspended().label("fluxqueue/jobid", "42").pod_annotation("fluxqueue/allocation", "42"))
    patch = clear_job(stale)
    assert patch is not None
    assert template(patch)["metadata"]["annotations"] == {"fluxqueue/allocation": None, "fluxqueue/fluxion-nodes": None}
    assert patch["metadata"]["labels"] == {"fluxqueue/jobid": None}
