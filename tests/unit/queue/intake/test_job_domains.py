"""Further pods of a Job whose pods must lie below one vertex."""

from __future__ import annotations

import msgspec
from support.builders import make_node

from fluxqueue.api.nodes import Node
from fluxqueue.api.topology import DEFAULT_LEVELS, TopologyRequest
from fluxqueue.queue.intake.job_domains import properties_beside
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of


def node(**labels: str) -> Node:
    built = make_node("n1").label("kubernetes.io/hostname", "n1")
    for level, value in labels.items():
        built = built.label(f"topology.kubernetes.io/{level}", value)
    return msgspec.convert(built.build(), Node)


def beside(topology: TopologyRequest, *nodes: Node | None) -> tuple[str, ...]:
    jobspec = jobspec_of(
        "ns/n", [SizedPods({}, 2)], duration_s=60, placement=PlacementRules(topology=topology)
    )
    return properties_beside(jobspec, nodes, DEFAULT_LEVELS)


def test_a_further_pod_gets_the_labels_of_the_level_and_of_all_above_it() -> None:
    there = node(zone="z", rack="r")
    assert beside(TopologyRequest("rack"), None, there) == (
        "topology.kubernetes.io/zone=z",
        "topology.kubernetes.io/rack=r",
    )
    assert beside(TopologyRequest("zone"), there) == ("topology.kubernetes.io/zone=z",)
    assert beside(TopologyRequest("node"), there)[-1] == "kubernetes.io/hostname=n1"


def test_only_a_required_level_binds_a_further_pod_while_another_has_a_node() -> None:
    there = node(zone="z", rack="r")
    assert beside(TopologyRequest(preferred="rack"), there) == ()
    assert beside(TopologyRequest(slice_level="rack", slice_size=2), there) in (
        (),
        ("topology.kubernetes.io/zone=z", "topology.kubernetes.io/rack=r"),
    )
    assert (
        beside(TopologyRequest("rack"), None)
        == beside(TopologyRequest("rack"))
        == beside(TopologyRequest(), there)
        == ()
    )
    assert beside(TopologyRequest("row"), there) == ()


def test_a_further_pod_follows_a_label_that_is_no_level() -> None:
    there = node(zone="z", island="i")
    assert beside(TopologyRequest(together="topology.kubernetes.io/island"), there) == (
        "topology.kubernetes.io/island=i",
    )
    both = TopologyRequest("zone", together="topology.kubernetes.io/island")
    assert beside(both, there) == ("topology.kubernetes.io/zone=z", "topology.kubernetes.io/island=i")
