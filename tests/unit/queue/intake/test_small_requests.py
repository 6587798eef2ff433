"""Small pods fill a node as far as their requests go, not as far as coarse vertices let them."""

from decimal import Decimal

import msgspec
import pytest
from support.builders import make_node

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.graph.nodes import graph_node
from fluxqueue.fluxion.messages import MatchVerdict
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of


def fit(pods: int, **requests: Decimal) -> bool:
    """Whether so many pods fit an empty node of 4 cpu and 16 GiB, as the intake asks and the node reads."""
    engine = Engine()
    node = msgspec.convert(make_node("n", cpu="4", memory="16Gi", pods="500").build(), Node)
    engine.init("lonode", nodes=[graph_node(node).spec])
    return (
        engine.satisfy(jobspec_of("ns/j", [SizedPods(requests, pods)], duration_s=60)).verdict
        is MatchVerdict.GRANTED
    )


@pytest.mark.parametrize(("pods", "does"), [(41, True), (400, True), (401, False)])
def test_as_many_pods_of_10m_fit_4_cpu_as_there_are_10m_in_it(pods: int, does: bool) -> None:
    assert fit(pods, cpu=Decimal("0.01")) is does


@pytest.mark.parametrize(("pods", "does"), [(65, True), (500, True)])
def test_more_than_64_pods_of_32mi_fit_16_gib(pods: int, does: bool) -> None:
    assert fit(pods, memory=Decimal(32 * 2**20)) is does


def test_a_pod_that_asks_for_a_little_more_than_a_vertex_takes_two() -> None:
    assert fit(200, cpu=Decimal("0.015"))
    assert not fit(201, cpu=Decimal("0.015"))
