"""The extender's verbs for kube-scheduler: filter, prioritize and bind, with the waiting around the
decisions.

kube-scheduler and this replica watch the same API server, each with its own lag. kube-scheduler may ask about
a pod that the watch here has not shown in this state yet, and a gang would look incomplete because of it.
Events of one kind arrive in order. So it is enough to wait until the watch has shown the pod in the state
that kube-scheduler knows: then all earlier events have arrived too. kube-scheduler schedules nothing else
while it waits for ``filter``, so that wait is short.

``bind`` decides once more and posts the Binding with the resourceVersion of the pod that was decided on. So a
withdrawn allocation is never bound. A pod that has changed is checked again as soon as the watch shows it. A
refusal needs no condition and no Event of ours, because kube-scheduler writes both with our sentence in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fluxqueue.api.pods import Pod
from fluxqueue.kube.errors import ApiError, Conflict, Undecodable
from fluxqueue.kube.object_cache import Change
from fluxqueue.kube.transport import Api
from fluxqueue.scheduler_plugin.caches import SchedulerCaches
from fluxqueue.scheduler_plugin.extender.decisions import Decider
from fluxqueue.scheduler_plugin.extender.reserved_capacity import is_released
from fluxqueue.scheduler_plugin.extender.wire import Arguments, BindingArguments, FilterResult

__all__ = ["ExtenderVerbs"]

LAG_S: Final = 0.2
"""How long ``filter`` waits for the watch to show a pod."""

BIND_LAG_S: Final = 1.0
TRIES: Final = 3


class ExtenderVerbs:
    """Carries out filter, prioritize and bind.

    Parameters
    ----------
    api
        The client for Bindings; every replica may bind, not only the leader.
    caches
        The cluster.
    decider
        Decides on the responses.
    """

    def __init__(self, api: Api, caches: SchedulerCaches, decider: Decider) -> None:
        self._api = api
        self._pods = caches.pods
        self._decider = decider
        self._pod_changed = asyncio.Event()
        self._pods.add_handler(self._wake)

    async def filter(self, arguments: Arguments) -> FilterResult | str:
        """Return which nodes a pod may have, or why that cannot be decided."""
        pod = arguments.pod
        if is_released(pod):
            requested_version = pod.metadata.resource_version
            known = await self._seen(
                pod.metadata.uid,
                lambda now: _is_at_least(now.metadata.resource_version, requested_version),
                LAG_S,
            )
            if known is None:
                return f"the extender of fluxqueue has not seen pod {_name(pod)} in this state yet"
            pod = known
        return self._decider.filter(pod, arguments.names)

    def prioritize(self, arguments: Arguments) -> dict[str, int]:
        """Return a score of each node for a pod."""
        return self._decider.prioritize(arguments.pod, arguments.names)

    async def bind(self, request: BindingArguments, timeout_s: float) -> str:
        """Bind a pod.

        Returns
        -------
        str
            Why it could not be bound; empty if it is bound to this node, by any client.
        """
        why, refused_in = "", ""
        for _ in range(TRIES):
            pod = await self._seen(request.uid, _other_than(refused_in), BIND_LAG_S)
            if pod is None:
                return why or (
                    f"pod {request.namespace}/{request.name} is gone, "
                    "or the extender of fluxqueue has not seen it yet"
                )
            if pod.spec.node_name:
                return (
                    ""
                    if pod.spec.node_name == request.node
                    else f"pod {_name(pod)} is bound to node {pod.spec.node_name} already"
                )
            if why := self._decider.bind_obstacle(pod, request.node):
                return why
            try:
                await self._post(pod, request.node, timeout_s)
            except Conflict as error:
                why, refused_in = str(error), pod.metadata.resource_version
            except ApiError as error:
                return str(error)
            else:
                return ""
        return why

    async def _post(self, pod: Pod, node: str, timeout_s: float) -> None:
        """Post the Binding.
        The pod counts on its node while the request is in flight and until the watch shows it.
        """
        meta = pod.metadata
        self._decider.assume(pod, node)
        try:
            await self._api.bind(
                meta.name,
                meta.namespace,
                node,
                uid=meta.uid,
                resource_version=meta.resource_version,
                timeout_s=timeout_s,
            )
        except Undecodable:
            return
        except BaseException:
            self._decider.unassume(pod)
            raise

    async def _seen(self, uid: str, arrived: Callable[[Pod], bool], limit_s: float) -> Pod | None:
        """Return a pod as soon as the watch shows it in the expected state; None if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while (pod := self._pods.get_by_uid(uid)) is None or not arrived(pod):
                    await self._pod_changed.wait()
                return pod
        return None

    def _wake(self, _change: Change[Pod]) -> None:
        """Wake all waiting requests; each checks its own condition."""
        self._pod_changed.set()
        self._pod_changed = asyncio.Event()


def _is_at_least(version: str, other: str) -> bool:
    """Return True if a resourceVersion is equal to or later than another one;
    they can be compared as numbers (KEP-5504).
    """
    if version.isdecimal() and other.isdecimal():
        return int(version) >= int(other)
    return version == other


def _other_than(version: str) -> Callable[[Pod], bool]:
    return lambda pod: pod.metadata.resource_version != version


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
