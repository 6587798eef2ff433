"""Requests that are broken off, and event loops that end right after."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.transport import Api
from fluxqueue.local.controlplane import ControlPlane


async def break_off(kubeconfig: Path, after_s: float) -> None:
    async with Api.connect(kubeconfig) as api:
        request = asyncio.create_task(api.list(PODS))
        await asyncio.sleep(after_s)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


def test_a_request_broken_off_at_any_moment_leaves_no_socket_to_the_loops_end(cluster: ControlPlane) -> None:
    left = []
    for number in range(60):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            asyncio.run(break_off(cluster.kubeconfig, number / 3_000))
            gc.collect()
        left += [str(each.message) for each in said if issubclass(each.category, ResourceWarning)]
    assert left == []
