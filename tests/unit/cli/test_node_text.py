"""What a workload asks of its nodes, in words."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec
from fluxqueue.cli.node_text import node_text
from fluxqueue.queue.model.jobspecs import PlacementRules, SizedPods, jobspec_of

CPU = {"cpu": Decimal(1)}


@pytest.mark.parametrize(
    ("requests", "placement", "words"),
    [
        (CPU, PlacementRules(), []),
        (CPU, PlacementRules({"properties": ["disk=ssd"]}), [("Only nodes", "disk=ssd")]),
        (
            {**CPU, "devices/gpu/any": Decimal(2)},
            PlacementRules(one_per_node=True),
            [("Devices", "6 devices of class gpu in all; kube-scheduler chooses which")],
        ),
    ],
)
def test_the_jobspec_is_read_as_people_would(
    requests: dict[str, Decimal], placement: PlacementRules, words: list[tuple[str, str]]
) -> None:
    jobspec = jobspec_of("ns/n", [SizedPods(requests, 3)], duration_s=60, placement=placement)
    assert node_text(FluxJob(spec=FluxJobSpec(jobspec=jobspec))) == words


def test_a_jobspec_that_cannot_be_read_says_nothing() -> None:
    assert node_text(FluxJob(spec=FluxJobSpec(jobspec="{"))) == []
    assert node_text(FluxJob()) == []
