"""What the pods of a job use now, asked of the metrics API in the name of the person who looks.

The requests, the reading of answers, and the sentences where nothing is known are those of
`kubectl fluxqueue efficiency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fluxqueue.api.pods import Pod
from fluxqueue.cli.pod_metrics import METRICS_GROUP, PodUse, metrics_requests, unmeasured, use_in
from fluxqueue.cli.simulated_nodes import is_simulated, nothing_runs_on
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.transport import Api

__all__ = ["read_pod_use"]

_MOST_BYTES: Final = 4 << 20
_TIMEOUT_S: Final = 5.0
"""A metrics API that hangs must not hold up the page."""


async def read_pod_use(api: Api, namespace: str, pods: Sequence[Pod]) -> PodUse | None:
    """Return what those of some pods use that run; None if none does."""
    running = [pod for pod in pods if pod.status.phase == "Running"]
    if not running:
        return None
    answers, refused = [], False
    try:
        for path, query in metrics_requests(namespace, running):
            try:
                answers.append(await _answer(api, path, query))
            except NotFound:
                continue
            except Forbidden:
                refused = True
        if (use := use_in(answers, running)) is not None:
            return use
        return unmeasured(
            namespace,
            served=bool(answers) or await _is_there(api, METRICS_GROUP),
            refused=refused,
            simulated=await _simulated(api, running[0].spec.node_name or ""),
        )
    except ApiError as error:
        return PodUse(unknown=f"the metrics API does not answer ({error.message[:500]})")


async def _answer(api: Api, path: str, query: dict[str, str] | None = None) -> bytes:
    return await api.request("GET", path, query=query, most_bytes=_MOST_BYTES, timeout_s=_TIMEOUT_S, tries=1)


async def _is_there(api: Api, path: str) -> bool:
    try:
        await _answer(api, path)
    except NotFound:
        return False
    return True


async def _simulated(api: Api, node: str) -> str:
    """Return that pods on a node have no containers; empty if they have, or if it is not known."""
    try:
        answer = await _answer(api, f"/api/v1/nodes/{node}")
    except ApiError:
        return ""
    return nothing_runs_on([node]) if is_simulated(answer) else ""
