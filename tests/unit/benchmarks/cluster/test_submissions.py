"""What each contender's users write for the same work."""

from __future__ import annotations

from typing import Any

from cluster.baseline import SITE as BASELINE
from cluster.contenders import flux_queues, submitted_plainly, submitted_to_fluxqueue
from cluster.kueue import installed
from cluster.kueue_objects import KueueQueues, submitted_to_kueue
from cluster.sites import RUN_SECONDS, Site, Work, job

WORK = Work("one", cpu="5", memory=None, run_s="0.5", duration_s=1, queue="cq-1-2", priority=100)


def test_all_contenders_get_the_same_pods_but_for_the_selection_of_nodes() -> None:
    plain, ours, kueue = (
        submitted_plainly(WORK, BASELINE),
        submitted_to_fluxqueue(WORK),
        submitted_to_kueue(WORK, "cq-1-2"),
    )
    template = job(WORK)["spec"]["template"]
    assert ours["spec"]["template"] == kueue["spec"]["template"] == template
    assert plain["spec"]["template"]["spec"]["containers"] == template["spec"]["containers"]
    assert template["metadata"]["annotations"] == {RUN_SECONDS: "0.5"}
    assert template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "5"}}


def test_queue_and_priority_are_written_in_the_way_of_each_contender() -> None:
    plain, ours, kueue = (
        submitted_plainly(WORK, BASELINE),
        submitted_to_fluxqueue(WORK),
        submitted_to_kueue(WORK, "cq-1-2"),
    )
    spec = plain["spec"]["template"]["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == (
        {"kubernetes.io/hostname": "node-2"},
        "priority-100",
    )
    assert ours["metadata"]["labels"] == {"fluxqueue/queue": "cq-1-2"}
    assert ours["metadata"]["annotations"] == {"fluxqueue/priority": "100", "fluxqueue/duration": "1s"}
    assert kueue["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "cq-1-2",
        "kueue.x-k8s.io/priority-class": "priority-100",
    }
    assert kueue["spec"]["suspend"] is True


def test_a_gang_is_an_indexed_job() -> None:
    spec = job(Work("gang", pods=8))["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 8, 8)
    assert "completions" not in job(Work("single"))["spec"]


def test_the_quotas_of_kueue_are_the_room_of_the_cluster() -> None:
    parts = [each for each in KueueQueues(Site(), 5).cluster_objects() if each["kind"] == "ClusterQueue"]
    resources = [part["spec"]["resourceGroups"][0]["flavors"][0]["resources"] for part in parts]
    assert sum(int(cpu["nominalQuota"].removesuffix("m")) for cpu, _ in resources) == 32 * 8 * 1000
    assert {part["spec"]["cohortName"] for part in parts} == {"site"}
    (whole,) = (each for each in KueueQueues(Site(), 1).cluster_objects() if each["kind"] == "ClusterQueue")
    assert whole["spec"]["resourceGroups"][0]["flavors"][0]["resources"][1] == {
        "name": "memory",
        "nominalQuota": f"{32 * 32 * 1024}Mi",
    }
    assert "cohortName" not in whole["spec"]


def test_jobs_take_the_queues_of_kueue_in_turn() -> None:
    queues = KueueQueues(Site(), 3)
    assert [queues.name(number) for number in range(4)] == ["queue-0", "queue-1", "queue-2", "queue-0"]
    assert [each["metadata"]["name"] for each in queues.local_queues("n")] == [
        "queue-0",
        "queue-1",
        "queue-2",
    ]


def test_the_baseline_has_the_same_queues_for_kueue_and_fluxqueue() -> None:
    kueue = [each for each in KueueQueues(BASELINE, 5).cluster_objects() if each["kind"] == "ClusterQueue"]
    ours = flux_queues(BASELINE)
    assert len(kueue) == len(ours) == 30
    assert kueue[7]["spec"]["cohortName"] == "cohort-1"
    assert kueue[7]["spec"]["preemption"] == {
        "reclaimWithinCohort": "Any",
        "withinClusterQueue": "LowerPriority",
    }
    cpu = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    assert kueue[7]["spec"]["resourceGroups"] == [
        {"coveredResources": ["cpu"], "flavors": [{"name": "cohort-1", "resources": [cpu]}]}
    ]
    assert ours[7]["spec"] == {
        "nodeSelector": {"kubernetes.io/hostname": "node-2"},
        "preemption": "lowerPriority",
        "limits": {"cores": 120},
    }


def test_webhooks_of_kueue_lead_here_and_those_of_other_kinds_are_left_out() -> None:
    def hook(resource: str) -> dict[str, Any]:
        return {
            "rules": [{"resources": [resource]}],
            "clientConfig": {"service": {"name": "w", "path": "/x"}},
        }

    conversion: dict[str, Any] = {"webhook": {"clientConfig": {"service": {"name": "w"}}}}
    documents = installed(
        [
            {"kind": "Deployment"},
            {"kind": "ValidatingWebhookConfiguration", "webhooks": [hook("jobs"), hook("pods")]},
            {"kind": "CustomResourceDefinition", "spec": {"conversion": conversion}},
        ],
        4711,
    )
    assert [document["kind"] for document in documents] == [
        "ValidatingWebhookConfiguration",
        "CustomResourceDefinition",
        "Service",
    ]
    assert [each["clientConfig"]["service"]["port"] for each in documents[0]["webhooks"]] == [4711]
    assert conversion["webhook"]["clientConfig"]["service"]["port"] == 4711
    assert documents[2]["spec"] == {"type": "ExternalName", "externalName": "localhost"}
