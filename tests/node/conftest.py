"""Two real nodes and a release of the chart, for all tests of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.real_nodes import FIGURES, MODE, NodeStage, RealCluster, node_namespace, require_nodes

from fluxqueue.local.binaries import locked
from fluxqueue.local.display import Display
from fluxqueue.local.nodes.cluster import NodeCluster
from fluxqueue.local.nodes.images import built_images, newest_images
from fluxqueue.local.nodes.layout import NodeLayout, nodes_cache
from fluxqueue.local.nodes.programs import built_programs

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of real nodes, with the builds that the first one waits for, more time than others."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(3_600 if item is items[0] else 600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    if FIGURES:
        terminalreporter.section("figures on real nodes")
        for figure in FIGURES:
            terminalreporter.write_line(figure)


@pytest.fixture(scope="session")
def nodes() -> Iterator[RealCluster]:
    """Two nodes that have all images; nothing is installed on them. They are not started where they cannot
    run.

    Their folder is always the same, so that a run ends what an earlier one left when it was killed. It is not
    below the temporary folder, which is a RAM disk on many computers.
    """
    nodes_cache().mkdir(parents=True, exist_ok=True)
    with locked(nodes_cache() / "test.lock"), Display() as display:
        cluster = NodeCluster(NodeLayout(nodes_cache() / "test"))
        cluster.down(delete=True)
        require_nodes()
        programs, images = (
            built_programs(display),
            newest_images() if MODE == "keep" else built_images(display),
        )
        assert programs is not None
        assert images is not None
        try:
            cluster.up(2, programs, display.step)
            display.step("importing images into every node")
            cluster.load(archive.path for archive in images.values())
            yield RealCluster(cluster, images)
        finally:
            cluster.down(delete=True)


@pytest.fixture(scope="session")
def release(nodes: RealCluster) -> Iterator[RealCluster]:
    """The chart, installed once; a test that removes it installs it again."""
    seconds = nodes.install()
    FIGURES.append(f"install to Ready: {seconds:.1f} s")
    yield nodes
    nodes.remove()


@pytest.fixture
def stage(release: RealCluster) -> Iterator[NodeStage]:
    """A managed namespace on real nodes."""
    with node_namespace(release, f"node-{next(_numbers)}") as stage:
        yield stage
