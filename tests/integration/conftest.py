"""What stays in one process when several share the tests (``-n 2``): a file, or all files that use the same
control plane.

And a test whose own event loop is blocked for long fails: parts of the programs run in it.
"""

from __future__ import annotations

import inspect
from pathlib import PurePosixPath

import pytest
from support.loop_blocks import with_short_blocks
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it brings no types

_CONTROL_PLANES = {
    "chart": "chart",
    "cli": "cli",
    "kube": "kube",
    "test_controlplane.py": "bare",
    "test_admission.py": "bare",
    "test_manifests.py": "bare",
}
"""Folder or file -> whose control plane it uses; the bare one is that of `tests/conftest.py`."""


class ByControlPlane(LoadScopeScheduling):  # type: ignore[misc]  # which has no types
    """Hands out all tests of one control plane together, so that none is started twice."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        return _CONTROL_PLANES.get(path.name) or _CONTROL_PLANES.get(path.parent.name) or str(path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByControlPlane:
    """Instead of one test after the other, whose ever turn it is."""
    return ByControlPlane(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Watch the loop of each asynchronous test."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = with_short_blocks(item.obj)
