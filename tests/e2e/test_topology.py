"""Work below levels of the topology, on the racks of the local cluster:
node-1 to node-4 are rack-1, node-5 to node-8 are rack-2.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from support.builders import make_job, make_minicluster, make_pod
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.hostlists import decode
from fluxqueue.api.pods import Pod
from fluxqueue.local.fake_nodes import RACK_LABEL, ZONE_LABEL
from fluxqueue.local.kubectl import KubectlError

RUN_SECONDS = "fluxqueue.local/run-seconds"


def hosts_of(stage: Stage, name: str) -> list[str]:
    """Return the node of each rank of a workload, as soon as its FluxJob shows them."""

    def shown() -> list[str]:
        return next(
            (decode(each.status.nodes) for each in stage.fluxjobs() if each.spec.object_ref.name == name), []
        )

    return stage.until(f"{name} shows its nodes", shown)


def racks_of(stage: Stage, name: str) -> dict[int, int]:
    """Return how many pods of a workload each rack has."""
    return dict(Counter((int(host.removeprefix("node-")) + 3) // 4 for host in hosts_of(stage, name)))


def forever(name: str, pods: int, cpu: str) -> Any:
    return make_job(name).indexed(pods).cpu(cpu).pod_annotation(RUN_SECONDS, "forever")


def test_a_job_a_group_and_a_minicluster_lie_below_one_rack_each(stage: Stage) -> None:
    group = [
        make_pod(f"member-{number}")
        .cpu("4")
        .label(names.POD_GROUP_LABEL, "crew")
        .annotation(names.POD_GROUP_SIZE_ANNOTATION, "3")
        .annotation(names.KUEUE_REQUIRED_TOPOLOGY_ANNOTATION, RACK_LABEL)
        .annotation(RUN_SECONDS, "forever")
        .build()
        for number in range(3)
    ]
    flux = make_minicluster("flux", 3)
    flux["metadata"]["annotations"] = {names.REQUIRED_TOPOLOGY_ANNOTATION: "rack"}
    stage.apply_all(forever("whole", 3, "8").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, "rack").build())
    stage.until_state("whole", State.RUNNING)
    stage.apply_all(*group)
    stage.until("the group has its nodes", lambda: len(hosts_of(stage, "crew")) == 3)
    stage.apply_all(flux)
    assert [sorted(racks_of(stage, name).values()) for name in ("whole", "crew", "flux")] == [[3], [3], [3]]
    assert racks_of(stage, "crew") != racks_of(stage, "whole"), (
        "one rack has one node left, and needs one and a half"
    )


def test_what_no_rack_holds_now_is_reserved_and_starts_when_one_does(stage: Stage) -> None:
    one_each = [
        forever(f"part-{number}", 1, "8")
        .with_("spec.template.spec.nodeSelector", {names.HOSTNAME_LABEL: f"node-{number}"})
        .build()
        for number in (1, 5)
    ]
    stage.apply_all(*one_each)
    for number in (1, 5):
        stage.until_state(f"part-{number}", State.RUNNING)
    stage.apply_all(forever("wide", 4, "8").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, "rack").build())
    waits = stage.until_reason("wide", Reason.WAITING_FOR_NODES)
    assert "reserved for it from" in waits.status.message, (
        "the first that waits gets the first rack that will be free"
    )
    stage.succeed("part-5")
    stage.until_state("wide", State.RUNNING)
    assert racks_of(stage, "wide") == {2: 4}


def test_a_preferred_rack_and_slices_use_as_few_racks_as_possible(stage: Stage) -> None:
    stage.apply_all(
        forever("near", 6, "4").annotation(names.PREFERRED_TOPOLOGY_ANNOTATION, "rack").build(),
    )
    stage.until_state("near", State.RUNNING)
    assert sorted(racks_of(stage, "near").values()) == [6]
    stage.apply_all(forever("pairs", 8, "4").annotation(names.TOPOLOGY_SLICE_ANNOTATION, "2@rack").build())
    stage.until_state("pairs", State.RUNNING)
    ranks = [(int(host.removeprefix("node-")) + 3) // 4 for host in hosts_of(stage, "pairs")]
    assert all(ranks[first] == ranks[first + 1] for first in range(0, 8, 2)), (
        "neighbours in rank are neighbours in the network"
    )


def test_exclusive_work_shares_no_node_and_spreads_as_asked(stage: Stage) -> None:
    alone = (
        forever("alone", 4, "1")
        .annotation(names.EXCLUSIVE_ANNOTATION, "true")
        .annotation(names.PODS_PER_NODE_ANNOTATION, "2")
    )
    stage.apply_all(alone.build())
    stage.until_state("alone", State.RUNNING)
    own = hosts_of(stage, "alone")
    assert sorted(Counter(own).values()) == [2, 2]
    stage.apply_all(
        *(
            make_job(f"small-{number}").cpu("1").pod_annotation(RUN_SECONDS, "forever").build()
            for number in range(60)
        )
    )
    stage.until(
        "all other nodes are full", lambda: sum(row.state == State.RUNNING for row in stage.rows()) == 1 + 48
    )
    others = [each for each in stage.fluxjobs() if each.spec.object_ref.name.startswith("small-")]
    assert not {host for each in others for host in decode(each.status.nodes)} & set(own)


def test_a_level_that_does_not_exist_is_named_with_the_ones_that_do(stage: Stage) -> None:
    sentence = (
        "annotation fluxqueue/required-topology: 'racks' is no level of this cluster: did you mean rack?"
    )
    with pytest.raises(KubectlError, match=re.escape(f"{sentence} use one of zone, block, rack, node")):
        stage.apply_all(
            forever("lost", 2, "1").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, "racks").build()
        )


def test_a_job_that_grows_stays_below_its_rack(stage: Stage) -> None:
    stage.apply_all(
        forever("front", 4, "8").with_("spec.template.spec.nodeSelector", {RACK_LABEL: "rack-1"}).build()
    )
    stage.until_state("front", State.RUNNING)
    stage.apply_all(forever("grows", 2, "4").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, "rack").build())
    stage.until_state("grows", State.RUNNING)
    assert racks_of(stage, "grows") == {2: 2}
    stage.succeed("front")
    stage.until_state("front", State.COMPLETED)
    stage.kubectl("patch", "job", "grows", "-p", '{"spec":{"completions":4,"parallelism":4}}')

    def nodes() -> list[str]:
        """Return the nodes of its pods, which took the first free ones if its rack did not bind them."""
        pods = [
            pod for pod in stage.items("pods", Pod) if pod.metadata.label(names.JOB_NAME_LABEL) == "grows"
        ]
        return [pod.spec.node_name or "" for pod in pods]

    stage.until("all four pods have nodes", lambda: len(nodes()) == 4 and all(nodes()))
    assert {(int(node.removeprefix("node-")) + 3) // 4 for node in nodes()} == {2}


def test_zone_is_a_level_too(stage: Stage) -> None:
    stage.apply_all(
        forever("zonal", 4, "8").annotation(names.REQUIRED_TOPOLOGY_ANNOTATION, ZONE_LABEL).build()
    )
    stage.until_state("zonal", State.RUNNING)
    assert len(racks_of(stage, "zonal")) == 1
