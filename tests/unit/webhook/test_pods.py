import datetime as dt
from typing import Any

import pytest
from support.admission import NOW, admit
from support.builders import DAEMONSET_CONTROLLER, JOB_CONTROLLER, REPLICASET_CONTROLLER, PodBuilder, make_pod

from fluxqueue.api import names
from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionSettings


def pod_of_job(nodes: str, index: int | str | None = None) -> PodBuilder:
    """A pod as the Job controller creates it from a template that the queue released with a pin."""
    pod = make_pod().generated("j-").owned_by("Job", "j").gate("fluxqueue").allocation(nodes)
    return pod if index is None else pod.index(index)


def pin_to(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


class TestHolding:
    def test_a_pod_gets_our_gate(self) -> None:
        admitted = admit(make_pod())
        assert admitted.decision.outcome is AdmissionOutcome.HELD
        assert admitted.gates == ["fluxqueue"]
        assert admitted.labels == {"fluxqueue.seen": "yes"}
        assert len(admitted.patch) == 2

    def test_the_gates_of_others_stay_before_ours(self) -> None:
        assert admit(make_pod().gate("example.com/quota", "other")).gates == [
            "example.com/quota",
            "other",
            "fluxqueue",
        ]

    def test_a_gate_removed_between_two_passes_is_added_again(self) -> None:
        once = admit(make_pod()).after
        once["spec"]["schedulingGates"] = []
        assert admit(once).gates == ["fluxqueue"]

    @pytest.mark.parametrize(
        ("pod", "user"),
        [
            pytest.param(make_pod().generated("web-"), "alice", id="generateName"),
            pytest.param(make_pod().owned_by("ReplicaSet"), REPLICASET_CONTROLLER, id="of a ReplicaSet"),
            pytest.param(
                make_pod().owned_by("Job").index(3), JOB_CONTROLLER, id="of a Job without allocation"
            ),
            pytest.param(
                make_pod().owned_by("Job").gate("fluxqueue"), JOB_CONTROLLER, id="of a gate-released Job"
            ),
            pytest.param(
                make_pod().owned_by("Job").label("fluxqueue/jobid", "7"),
                JOB_CONTROLLER,
                id="of a Job that only carries an id",
            ),
            pytest.param(make_pod().with_("spec.schedulingGates", None), "alice", id="with null gates"),
        ],
    )
    def test_a_pod_without_an_allocation_is_gated_once(self, pod: PodBuilder, user: str) -> None:
        admitted = admit(pod, user=user)
        assert admitted.decision.outcome is AdmissionOutcome.HELD
        assert admitted.gates == ["fluxqueue"]
        assert "affinity" not in admitted.after["spec"]
        assert admit(admitted.after, user=user).patch == []

    def test_a_bare_pod_with_an_invalid_annotation_is_refused(self) -> None:
        admitted = admit(make_pod().annotation("fluxqueue/duration", "-5m"))
        assert admitted.decision.outcome is AdmissionOutcome.REFUSED
        assert admitted.sentence.startswith(
            "Pod default/p: annotation fluxqueue/duration: '-5m' is not a duration"
        )

    def test_a_controllers_pod_with_an_invalid_annotation_is_held_with_a_warning(self) -> None:
        pod = make_pod().owned_by("ReplicaSet").annotation("fluxqueue/priority", "high")
        admitted = admit(pod, user=REPLICASET_CONTROLLER)
        assert admitted.gates == ["fluxqueue"]
        assert "annotation fluxqueue/priority: 'high' is not a priority" in admitted.decision.warnings[0]

    def test_other_annotations_are_ignored(self) -> None:
        assert not admit(make_pod().annotation("example.com/duration", "soon")).decision.warnings


class TestPinning:
    @pytest.mark.parametrize(
        ("nodes", "index", "node"),
        [
            ("n1,n3,n3,n2", 0, "n1"),
            ("n1,n3,n3,n2", 2, "n3"),
            ("n[1-3],n3,gpu07", 4, "gpu07"),
            ("n[1-3],n3,gpu07", "03", "n3"),
            ("n1", None, "n1"),
            ("n1", 0, "n1"),
            ("ip-10-0-0-7.eu-west-1.compute.internal", None, "ip-10-0-0-7.eu-west-1.compute.internal"),
        ],
    )
    def test_a_pod_goes_to_the_node_of_its_index(
        self, nodes: str, index: int | str | None, node: str
    ) -> None:
        admitted = admit(pod_of_job(nodes, index), user=JOB_CONTROLLER)
        assert admitted.decision.outcome is AdmissionOutcome.PINNED
        assert admitted.terms == [{"matchFields": [pin_to(node)]}]
        assert admitted.gates == []
        assert admitted.annotations["fluxqueue/fluxion-nodes"] == node
        assert admitted.annotations["fluxqueue/allocation"] == "7"
        assert admitted.labels["fluxqueue.seen"] == "yes"

    def test_a_second_pass_does_not_read_the_index_against_the_reduced_list(self) -> None:
        once = admit(pod_of_job("n1,n2,n3", 2), user=JOB_CONTROLLER)
        again = admit(once.after, user=JOB_CONTROLLER)
        assert again.patch == []
        assert again.decision.outcome is AdmissionOutcome.PINNED

    @pytest.mark.parametrize(
        "until", ["2026-01-01T12:00:00Z", "2026-01-01T11:59:59+00:00", "", "soon", "2026-02-01T12:00:00"]
    )
    def test_after_its_window_a_pin_is_no_pin_and_the_pod_is_gated_without_it(self, until: str) -> None:
        pod = pod_of_job("n1,n2", 1).annotation("fluxqueue/pin-until", until).label("fluxqueue/jobid", "7")
        admitted = admit(pod, user=JOB_CONTROLLER)
        assert admitted.decision.outcome is AdmissionOutcome.HELD
        assert admitted.gates == ["fluxqueue"]
        assert not {*admitted.annotations, *admitted.labels} & {*names.ALLOCATION_KEYS}
        assert "affinity" not in admitted.after["spec"]
        assert admit(admitted.after, user=JOB_CONTROLLER).patch == []

    def test_until_the_last_second_of_its_window_a_pod_is_pinned(self) -> None:
        pod = pod_of_job("n1,n2", 1).annotation("fluxqueue/pin-until", "2026-01-01T12:00:01Z")
        assert admit(pod, user=JOB_CONTROLLER).terms == [{"matchFields": [pin_to("n2")]}]

    def test_a_pod_pinned_in_an_earlier_pass_stays_pinned_when_the_window_closes_between(self) -> None:
        once = admit(
            pod_of_job("n1,n2,n3", 2).annotation("fluxqueue/pin-until", "2026-01-01T12:00:01Z"),
            user=JOB_CONTROLLER,
        )
        again = admit(once.after, user=JOB_CONTROLLER, now=NOW + dt.timedelta(seconds=2))
        assert (again.decision.outcome, again.patch) == (AdmissionOutcome.PINNED, [])

    def test_a_pod_whose_template_holds_its_node_is_not_changed(self) -> None:
        """The configuration keeps us from being asked about it; somebody may have edited that."""
        pod = (
            make_pod()
            .owned_by("Job")
            .allocation("n1")
            .without("metadata.annotations.fluxqueue/pin-until")
            .index(3)
        )
        pod = pod.label("fluxqueue/pinned", "yes").label("fluxqueue.seen", "yes")
        pod = pod.required_terms({"matchFields": [pin_to("n1")]})
        admitted = admit(pod, user=JOB_CONTROLLER)
        assert (admitted.decision.outcome, admitted.patch) == (AdmissionOutcome.PINNED, [])

    def test_the_gates_of_others_stay_on_a_pinned_pod(self) -> None:
        pod = make_pod().owned_by("Job").gate("a", "fluxqueue", "b").allocation("n1")
        assert admit(pod, user=JOB_CONTROLLER).gates == ["a", "b"]

    def test_a_template_without_our_gate_is_pinned_all_the_same(self) -> None:
        pod = make_pod().owned_by("Job").allocation("n1,n2").index(1)
        admitted = admit(pod, user=JOB_CONTROLLER)
        assert admitted.terms == [{"matchFields": [pin_to("n2")]}]
        assert "schedulingGates" not in admitted.after["spec"]

    def test_the_pin_is_added_to_every_term_the_user_wrote(self) -> None:
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        other = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
        pod = pod_of_job("n1").required_terms(
            {"matchExpressions": [zone]}, {"matchFields": [other]}, {}, {"matchFields": [pin_to("n1")]}
        )
        admitted = admit(pod, user=JOB_CONTROLLER)
        assert admitted.terms == [
            {"matchExpressions": [zone], "matchFields": [pin_to("n1")]},
            {"matchFields": [other, pin_to("n1")]},
            {},
            {"matchFields": [pin_to("n1")]},
        ]
        assert admit(admitted.after, user=JOB_CONTROLLER).patch == []

    @pytest.mark.parametrize(
        "affinity",
        [
            None,
            {},
            {"podAffinity": {"required": []}},
            {"nodeAffinity": None},
            {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]
                }
            },
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"ofTomorrow": 1}}},
        ],
    )
    def test_the_pin_finds_its_place_in_any_affinity_and_keeps_the_rest(
        self, affinity: dict[str, Any] | None
    ) -> None:
        admitted = admit(pod_of_job("n1").with_("spec.affinity", affinity), user=JOB_CONTROLLER)
        assert admitted.terms == [{"matchFields": [pin_to("n1")]}]
        kept = admitted.after["spec"]["affinity"]
        assert kept.get("podAffinity") == (affinity or {}).get("podAffinity")
        assert "preferredDuringSchedulingIgnoredDuringExecution" not in (
            (affinity or {}).get("nodeAffinity") or {}
        ) or ("preferredDuringSchedulingIgnoredDuringExecution" in kept["nodeAffinity"])
        assert admit(admitted.after, user=JOB_CONTROLLER).patch == []

    def test_an_allocation_takes_precedence_over_an_opt_out_of_the_template(self) -> None:
        pod = pod_of_job("n1").label("fluxqueue/managed", "false")
        assert admit(pod, user=JOB_CONTROLLER).decision.outcome is AdmissionOutcome.PINNED

    def test_another_job_controller_is_trusted_when_configured(self) -> None:
        settings = AdmissionSettings(job_controllers=frozenset({"system:serviceaccount:ops:jobs"}))
        assert (
            admit(pod_of_job("n1"), user="system:serviceaccount:ops:jobs", settings=settings).decision.outcome
            is AdmissionOutcome.PINNED
        )
        assert (
            admit(pod_of_job("n1"), user=JOB_CONTROLLER, settings=settings).decision.outcome
            is AdmissionOutcome.REFUSED
        )


class TestAllocationsWithoutANode:
    @pytest.mark.parametrize(
        ("pod", "why"),
        [
            (pod_of_job("n1,n2", 2), "completion index 2 is beyond the 2 nodes"),
            (pod_of_job("n1", 5), "completion index 5 is beyond the 1 nodes"),
            (pod_of_job("none.invalid,n2", 0), "completion index 0 has no node"),
            (pod_of_job("n[1-", 0), "hostlist 'n[1-'"),
            (pod_of_job("n1,,n2", 0), "has an empty entry"),
            (pod_of_job("n1,n2"), "names 2 nodes and the pod has no completion index"),
            (pod_of_job("n1", "x"), "completion index 'x' is not a number"),
            (pod_of_job("n1", "9" * 5_000), "is not a number"),
            (pod_of_job("Not A Node"), "'Not A Node' cannot be the name of a node"),
            (pod_of_job(""), "names no node"),
            (pod_of_job("n1").with_("spec.affinity", {"nodeAffinity": 5}), "spec.affinity cannot be read"),
            (pod_of_job("n1").required_terms({}, {}), "only empty terms, which match no node"),
        ],
    )
    def test_are_removed_and_the_pod_is_gated(self, pod: PodBuilder, why: str) -> None:
        admitted = admit(pod.label("fluxqueue/jobid", "7").annotation("mine", "x"), user=JOB_CONTROLLER)
        assert admitted.decision.outcome is AdmissionOutcome.HELD
        assert admitted.gates == ["fluxqueue"]
        assert why in admitted.decision.warnings[0]
        assert not {"fluxqueue/allocation", "fluxqueue/fluxion-nodes"} & set(admitted.annotations)
        assert "fluxqueue/jobid" not in admitted.labels
        assert admitted.annotations["mine"] == "x"
        assert admitted.after["spec"].get("affinity") == admitted.before["spec"].get("affinity")
        assert admit(admitted.after, user=JOB_CONTROLLER).patch == []

    def test_a_user_cannot_make_a_grown_index_look_pinned(self) -> None:
        """A template that already requires the allocation's only node must not let index 1 through without a
        slot.
        """
        pod = pod_of_job("n1", 1).required_terms({"matchFields": [pin_to("n1")]})
        assert admit(pod, user=JOB_CONTROLLER).gates == ["fluxqueue"]


class TestForgedAllocations:
    @pytest.mark.parametrize(
        ("pod", "user"),
        [
            pytest.param(pod_of_job("n1"), "alice", id="a user who writes a Job as owner"),
            pytest.param(make_pod().allocation("n1"), "alice", id="a user's bare pod"),
            pytest.param(make_pod().allocation("n1").on_node("n1"), "alice", id="a user's pod on a node"),
            pytest.param(
                make_pod().allocation("n1").label("fluxqueue/managed", "false"),
                "alice",
                id="a user's opted-out pod",
            ),
            pytest.param(make_pod().label("fluxqueue/jobid", "1"), "alice", id="only the id"),
            pytest.param(
                make_pod().allocation("n1").owned_by("ReplicaSet"),
                REPLICASET_CONTROLLER,
                id="a Deployment's template",
            ),
            pytest.param(
                make_pod().allocation("n1").owned_by("ReplicaSet"),
                "system:kube-controller-manager",
                id="a Deployment's template, one identity for all controllers",
            ),
            pytest.param(
                make_pod().allocation("n1"), JOB_CONTROLLER, id="a Job controller's pod without owner"
            ),
            pytest.param(
                make_pod().allocation("n1").owned_by("Job", controller=False),
                JOB_CONTROLLER,
                id="a Job that does not control it",
            ),
            pytest.param(
                make_pod().allocation("n1").owned_by("Job", api_version="batch.volcano.sh/v1alpha1"),
                "system:kube-controller-manager",
                id="another API's Job",
            ),
            pytest.param(
                make_pod().allocation("n1").owned_by("Job"), DAEMONSET_CONTROLLER, id="another controller"
            ),
        ],
    )
    def test_are_refused(self, pod: PodBuilder, user: str) -> None:
        admitted = admit(pod, user=user)
        assert admitted.decision.outcome is AdmissionOutcome.REFUSED
        assert admitted.decision.refusal is not None
        assert admitted.decision.refusal.reason == "Forbidden"
        assert f"written by fluxqueue only, not by {user}" in admitted.sentence


def test_a_floor_that_cannot_be_is_refused_or_told_to_its_controller() -> None:
    refused = admit(make_pod("a").annotation("fluxqueue/min-pods", "2"))
    assert refused.decision.outcome is AdmissionOutcome.REFUSED
    assert refused.sentence == (
        "Pod default/a: annotation fluxqueue/min-pods is for Indexed Jobs, "
        "and for the pods of Deployments, ReplicaSets and StatefulSets: leave it out"
    )
    replica = make_pod("web").owned_by("ReplicaSet")
    held = admit(replica.annotation("fluxqueue/min-pods", "two"), user=REPLICASET_CONTROLLER).decision
    assert (held.outcome, len(held.warnings)) == (AdmissionOutcome.HELD, 1)
    assert "write a whole number from 1" in held.warnings[0]
    assert not admit(replica.annotation("fluxqueue/min-pods", "2")).decision.warnings
