"""What objects ask of the topology: annotations, those of Kueue, defaults of queues,
and every value that cannot be read.
"""

from __future__ import annotations

import pytest

from fluxqueue.api import names
from fluxqueue.api.topology import (
    ANYWHERE,
    DEFAULT_LEVELS,
    InvalidTopology,
    TopologyRequest,
    levels_problem,
    topology_of,
    within_domain,
)

RACK = "topology.kubernetes.io/rack"


def asked(
    own: dict[str, str], template: dict[str, str] | None = None, queue: dict[str, str] | None = None
) -> TopologyRequest:
    return topology_of((own, template), queue or {}, DEFAULT_LEVELS)


def ours(**values: str) -> dict[str, str]:
    return {f"fluxqueue/{key.replace('_', '-')}": value for key, value in values.items()}


def kueue(**values: str) -> dict[str, str]:
    return {f"kueue.x-k8s.io/podset-{key.replace('_', '-')}": value for key, value in values.items()}


def test_an_object_that_says_nothing_may_be_anywhere() -> None:
    assert asked({}) == asked({"app": "x"}) == ANYWHERE


@pytest.mark.parametrize(
    ("own", "request_"),
    [
        (ours(required_topology="rack"), TopologyRequest(required="rack")),
        (ours(required_topology=RACK), TopologyRequest(required="rack")),
        (ours(required_topology="kubernetes.io/hostname"), TopologyRequest(required="node")),
        (ours(required_topology="zone", preferred_topology="rack"), TopologyRequest("zone", "rack")),
        (ours(topology_slice="8@rack"), TopologyRequest(slice_level="rack", slice_size=8)),
        (ours(exclusive="true", pods_per_node="4"), TopologyRequest(exclusive=True, pods_per_node=4)),
        (ours(exclusive="false"), ANYWHERE),
        (kueue(required_topology=RACK), TopologyRequest(required="rack")),
        (kueue(preferred_topology=RACK), TopologyRequest(preferred="rack")),
        (
            kueue(slice_required_topology=RACK, slice_size="8"),
            TopologyRequest(slice_level="rack", slice_size=8),
        ),
    ],
)
def test_annotations_of_ours_and_of_kueue_mean_the_same(
    own: dict[str, str], request_: TopologyRequest
) -> None:
    assert asked(own) == request_


def test_the_object_counts_before_its_template_and_both_before_the_queue() -> None:
    rack, zone = ours(required_topology="rack"), ours(required_topology="zone")
    assert asked(rack, zone).required == "rack"
    assert asked({}, zone, rack).required == "zone"
    assert asked({}, None, rack).required == "rack"
    assert asked(ours(required_topology="none"), zone, rack).required == ""
    assert asked(kueue(required_topology=RACK), None, zone).required == "rack", (
        "Kueue's annotation of the object ends the default too"
    )


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (
            ours(required_topology="row"),
            (
                "annotation fluxqueue/required-topology: 'row' is no level of this cluster: use one of "
                "zone, block, rack, node, or the"
            ),
        ),
        (
            kueue(preferred_topology="x"),
            "annotation kueue.x-k8s.io/podset-preferred-topology: 'x' is no level of this cluster",
        ),
        (
            ours(topology_slice="rack"),
            "annotation fluxqueue/topology-slice: 'rack' is no slice: write pods@level, such as 8@rack",
        ),
        (ours(topology_slice="0@rack"), "'0@rack' is no slice"),
        (ours(topology_slice="8@row"), "'row' is no level of this cluster"),
        (
            kueue(slice_size="8"),
            "podset-slice-size is set without kueue.x-k8s.io/podset-slice-required-topology: set both",
        ),
        (
            kueue(slice_required_topology=RACK),
            "podset-slice-required-topology is set without kueue.x-k8s.io/podset-slice-size: set both",
        ),
        (ours(pods_per_node="0"), "annotation fluxqueue/pods-per-node: '0' is no number of pods"),
        (ours(pods_per_node="many"), "'many' is no number of pods: write a whole number from 1 to 20000"),
        (ours(exclusive="yes"), 'annotation fluxqueue/exclusive: \'yes\' is neither "true" nor "false"'),
        (
            ours(required_topology="rack", preferred_topology="zone"),
            "its preferred level zone is above the required level rack: name a level at or below rack",
        ),
        (
            ours(required_topology="rack", topology_slice="2@zone"),
            "its slice's level zone is above the required level rack",
        ),
        (
            ours(preferred_topology="rack", topology_slice="2@zone"),
            "the level of its slices, zone, is above the preferred level rack",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_key_and_remedy(own: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidTopology) as refused:
        asked(own)
    assert sentence in str(refused.value)


def test_a_default_that_cannot_be_read_names_the_queue() -> None:
    with pytest.raises(
        InvalidTopology, match="the default of its queue for fluxqueue/required-topology: 'row' is no level"
    ):
        asked({}, None, ours(required_topology="row"))


@pytest.mark.parametrize(
    ("own", "queue", "request_"),
    [
        (ours(required_topology="node"), ours(preferred_topology="rack"), TopologyRequest(required="node")),
        (ours(required_topology="node"), ours(topology_slice="2@rack"), TopologyRequest(required="node")),
        (ours(preferred_topology="zone"), ours(required_topology="rack"), TopologyRequest(required="rack")),
        (ours(topology_slice="2@zone"), ours(required_topology="rack"), TopologyRequest(required="rack")),
        (
            ours(topology_slice="2@zone"),
            ours(preferred_topology="rack"),
            TopologyRequest(slice_level="zone", slice_size=2),
        ),
        (ours(preferred_topology="rack"), ours(topology_slice="2@zone"), TopologyRequest(preferred="rack")),
    ],
)
def test_a_default_never_makes_invalid_what_the_object_says(
    own: dict[str, str], queue: dict[str, str], request_: TopologyRequest
) -> None:
    assert asked(own, None, queue) == request_


def test_defaults_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidTopology, match="its preferred level zone is above the required level rack"):
        asked({}, None, ours(required_topology="rack", preferred_topology="zone"))


def test_slices_by_default_are_optional_and_own_ones_are_not() -> None:
    eight = ours(topology_slice="8@rack")
    assert asked({}, None, eight) == TopologyRequest(slice_level="rack", slice_size=8, optional_slices=True)
    assert not asked(eight, None, eight).optional_slices


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ((("Rack", "x"),), "'Rack' is no name of a level"),
        ((("node", "x"),), "'node' is no name of a level"),
        ((("cpu", "x"),), "'cpu' is no name of a level"),
        ((("rack", ""),), "level 'rack' has no label"),
        ((("rack", "x"), ("rack", "y")), "two levels have the same name or the same label"),
        ((("rack", "x"), ("row", "x")), "two levels have the same name or the same label"),
        (tuple((f"l{number}", f"l{number}") for number in range(17)), "17 levels are too many: at most 16"),
    ],
)
def test_levels_that_cannot_be_are_named(levels: tuple[tuple[str, str], ...], problem: str) -> None:
    assert problem in levels_problem(levels)


def test_the_default_levels_are_fine_and_so_is_any_depth() -> None:
    assert levels_problem(DEFAULT_LEVELS) == ""
    assert levels_problem(tuple((f"l{number}", f"example.com/l{number}") for number in range(16))) == ""
    assert set(names.TOPOLOGY_KEYS) >= {names.REQUIRED_TOPOLOGY_ANNOTATION, names.KUEUE_SLICE_SIZE_ANNOTATION}


@pytest.mark.parametrize(
    ("request_", "label", "expected"),
    [
        pytest.param(ANYWHERE, names.ZONE_LABEL, TopologyRequest("zone"), id="a level"),
        pytest.param(ANYWHERE, names.HOSTNAME_LABEL, TopologyRequest("node"), id="one node"),
        pytest.param(
            ANYWHERE, "example.com/island", TopologyRequest(together="example.com/island"), id="another label"
        ),
        pytest.param(
            TopologyRequest("rack"),
            names.ZONE_LABEL,
            TopologyRequest("rack", together=names.ZONE_LABEL),
            id="both hold",
        ),
    ],
)
def test_a_domain_is_a_level_or_a_label(
    request_: TopologyRequest, label: str, expected: TopologyRequest
) -> None:
    assert within_domain(request_, label, DEFAULT_LEVELS) == expected
