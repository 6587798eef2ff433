"""The scheduler of a pod, chosen at its creation:
by the template of a released Job, else by label, queue and installation.
"""

import datetime as dt

import pytest
from support.admission import NOW, admit
from support.builders import (
    DAEMONSET_CONTROLLER,
    JOB_CONTROLLER,
    REPLICASET_CONTROLLER,
    PodBuilder,
    make_job,
    make_pod,
)

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionSettings

STOCK, FLUXION = SchedulerName.STOCK, SchedulerName.FLUXION
BY_STOCK, BY_US = (
    AdmissionSettings(choices=SchedulerChoices(STOCK)),
    AdmissionSettings(choices=SchedulerChoices(FLUXION)),
)
QUEUES = AdmissionSettings(
    choices=SchedulerChoices(STOCK, {"gold": FLUXION, "default": STOCK}, {"science": "gold"})
)


def released(nodes: str = "n1,n2,n3", index: int = 2, scheduler: str = "fluxion") -> PodBuilder:
    """A pod as the Job controller creates it from a template that the queue released with a pin."""
    pod = make_pod().generated("j-").owned_by("Job", "j").gate("fluxqueue").allocation(nodes).index(index)
    return (
        pod.annotation("fluxqueue/scheduler", scheduler)
        .annotation("fluxqueue/gang-size", "3")
        .label("fluxqueue/jobid", "7")
    )


def scheduler_of(pod: PodBuilder, settings: AdmissionSettings, user: str = "alice") -> str:
    admitted = admit(pod, user=user, settings=settings)
    assert admitted.decision.outcome is AdmissionOutcome.HELD
    assert admitted.gates == ["fluxqueue"]
    assert admit(admitted.after, user=user, settings=settings).patch == []
    return str(admitted.after["spec"].get("schedulerName", ""))


class TestHolding:
    def test_a_gated_pod_gets_our_schedulers_name_if_it_is_the_default(self) -> None:
        assert scheduler_of(make_pod(), BY_US) == "FluxionScheduler"
        assert (
            scheduler_of(make_pod().with_("spec.schedulerName", "default-scheduler"), BY_US)
            == "FluxionScheduler"
        )
        assert scheduler_of(make_pod(), BY_STOCK) == ""
        assert scheduler_of(make_pod(), AdmissionSettings()) == ""

    def test_a_scheduler_that_a_pod_names_itself_stays(self) -> None:
        assert (
            scheduler_of(
                make_pod().with_("spec.schedulerName", "volcano").label("fluxqueue/scheduler", "fluxion"),
                BY_US,
            )
            == "volcano"
        )
        ours = (
            make_pod().with_("spec.schedulerName", "FluxionScheduler").label("fluxqueue/scheduler", "stock")
        )
        assert scheduler_of(ours, BY_STOCK) == "FluxionScheduler"

    @pytest.mark.parametrize(
        ("pod", "name"),
        [
            pytest.param(make_pod(), "", id="the default queue"),
            pytest.param(make_pod().label("fluxqueue/queue", "gold"), "FluxionScheduler", id="its own queue"),
            pytest.param(make_pod().namespace("science"), "FluxionScheduler", id="its namespace's"),
            pytest.param(
                make_pod().namespace("science").label("fluxqueue/queue", "default"),
                "",
                id="its own before its namespace's",
            ),
            pytest.param(
                make_pod().namespace("science").label("fluxqueue/queue", ""),
                "FluxionScheduler",
                id="an empty label",
            ),
            pytest.param(
                make_pod().label("fluxqueue/queue", "unheard-of"), "", id="a queue that is not known yet"
            ),
            pytest.param(
                make_pod().label("fluxqueue/queue", "gold").label("fluxqueue/scheduler", "stock"),
                "",
                id="the label before all",
            ),
        ],
    )
    def test_its_queue_is_found_as_the_intake_finds_it(self, pod: PodBuilder, name: str) -> None:
        assert scheduler_of(pod, QUEUES) == name

    def test_known_choices_may_change_while_the_server_runs(self) -> None:
        choices = SchedulerChoices(STOCK)
        assert scheduler_of(make_pod(), AdmissionSettings(choices=choices)) == ""
        choices.queues["default"] = FLUXION
        assert scheduler_of(make_pod(), AdmissionSettings(choices=choices)) == "FluxionScheduler"

    def test_pods_that_are_not_ours_are_left_as_they_are(self) -> None:
        for pod, user in (
            (make_pod().owned_by("DaemonSet"), DAEMONSET_CONTROLLER),
            (make_pod().on_node("n1"), "alice"),
            (make_pod().label("fluxqueue/managed", "false"), "alice"),
            (make_pod().namespace("kube-system"), "alice"),
        ):
            admitted = admit(pod, user=user, settings=BY_US)
            assert (admitted.decision.outcome, admitted.patch) == (AdmissionOutcome.EXEMPT, [])


class TestPlacing:
    def test_a_pod_of_our_scheduler_has_its_own_node_and_no_affinity(self) -> None:
        admitted = admit(released(), user=JOB_CONTROLLER, settings=BY_STOCK)
        assert admitted.decision.outcome is AdmissionOutcome.PINNED
        assert admitted.after["spec"]["schedulerName"] == "FluxionScheduler"
        assert "affinity" not in admitted.after["spec"]
        assert admitted.gates == []
        assert admitted.annotations["fluxqueue/fluxion-nodes"] == "n3"
        assert admitted.annotations["fluxqueue/gang-size"] == "3"

    def test_a_second_pass_does_not_read_the_index_against_the_reduced_list(self) -> None:
        for settings in (BY_STOCK, BY_US, QUEUES):
            once = admit(released(), user=JOB_CONTROLLER, settings=settings)
            later = admit(
                once.after, user=JOB_CONTROLLER, settings=settings, now=NOW + dt.timedelta(days=40_000)
            )
            assert (later.decision.outcome, later.patch) == (AdmissionOutcome.PINNED, []), (
                "also when the window has closed between"
            )

    def test_a_released_template_decides_even_if_its_queue_has_changed(self) -> None:
        stock = admit(
            released(scheduler="stock").label("fluxqueue/queue", "gold"), user=JOB_CONTROLLER, settings=QUEUES
        )
        assert "affinity" in stock.after["spec"]
        assert "schedulerName" not in stock.after["spec"]
        ours = admit(released().label("fluxqueue/queue", "default"), user=JOB_CONTROLLER, settings=QUEUES)
        assert ours.after["spec"]["schedulerName"] == "FluxionScheduler"

    def test_after_its_window_a_pod_is_gated_without_its_allocation(self) -> None:
        late = released().annotation("fluxqueue/pin-until", "2026-01-01T12:00:00Z")
        admitted = admit(late, user=JOB_CONTROLLER, settings=QUEUES)
        assert (admitted.decision.outcome, admitted.gates) == (AdmissionOutcome.HELD, ["fluxqueue"])
        assert not {*admitted.annotations, *admitted.labels} & {*names.ALLOCATION_KEYS}
        assert admitted.after["spec"]["schedulerName"] == "FluxionScheduler"
        assert admit(admitted.after, user=JOB_CONTROLLER, settings=QUEUES).patch == []

    def test_an_index_without_a_node_is_gated_for_our_scheduler(self) -> None:
        admitted = admit(released(index=5), user=JOB_CONTROLLER, settings=BY_STOCK)
        assert (admitted.decision.outcome, admitted.after["spec"]["schedulerName"]) == (
            AdmissionOutcome.HELD,
            "FluxionScheduler",
        )
        assert "beyond the 3 nodes" in admitted.decision.warnings[0]

    def test_without_a_scheduler_of_ours_every_pod_is_tied_for_the_cluster_s_own(self) -> None:
        admitted = admit(released(), user=JOB_CONTROLLER)
        assert "affinity" in admitted.after["spec"]
        assert "schedulerName" not in admitted.after["spec"]

    def test_an_annotation_that_no_release_wrote_decides_nothing(self) -> None:
        forged = make_pod().owned_by("ReplicaSet").annotation("fluxqueue/scheduler", "fluxion")
        assert (
            "schedulerName" not in admit(forged, user=REPLICASET_CONTROLLER, settings=BY_STOCK).after["spec"]
        )


class TestLabels:
    def test_a_label_that_names_no_scheduler_is_refused_with_one_sentence(self) -> None:
        for thing in (make_pod(), make_job()):
            sentence = admit(thing.label("fluxqueue/scheduler", "ours")).sentence
            assert sentence.endswith(
                "label fluxqueue/scheduler: 'ours' is no scheduler: write stock or fluxion"
            )
        assert "'x' is no scheduler" in admit(make_job().pod_label("fluxqueue/scheduler", "x")).sentence

    def test_a_controllers_object_is_held_with_a_warning(self) -> None:
        admitted = admit(
            make_pod().owned_by("ReplicaSet").label("fluxqueue/scheduler", "x"),
            user=REPLICASET_CONTROLLER,
            settings=BY_US,
        )
        assert admitted.decision.outcome is AdmissionOutcome.HELD
        assert "'x' is no scheduler" in admitted.decision.warnings[0]

    def test_the_label_of_a_job_is_copied_to_its_pods(self) -> None:
        job = make_job().label("fluxqueue/scheduler", "fluxion")
        assert admit(job).after["spec"]["template"]["metadata"]["labels"] == {
            "fluxqueue/scheduler": "fluxion"
        }
        own = admit(job.pod_label("fluxqueue/scheduler", "stock"))
        assert own.after["spec"]["template"]["metadata"]["labels"] == {"fluxqueue/scheduler": "stock"}

    def test_a_request_for_a_scheduler_that_is_not_installed_gets_a_warning(self) -> None:
        named = (
            make_pod().with_("spec.schedulerName", "FluxionScheduler"),
            make_job().with_("spec.template.spec.schedulerName", "FluxionScheduler"),
        )
        for thing in named:
            (warning,) = admit(thing).decision.warnings
            assert "no scheduler of fluxqueue is installed here" in warning
            assert warning.endswith("leave schedulerName FluxionScheduler out")
            assert admit(thing, settings=BY_STOCK).decision.warnings == ()
        (warning,) = admit(make_job().label("fluxqueue/scheduler", "fluxion")).decision.warnings
        assert warning.endswith("the cluster's own scheduler binds its pods")
        assert (
            admit(
                make_pod().owned_by("ReplicaSet").with_("spec.schedulerName", "FluxionScheduler")
            ).decision.warnings
            == ()
        )
