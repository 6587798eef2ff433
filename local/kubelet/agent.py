"""The agent itself: it gives each bound pod a runner, and keeps the names of pods up to date."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fluxqueue.kube.errors import ApiError, NotFound
from fluxqueue.kube.kinds import Kind
from fluxqueue.kube.object_cache import Change, ChangeKind, ObjectCache
from fluxqueue.kube.reflector import Reflector
from fluxqueue.kube.watches import Watches
from fluxqueue.local.kubelet.children import kill_marked
from fluxqueue.local.kubelet.host_names import NamedPod, Service, hosts_file, service_lines
from fluxqueue.local.kubelet.machine import Machine
from fluxqueue.local.kubelet.node_status import AgentNode
from fluxqueue.local.kubelet.pod_runner import PodRunner
from fluxqueue.local.kubelet.specs import PodObject, WatchedPod, decode_pod
from fluxqueue.local.kubelet.stand_ins import without_flux

__all__ = ["NodeAgent", "write_changed"]

log = structlog.get_logger(__name__)

_PODS = Kind("", "v1", "pods", "Pod", True, WatchedPod)
_NODES = Kind("", "v1", "nodes", "Node", False, AgentNode)
_SERVICES = Kind("", "v1", "services", "Service", True, Service)
_NAMES_EVERY_S = 0.2
_REFRESH_EVERY_S = 60.0
_READ_RETRY_S = 1.0


class NodeAgent:
    """Runs the pods of all nodes."""

    def __init__(self, machine: Machine) -> None:
        self.nodes: ObjectCache[AgentNode] = ObjectCache()
        self._machine = machine
        self._pods: ObjectCache[WatchedPod] = ObjectCache()
        self._services: ObjectCache[Service] = ObjectCache()
        self._runners: dict[str, PodRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._names_changed = asyncio.Event()
        self._watches = Watches(
            Reflector(machine.api, _PODS, self._pods, field_selector="spec.nodeName!="),
            Reflector(machine.api, _NODES, self.nodes),
            Reflector(machine.api, _SERVICES, self._services),
        )

    async def run(self) -> None:
        """Run until cancelled; then nothing of the pods is left."""
        self._pods.add_handler(self._pod_changed)
        self._services.add_handler(lambda _: self._names_changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watches.run())
                group.create_task(self._keep_names())
                group.create_task(self._refresh_volumes())
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            kill_marked(str(self._machine.folder))

    def runner(self, namespace: str, name: str) -> PodRunner | None:
        """Return the runner of a pod; None if it is not on these nodes."""
        pod = self._pods.get(namespace, name)
        return self._runners.get(pod.metadata.uid) if pod is not None else None

    def _pod_changed(self, change: Change[WatchedPod]) -> None:
        pod, uid = change.obj, change.obj.metadata.uid
        if change.kind is ChangeKind.DELETED:
            if (runner := self._runners.get(uid)) is not None:
                runner.forget()
            elif uid in self._tasks and self._tasks[uid].done():
                del self._tasks[uid]
            return
        if uid not in self._tasks:
            self._tasks[uid] = asyncio.create_task(self._run(pod))
        if pod.metadata.deletion_timestamp is not None and (runner := self._runners.get(uid)) is not None:
            runner.end(float(pod.metadata.deletion_grace_period_seconds or 0))

    async def _run(self, watched: WatchedPod) -> None:
        meta = watched.metadata
        try:
            pod = await self._read(watched)
            if pod is None:
                return
            node = self.nodes.get("", pod.spec.node_name)
            runner = PodRunner(
                self._machine, pod, (node.status.allocatable if node else None) or {}, self._names_changed.set
            )
            self._runners[meta.uid] = runner
            now = self._pods.get_by_uid(meta.uid)
            if now is None:
                return
            if now.metadata.deletion_timestamp is not None:
                runner.end(float(now.metadata.deletion_grace_period_seconds or 0))
            await runner.run()
        finally:
            self._runners.pop(meta.uid, None)
            self._names_changed.set()
            if self._pods.get_by_uid(meta.uid) is None:
                self._tasks.pop(meta.uid, None)

    async def _read(self, watched: WatchedPod) -> PodObject | None:
        meta = watched.metadata
        while True:
            try:
                pod = decode_pod(
                    await self._machine.api.request(
                        "GET", f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
                    )
                )
                if pod.metadata.uid != meta.uid:
                    return None
                return pod if self._machine.has_flux else without_flux(pod)
            except NotFound:
                return None
            except (ApiError, msgspec.MsgspecError) as error:
                log.warning("pod.not_read", pod=meta.name, namespace=meta.namespace, error=str(error))
                await asyncio.sleep(_READ_RETRY_S)

    # ---- names and volumes ---------------------------------------------------------------------------------

    async def _keep_names(self) -> None:
        """Write the hosts files of pods whose content changed."""
        written: dict[Path, str] = {}
        while True:
            await self._names_changed.wait()
            self._names_changed.clear()
            runners = [each for each in self._runners.values() if each.address and each.hosts is not None]
            named = {each.hosts: _named(each) for each in runners if each.hosts is not None}
            services = self._services.list()
            lines = {
                each: service_lines(each, named.values(), services)
                for each in {pod.namespace for pod in named.values()}
            }
            texts = {path: hosts_file(pod, lines[pod.namespace]) for path, pod in named.items()}
            written = write_changed(texts, written)
            await asyncio.sleep(_NAMES_EVERY_S)

    async def _refresh_volumes(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_EVERY_S)
            for runner in [*self._runners.values()]:
                if runner.follows_objects:
                    with contextlib.suppress(Exception):  # what is missing now keeps its last content
                        await runner.refresh_volumes()


def write_changed(texts: Mapping[Path, str], written: Mapping[Path, str]) -> dict[Path, str]:
    """Write the files whose text has changed, in place; return what they have now.
    One may be gone, or closed by its pod.
    """
    done = {}
    for path, text in texts.items():
        with contextlib.suppress(OSError):
            if written.get(path) != text:
                path.write_text(text)
            done[path] = text
    return done


def _named(runner: PodRunner) -> NamedPod:
    pod: Any = runner.pod
    meta = pod.metadata
    labels = meta.labels or {}
    return NamedPod(
        meta.namespace, meta.name, runner.address, pod.hostname, pod.spec.subdomain, labels, runner.ready
    )
