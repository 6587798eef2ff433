import json
from typing import Any

import msgspec
import pytest
from support.admission import admit
from support.builders import Builder, make_job, make_pod
from support.device_objects import a_class, a_template, request, resource_claims
from support.queue_builders import a_job, a_pod, a_workload, around

from fluxqueue.api.devices import DeviceClass, ResourceClaimTemplate
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.fluxqueues import Members, QueueState
from fluxqueue.api.poddefaults import LimitRange, RuntimeClass
from fluxqueue.queue.cluster.context import QueueDefaults
from fluxqueue.queue.cluster.devices import ClusterDevices
from fluxqueue.queue.intake.describe import describe_job, describe_pod
from fluxqueue.queue.intake.submission import NativeScheduling, WorkloadContext
from fluxqueue.queue.model.jobspecs import taken_once_in, takes_whole_nodes
from fluxqueue.queue.model.records import NewWorkload, ReleaseMode, Workload
from fluxqueue.queue.model.spec_overrides import SpecOverrides
from fluxqueue.queue.noderules.jobspec_rules import rules_in

HELD_BY_US = "fluxqueue/suspended-by"


def held(builder: Any) -> Any:
    return builder.suspended().annotation(HELD_BY_US, "webhook")


def described(builder: Builder, **cluster_context: Any) -> NewWorkload:
    found = describe_job(a_job(held(builder)), around(**cluster_context))
    assert found is not None
    return found


def test_a_job_asks_for_all_its_pods_at_once_with_one_pod_slot_each() -> None:
    found = described(make_job("lammps").indexed(4).cpu("1500m").memory("2Gi"))
    slot = json.loads(found.jobspec)["resources"][0]
    assert (slot["type"], slot["count"]) == ("slot", 4)
    assert {member["type"]: member["count"] for member in slot["with"]} == {
        "cpu": 1500,
        "memory": 2048,
        "pods": 1,
    }
    assert (found.pods, found.queue, found.reason) == (4, "default", Reason.NONE)


def test_a_pod_that_asks_for_nothing_still_takes_a_pod_slot() -> None:
    slot = json.loads(described(make_job()).jobspec)["resources"][0]
    assert slot["with"] == [{"type": "pods", "count": 1}]


@pytest.mark.parametrize(
    ("builder", "mode"),
    [
        pytest.param(make_job().indexed(4), ReleaseMode.PIN, id="indexed, all at once"),
        pytest.param(make_job(), ReleaseMode.PIN, id="one pod"),
        pytest.param(make_job().pods(4, 1), ReleaseMode.PIN, id="one completion, whatever the parallelism"),
        pytest.param(make_job().pods(3, 3), ReleaseMode.GATE, id="several without index"),
        pytest.param(
            make_job().pods(2, 6).with_("spec.completionMode", "Indexed"),
            ReleaseMode.GATE,
            id="more indexes than pods",
        ),
        pytest.param(
            make_job().indexed(4).annotation("fluxqueue/replace", "pod"),
            ReleaseMode.GATE,
            id="asked for replacement pod by pod",
        ),
    ],
)
def test_the_kind_of_job_decides_how_it_is_released(builder: Builder, mode: ReleaseMode) -> None:
    assert described(builder).release_mode is mode


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(
            make_job().with_("status.conditions", [{"type": "Complete", "status": "True"}]), id="finished"
        ),
        pytest.param(make_job().with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"), id="going away"),
        pytest.param(make_job().pod_label("fluxqueue/managed", "false"), id="opted out in its template"),
        pytest.param(
            make_job().with_("spec.managedBy", "kueue.x-k8s.io/multikueue"), id="managed by somebody else"
        ),
        pytest.param(make_job().label("kueue.x-k8s.io/queue-name", "team"), id="in another queue system"),
    ],
)
def test_what_is_not_ours_is_left_alone(builder: Any) -> None:
    assert describe_job(a_job(held(builder)), around()) is None


@pytest.mark.parametrize(
    "label", [("fluxqueue/managed", "false"), ("kueue.x-k8s.io/queue-name", "team")], ids=["nobody", "Kueue"]
)
def test_pods_that_we_hold_are_released_although_their_job_left_the_queue(label: tuple[str, str]) -> None:
    """A label of a Job that was admitted without it does not reach its pods,
    so the webhook gates them when the Job is resumed.
    """
    job = a_job(make_job().pods(2, 2).suspended(False).label(*label))
    assert describe_job(job, around(), WorkloadContext(row=a_workload())) is None
    assert describe_job(job, around(), has_gated_pods=True) is not None


@pytest.mark.parametrize(
    "label", [("fluxqueue/managed", "false"), ("kueue.x-k8s.io/queue-name", "team")], ids=["nobody", "Kueue"]
)
def test_a_gated_pod_stays_in_the_queue_whatever_labels_it_gets(label: tuple[str, str]) -> None:
    """No one else may remove our gate, so it would wait for ever."""
    assert describe_pod(a_pod(make_pod().gate("fluxqueue").label(*label)), around()) is not None
    assert describe_pod(a_pod(make_pod().by_fluxion().label(*label)), around()) is None


def test_an_empty_name_of_another_queue_names_none() -> None:
    """The webhook holds such objects, so nobody else would start them."""
    job = admit(make_job().label("kueue.x-k8s.io/queue-name", "")).after
    assert job["spec"]["suspend"] is True
    assert describe_job(a_job(Builder(job)), around()) is not None
    pod = admit(make_pod().label("kueue.x-k8s.io/queue-name", ""))
    assert pod.gates == ["fluxqueue"]
    assert describe_pod(a_pod(Builder(pod.after)), around()) is not None


def test_a_job_that_runs_without_us_is_ours_only_through_gated_pods() -> None:
    running = a_job(make_job().pods(2, 2).suspended(False))
    assert describe_job(running, around()) is None
    found = describe_job(running, around(), has_gated_pods=True)
    assert found is not None
    assert found.release_mode is ReleaseMode.GATE


def test_a_job_its_user_suspended_waits_for_its_user() -> None:
    found = describe_job(a_job(make_job("mine").suspended()), around())
    assert found is not None
    assert found.reason is Reason.USER_SUSPENDED
    assert "Job default/mine" in found.message


def test_parallelism_zero_is_accepted_and_says_what_to_raise() -> None:
    found = described(make_job().pods(0, 0))
    assert found.reason is Reason.USER_SUSPENDED
    assert "spec.parallelism" in found.message


@pytest.mark.parametrize(
    ("builder", "seconds", "assumed"),
    [
        pytest.param(make_job(), 3600, True, id="nobody said"),
        pytest.param(make_job().with_("spec.activeDeadlineSeconds", 90), 90, False, id="a deadline"),
        pytest.param(
            make_job().with_("spec.activeDeadlineSeconds", 90).annotation("fluxqueue/duration", "30m"),
            1800,
            False,
            id="annotation first",
        ),
        pytest.param(
            make_job().annotation("fluxqueue/duration", "1s"), 5, False, id="shorter than its start takes"
        ),
    ],
)
def test_the_wall_time_is_what_the_object_says_best(builder: Builder, seconds: int, assumed: bool) -> None:
    found = described(builder)
    assert (found.duration_s, found.duration_assumed) == (seconds, assumed)


@pytest.mark.parametrize(
    ("builder", "reason", "words"),
    [
        pytest.param(
            make_job("x").annotation("fluxqueue/duration", "soon"),
            Reason.INVALID_REQUEST,
            "fluxqueue/duration",
            id="duration",
        ),
        pytest.param(
            make_job("x").annotation("fluxqueue/duration", "0s"),
            Reason.INVALID_REQUEST,
            "no time at all",
            id="no duration",
        ),
        pytest.param(
            make_job("x").annotation("fluxqueue/duration", "-5m"),
            Reason.INVALID_REQUEST,
            "'-5m' is not a dur",
            id="negative",
        ),
        pytest.param(
            make_job("x").annotation("fluxqueue/duration", "4000d"),
            Reason.INVALID_REQUEST,
            "longer than ten years",
            id="decade",
        ),
        pytest.param(
            make_job("x").annotation("fluxqueue/priority", "high"),
            Reason.INVALID_REQUEST,
            "fluxqueue/priority",
            id="priority",
        ),
        pytest.param(
            make_job("x").label("fluxqueue/queue", "gold"), Reason.UNKNOWN_QUEUE, "'gold'", id="queue"
        ),
        pytest.param(
            make_job("x").label("fluxqueue/scheduler", "ours"),
            Reason.INVALID_REQUEST,
            "'ours' is no scheduler",
            id="scheduler",
        ),
        pytest.param(
            make_job("x").pod_label("fluxqueue/scheduler", ""),
            Reason.INVALID_REQUEST,
            "write stock or",
            id="of its pods",
        ),
        pytest.param(
            make_job("x").cpu("lots"), Reason.INVALID_REQUEST, "container 'main' requests cpu", id="quantity"
        ),
        pytest.param(
            make_job("x").with_(
                "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                [{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["four"]}]}],
            ),
            Reason.INVALID_REQUEST,
            "fits no node",
            id="a rule that no node meets",
        ),
    ],
)
def test_what_is_wrong_is_a_reason_naming_object_and_field(
    builder: Builder, reason: Reason, words: str
) -> None:
    found = described(builder)
    assert found.reason is reason
    assert "Job default/x" in found.message
    assert words in found.message


def test_longer_than_the_queue_allows_is_refused_with_both_figures() -> None:
    found = described(
        make_job().annotation("fluxqueue/duration", "2h"),
        queues={"default": QueueDefaults(max_duration_s=3600)},
    )
    assert found.reason is Reason.INVALID_REQUEST
    assert "7200 s" in found.message
    assert "3600 s" in found.message


def test_a_short_duration_never_counts_as_more_than_the_queue_allows() -> None:
    found = described(
        make_job().annotation("fluxqueue/duration", "1s"), queues={"default": QueueDefaults(max_duration_s=2)}
    )
    assert (found.reason, found.duration_s) == (Reason.NONE, 2)


def test_a_namespace_may_name_the_queue_and_the_object_overrules_it() -> None:
    queues = {"default": QueueDefaults(), "team": QueueDefaults(priority=5), "own": QueueDefaults()}
    assert described(make_job(), queues=queues, namespace_labels={"fluxqueue/queue": "team"}).queue == "team"
    assert (
        described(
            make_job().label("fluxqueue/queue", "own"),
            queues=queues,
            namespace_labels={"fluxqueue/queue": "team"},
        ).queue
        == "own"
    )
    assert described(make_job(), queues=queues, namespace_labels={"fluxqueue/queue": "team"}).priority == 5


def test_priority_is_the_class_unless_the_annotation_says_otherwise() -> None:
    job = make_job().with_("spec.template.spec.priorityClassName", "urgent")
    assert described(job, priority_classes={"urgent": 900}).priority == 900
    assert (
        described(job.annotation("fluxqueue/priority", "7"), priority_classes={"urgent": 900}).priority == 7
    )


def test_the_priority_of_the_queue_is_added_to_what_the_object_asks() -> None:
    queues = {"default": QueueDefaults(priority=100)}
    assert described(make_job(), queues=queues).priority == 100
    assert described(make_job().annotation("fluxqueue/priority", "-7"), queues=queues).priority == 93


def test_a_pod_counts_what_its_priority_class_counts_in_the_queue() -> None:
    pod = (
        make_pod()
        .gate("fluxqueue")
        .with_("spec.priorityClassName", "system-node-critical")
        .with_("spec.priority", 2_000_001_000)
    )
    for classes, priority in (({"system-node-critical": 3}, 3), ({}, 2_000_001_000)):
        found = describe_pod(a_pod(pod), around(priority_classes=classes))
        assert found is not None
        assert found.priority == priority


def test_a_priority_class_counts_up_to_what_the_queue_allows() -> None:
    job = make_job().with_("spec.template.spec.priorityClassName", "urgent")
    found = described(
        job, priority_classes={"urgent": 900}, queues={"default": QueueDefaults(priority=1, max_priority=60)}
    )
    assert (found.priority, found.reason) == (60, Reason.NONE)
    assert (
        described(
            make_job(), default_priority=900, queues={"default": QueueDefaults(max_priority=60)}
        ).priority
        == 60
    )
    assert (
        described(
            make_job(), default_priority=-5, queues={"default": QueueDefaults(max_priority=60)}
        ).priority
        == -5
    )


def test_a_service_states_no_duration_where_durations_are_enforced() -> None:
    pod = make_pod().gate("fluxqueue").owned_by("ReplicaSet", "web").with_("spec.restartPolicy", "Always")
    pod = pod.annotation("fluxqueue/duration", "1m")
    for enforces, duration_s in ((False, 60), (True, None)):
        found = describe_pod(
            a_pod(pod), around(queues={"default": QueueDefaults(enforces_duration=enforces)})
        )
        assert found is not None
        assert found.duration_s == duration_s
    ends = describe_pod(
        a_pod(pod.with_("spec.restartPolicy", "Never")),
        around(queues={"default": QueueDefaults(enforces_duration=True)}),
    )
    assert ends is not None
    assert ends.duration_s == 60


def test_figures_stay_within_what_a_fluxjob_can_show() -> None:
    job = make_job().annotation("fluxqueue/priority", "1000000000").with_("spec.activeDeadlineSeconds", 2**62)
    found = described(job, queues={"default": QueueDefaults(priority=2 * 10**9)})
    assert (found.priority, found.duration_s, found.reason) == (2**31 - 1, 315_360_000, Reason.NONE)


def test_a_priority_beyond_what_the_queue_allows_is_refused_with_both_figures() -> None:
    found = described(
        make_job().annotation("fluxqueue/priority", "60"),
        queues={"default": QueueDefaults(priority=1, max_priority=60)},
    )
    assert found.reason is Reason.INVALID_REQUEST
    assert "priority 61" in found.message
    assert "allows 60" in found.message


def test_a_priority_wished_for_is_held_against_what_the_queue_allows_too() -> None:
    found = steered_job(None, SpecOverrides(priority=61), default=QueueDefaults(max_priority=60))
    assert (found.reason, "priority 61" in found.message) == (Reason.INVALID_REQUEST, True)


@pytest.mark.parametrize("field", ["priorityClassName", "runtimeClassName"])
def test_a_class_that_does_not_exist_is_said_before_its_pods_are_refused(field: str) -> None:
    found = described(make_job("x").with_(f"spec.template.spec.{field}", "gone"))
    assert found.reason is Reason.INVALID_REQUEST
    assert f"{field}: there is no " in found.message


def test_a_template_gets_what_admission_will_give_its_pods_and_a_pod_has_it_already() -> None:
    ranges = (
        msgspec.convert(
            {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "250m"}}]}}, LimitRange
        ),
    )
    runtimes = {"kata": msgspec.convert({"overhead": {"podFixed": {"memory": "128Mi"}}}, RuntimeClass)}
    job = make_job().with_("spec.template.spec.runtimeClassName", "kata")
    slot = json.loads(described(job, limit_ranges=ranges, runtime_classes=runtimes).jobspec)["resources"][0]
    assert {member["type"]: member["count"] for member in slot["with"]} == {
        "cpu": 250,
        "memory": 128,
        "pods": 1,
    }
    pod = describe_pod(a_pod(make_pod().gate("fluxqueue")), around(limit_ranges=ranges))
    assert pod is not None
    assert json.loads(pod.jobspec)["resources"][0]["with"] == [{"type": "pods", "count": 1}]


def test_the_nodes_of_the_queue_are_required() -> None:
    found = described(make_job(), queues={"default": QueueDefaults(node_selector={"pool": "hpc"})})
    assert json.loads(found.jobspec)["attributes"]["system"]["constraints"] == {
        "and": [{"properties": ["pool=hpc"]}, {"tolerates": []}]
    }


def test_pods_that_keep_apart_become_nodes_with_a_slot_each() -> None:
    term = {"labelSelector": {"matchLabels": {"job-name": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = described(
        make_job("x").indexed(3).pod_label("job-name", "x").with_("spec.template.spec.affinity", rule)
    )
    (node,) = json.loads(found.jobspec)["resources"]
    assert (node["type"], node["count"], node["with"][0]["count"]) == ("node", 3, 1)


def steered_job(row: Workload | None, overrides: SpecOverrides, **queues: QueueDefaults) -> NewWorkload:
    job = held(make_job("x")).annotation("fluxqueue/duration", "10m")
    found = describe_job(
        a_job(job), around(queues={"default": QueueDefaults(), **queues}), WorkloadContext(row, overrides)
    )
    assert found is not None
    return found


def test_wishes_count_before_what_the_object_says() -> None:
    found = steered_job(
        None, SpecOverrides(queue="gpu", priority=5, duration_s=30), gpu=QueueDefaults(priority=100)
    )
    assert (found.queue, found.priority, found.duration_s, found.duration_assumed) == ("gpu", 5, 30, False)
    assert found.overrides == SpecOverrides(queue="gpu", priority=5, duration_s=30), "kept in the row"


def test_moved_work_takes_the_rules_of_its_new_queue() -> None:
    found = steered_job(None, SpecOverrides(queue="gpu"), gpu=QueueDefaults(priority=100, max_duration_s=60))
    assert found.priority == 100
    assert "600 s" in found.message
    assert "FluxJob" in steered_job(None, SpecOverrides(queue="nowhere")).message


def test_a_hold_says_how_it_ends_and_one_of_the_queue_keeps_its_cause() -> None:
    assert "spec.hold" in steered_job(None, SpecOverrides(hold=True)).message
    row = a_workload(reason=Reason.HELD, message="its pods did not start three times")
    found = steered_job(row, SpecOverrides(hold=True))
    assert (found.reason, found.message) == (Reason.HELD, "its pods did not start three times")


def test_what_is_being_cancelled_is_not_matched() -> None:
    found = steered_job(a_workload(), SpecOverrides(cancel=True))
    assert found.reason is Reason.HELD
    assert "cancelled" in found.message


DRAINED = QueueDefaults(state=QueueState.DRAINED)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param(None, Reason.QUEUE_NOT_ALLOWED, id="new"),
        pytest.param(a_workload(), Reason.NONE, id="waiting in it"),
        pytest.param(a_workload(reason=Reason.WAITING_FOR_NODES), Reason.NONE, id="waiting in it for nodes"),
        pytest.param(
            a_workload(reason=Reason.QUEUE_NOT_ALLOWED), Reason.QUEUE_NOT_ALLOWED, id="refused before"
        ),
        pytest.param(
            a_workload(reason=Reason.UNKNOWN_QUEUE), Reason.QUEUE_NOT_ALLOWED, id="it did not exist before"
        ),
        pytest.param(a_workload(queue="other"), Reason.QUEUE_NOT_ALLOWED, id="moved to it"),
    ],
)
def test_a_drained_queue_goes_on_with_what_it_had_and_takes_nothing_new(
    row: Workload | None, reason: Reason
) -> None:
    assert steered_job(row, SpecOverrides(), default=DRAINED).reason is reason


def test_a_queue_that_is_not_for_the_namespace_says_so_before_anything_else() -> None:
    for_others = QueueDefaults(members=Members(match_labels={"team": "x"}), state=QueueState.HELD)
    found = described(make_job().annotation("fluxqueue/duration", "soon"), queues={"default": for_others})
    assert (found.reason, "spec.namespaces" in found.message) == (Reason.QUEUE_NOT_ALLOWED, True)
    assert (
        described(make_job(), queues={"default": for_others}, namespace_labels={"team": "x"}).reason
        is Reason.QUEUE_HELD
    )


def test_the_labels_it_selects_and_what_it_tolerates_become_the_constraint() -> None:
    tolerated = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    job = (
        make_job()
        .with_("spec.template.spec.nodeSelector", {"disk": "ssd"})
        .with_("spec.template.spec.tolerations", tolerated)
    )
    constraint = json.loads(described(job).jobspec)["attributes"]["system"]["constraints"]
    assert constraint == {"and": [{"properties": ["disk=ssd"]}, {"tolerates": ["gpu:NoSchedule"]}]}


def test_equal_requests_have_equal_shapes_whatever_their_names() -> None:
    assert described(make_job("a").cpu("2")).shape == described(make_job("b").cpu("2000m")).shape
    assert described(make_job("a").cpu("2")).shape != described(make_job("a").cpu("3")).shape


def test_a_gated_bare_pod_is_a_workload_of_one_without_an_end() -> None:
    found = describe_pod(
        a_pod(make_pod("solo").gate("fluxqueue").with_("spec.restartPolicy", "Always")), around()
    )
    assert found is not None
    assert (found.kind, found.pods, found.duration_s, found.release_mode) == ("Pod", 1, None, ReleaseMode.POD)


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(make_pod(), id="not gated by us"),
        pytest.param(make_pod().gate("somebody-else"), id="gated by another"),
        pytest.param(make_pod().gate("fluxqueue").owned_by("Job"), id="a Job's, which is matched as a whole"),
        pytest.param(
            make_pod().gate("fluxqueue").with_("metadata.deletionTimestamp", "2026-01-01T00:00:00Z"),
            id="going away",
        ),
    ],
)
def test_pods_that_are_not_workloads_of_their_own_are_left_alone(builder: Builder) -> None:
    assert describe_pod(a_pod(builder), around()) is None


def test_a_job_whose_owner_is_gone_is_matched_as_any_other() -> None:
    assert described(make_job("nightly").owned_by("CronJob", "deleted")).reason is Reason.NONE


def test_an_object_without_a_uid_is_nobody() -> None:
    assert describe_job(a_job(held(make_job()), uid=""), around()) is None
    assert describe_pod(a_pod(make_pod().gate("fluxqueue"), uid=""), around()) is None


def test_work_belongs_to_the_account_of_its_namespace_and_a_pod_of_a_job_to_that_of_the_job() -> None:
    assert described(make_job(), account="physics").account == "physics"
    assert described(make_job()).account == ""
    pod = a_pod(make_pod("j-4").owned_by("Job", "j").label("job-name", "j").gate("fluxqueue"))
    grown = describe_pod(pod, around(account="bio"), job=a_workload("j", account="physics", duration_s=90))
    assert grown is not None
    assert grown.account == "physics", "the Job was granted while its namespace belonged to this account"


def test_a_pod_by_which_a_running_job_grew_goes_where_the_job_went_and_as_long() -> None:
    term = {"labelSelector": {"matchLabels": {"job-name": "j"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pod = a_pod(
        make_pod("j-4")
        .owned_by("Job", "j")
        .label("job-name", "j")
        .gate("fluxqueue")
        .with_("spec.affinity", rule)
    )
    grown = a_workload("j", queue="default", priority=7, duration_s=90, hosts="n[1-2],none.invalid")
    found = describe_pod(pod, around(), job=grown)
    assert found is not None
    assert (found.kind, found.queue, found.priority, found.duration_s, found.reason) == (
        "Pod",
        "default",
        7,
        90,
        Reason.NONE,
    )
    assert found.submitted_at == grown.submitted_at
    rules = rules_in(found.jobspec)
    assert rules is not None
    assert rules.labels == {"job-name": "j"}, (
        "its rules keep it off the nodes of its siblings, wherever these are when it is matched"
    )
    assert describe_pod(pod, around()) is None


@pytest.mark.parametrize("exclusive", ["true", "false"])
def test_a_pod_by_which_an_exclusive_job_grew_shares_its_node_with_no_other_work(exclusive: str) -> None:
    own = make_job("j").indexed(4).annotation("fluxqueue/exclusive", exclusive)
    defaults = QueueDefaults(
        topology={"fluxqueue/topology-slice": "3@rack", "fluxqueue/required-topology": "row"}
    )
    grown = a_workload("j", queue="default", jobspec=described(own).jobspec)
    pod = a_pod(make_pod("j-4").owned_by("Job", "j").gate("fluxqueue"))
    found = describe_pod(pod, around(queues={"default": defaults}), job=grown)
    assert found is not None
    assert found.reason is Reason.NONE, "the defaults of its queue bind the Job, and not this pod"
    assert takes_whole_nodes(found.jobspec) is (exclusive == "true")


def levels_of(found: NewWorkload) -> list[tuple[str, str]]:
    levels, resources = [], json.loads(found.jobspec)["resources"]
    while resources[0]["type"] not in ("slot", "node"):
        levels.append((resources[0]["type"], resources[0]["label"]))
        resources = resources[0]["with"]
    return levels


def test_a_job_says_its_topology_itself_or_in_its_template_or_its_queue_does() -> None:
    queues = {"default": QueueDefaults(topology={"fluxqueue/preferred-topology": "rack"})}
    own = make_job().indexed(4).annotation("fluxqueue/required-topology", "zone")
    template = (
        make_job()
        .indexed(4)
        .pod_annotation("kueue.x-k8s.io/podset-required-topology", "topology.kubernetes.io/rack")
    )
    assert levels_of(described(own)) == [("zone", "group")]
    assert levels_of(described(template)) == [("rack", "group")]
    assert levels_of(described(own, queues=queues)) == [("zone", "group"), ("rack", "preferred")]
    assert levels_of(described(own.annotation("fluxqueue/preferred-topology", "none"), queues=queues)) == [
        ("zone", "group")
    ]


def test_what_is_left_of_a_sliced_job_prefers_the_level_of_its_slices() -> None:
    sliced = make_job().indexed(4).annotation("fluxqueue/topology-slice", "2@rack")
    assert levels_of(described(sliced)) == [("rack", "group")]
    assert levels_of(described(sliced.with_("status.completedIndexes", "1"))) == [("rack", "preferred")]
    assert (
        described(make_job().indexed(3).annotation("fluxqueue/topology-slice", "2@rack")).reason
        is Reason.INVALID_REQUEST
    )


def test_a_topology_that_cannot_be_read_is_an_invalid_request_that_names_the_object() -> None:
    found = described(make_job("lost").indexed(4).annotation("fluxqueue/required-topology", "row"))
    assert (found.reason, found.jobspec) == (Reason.INVALID_REQUEST, "")
    assert found.message.startswith(
        "Job default/lost: annotation fluxqueue/required-topology: 'row' is no level of this cluster"
    )


def test_work_belongs_to_who_submitted_it_also_when_the_name_is_taken_off() -> None:
    named = make_job().annotation("fluxqueue/submitted-by", "alice")
    assert described(named).submitted_by == "alice"
    assert (
        described(make_job()).submitted_by
        == described(make_job().annotation("fluxqueue/submitted-by", "a\nb")).submitted_by
        == ""
    )
    assert steered_job(a_workload("j", submitted_by="alice"), SpecOverrides()).submitted_by == "alice"


def test_a_pod_of_a_job_is_submitted_by_who_submitted_the_job_whatever_it_says() -> None:
    pod = a_pod(
        make_pod("j-4")
        .owned_by("Job", "j")
        .label("job-name", "j")
        .gate("fluxqueue")
        .annotation("fluxqueue/submitted-by", "mallory")
    )
    for job, submitter in ((None, ""), (a_workload("j", submitted_by="alice", duration_s=90), "alice")):
        grown = describe_pod(pod, around(), job=job)
        assert grown is None or grown.submitted_by == submitter
    assert grown is not None


def test_the_claims_that_a_job_shares_are_taken_once() -> None:
    devices = ClusterDevices(counted=True)
    devices.classes.apply(msgspec.convert(a_class(), DeviceClass))
    devices.templates.apply(
        msgspec.convert(a_template("both", request(2), namespace="default"), ResourceClaimTemplate)
    )
    job = a_job(
        held(make_job("mesh").indexed(3)).with_("spec.template.spec.resourceClaims", resource_claims("both"))
    )
    shared = dict.fromkeys(job.spec.template.spec.resource_claims or (), "")
    own = describe_job(job, around(devices=devices))
    together = describe_job(job, around(devices=devices), native=NativeScheduling(claims=shared))
    assert own is not None
    assert together is not None
    assert (dict(taken_once_in(own.jobspec)), [*taken_once_in(together.jobspec).values()]) == ({}, [2])
