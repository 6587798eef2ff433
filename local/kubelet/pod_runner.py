"""One pod on this machine: its files, its containers in their order, and its status, from its arrival until
its object is gone.

A pod passes these steps:

1. **Refusal.** What nodes of processes cannot run fails at once, with a sentence.
2. **Files.** It gets an address and a folder with its volumes. While a required ConfigMap or Secret does not
  exist, it waits.
3. **Init containers** run one after the other; sidecars among them are started and go on.
4. **Containers** run at the same time. The pod is over when none of them starts again. Then the sidecars end,
  the last one first.
5. **End.** A deletion or the deadline of the pod stops its containers at any time, with the grace period. The
   last status is written, and a deleted object is removed for good only then: whoever waits for it may rely
   on nothing being left.

Only this agent writes the status of its pods, so what was written last needs no reading. A write that fails
is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from fluxqueue.kube.errors import ApiError, Conflict, Invalid, NotFound
from fluxqueue.kube.transport import PatchType
from fluxqueue.local.kubelet.children import kill_marked
from fluxqueue.local.kubelet.container_files import ContainerFiles
from fluxqueue.local.kubelet.container_runner import ContainerRunner
from fluxqueue.local.kubelet.environment import MissingSource, PodFacts, container_variables
from fluxqueue.local.kubelet.folders import remove_tree
from fluxqueue.local.kubelet.grace import GracePeriod
from fluxqueue.local.kubelet.limits import ContainerGroup
from fluxqueue.local.kubelet.machine import Machine
from fluxqueue.local.kubelet.pod_status import ContainerRecord, Waiting, former_end, former_state, pod_status
from fluxqueue.local.kubelet.specs import Container, PodObject
from fluxqueue.local.kubelet.volume_files import TokenKey, file_modes, named_objects, tokens_of, volume_files
from fluxqueue.local.volumes import write_atomically

__all__ = ["PodRunner"]

log = structlog.get_logger(__name__)

_RETRY_S = 1.0
_SOURCE_RETRY_S = 1.0
_TEMPORARY = "/pod-tmp"
"""Where a container has its temporary files, if it has mounts of its own."""
_LONGEST_TEMPORARY = 60
"""Programs make sockets in their temporary folder, and the name of a socket has at most 107 bytes."""
_TOKEN_PART = 0.8
"""The part of its lifetime after which a token is replaced, as by the kubelet."""


class PodRunner:
    """Runs one pod.

    Parameters
    ----------
    machine
        Where it runs.
    pod
        The pod.
    resolved
        Called when it has got its address, or lost it.
    """

    def __init__(
        self, machine: Machine, pod: PodObject, capacity: Mapping[str, str], resolved: Callable[[], None]
    ) -> None:
        self.pod = pod
        self.address = ""
        self.hosts: Path | None = None
        self.containers: dict[str, ContainerRunner] = {}
        self._machine = machine
        self._resolved = resolved
        self._facts = PodFacts("", machine.host_ip, capacity)
        self._folder = machine.folder / pod.metadata.uid
        self._init = [ContainerRecord(each) for each in pod.spec.init_containers or ()]
        self._main = [ContainerRecord(each) for each in pod.spec.containers]
        self._arrived = datetime.now(UTC)
        self._over = False
        self._failure: tuple[str, str] | None = None
        self._groups: list[ContainerGroup] = []
        self._tokens: dict[TokenKey, tuple[bytes, float]] = {}
        self._conditions: dict[str, tuple[bool, str]] = {}
        self._dirty = asyncio.Event()
        self._deleted = asyncio.Event()
        self._gone = asyncio.Event()
        self._period = GracePeriod()
        self._grace_s: float = pod.spec.termination_grace_period_seconds

    @property
    def ready(self) -> bool:
        """True if all its containers are ready."""
        return bool(self.address) and not self._over and all(record.ready for record in self._main)

    @property
    def follows_objects(self) -> bool:
        """True if its volumes have files that can change while it runs."""
        return (
            bool(self.containers)
            and not self._over
            and any(volume.empty_dir is None for volume in self.pod.spec.volumes or ())
        )

    def end(self, grace_s: float) -> None:
        """Stop it, because its object is being deleted;
        a later deletion can shorten the time that is left.
        """
        self._grace_s = grace_s
        self._period.begin(grace_s)
        self._deleted.set()

    def forget(self) -> None:
        """Stop it at once, because its object is gone."""
        self._gone.set()
        self.end(0.0)

    async def run(self) -> None:
        """Run it until its object is gone."""
        if self.pod.status.phase in ("Succeeded", "Failed"):
            await self._remove_object()
            return
        writer = asyncio.create_task(self._write_changes())
        try:
            await self._live()
        except Exception as error:  # of this machine: a full disk, no more addresses or processes
            log.exception("pod.failed", pod=self.pod.metadata.name, namespace=self.pod.metadata.namespace)
            self._failure = ("NodeAgentError", str(error))
            await self.kill()
            kill_marked(f"{self._folder}/")
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
            if self.address:
                if not self.pod.spec.host_network:
                    self._machine.addresses.give_back(self.address)
                self.address = ""
                self._resolved()
            for group in self._groups:
                group.remove()
        self._over = True
        await self._write_status()
        await self._remove_object()
        await asyncio.to_thread(remove_tree, self._folder)

    async def kill(self) -> None:
        """Stop all containers now."""
        await asyncio.gather(*(each.stop(0) for each in self.containers.values()))

    # ---- life ----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        if problem := self._refusal():
            self._failure = problem
            return
        life = asyncio.create_task(self._run_containers())
        stop = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait(
                [life, stop],
                timeout=self.pod.spec.active_deadline_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not life.done():
                if not self._deleted.is_set():
                    self._failure = (
                        "DeadlineExceeded",
                        "Pod was active on the node longer than the specified deadline",
                    )
                self._over = True
                await self._stop_containers(life)
            await life
        finally:
            stop.cancel()

    def _refusal(self) -> tuple[str, str] | None:
        if self.pod.refusal:
            return "NotSupported", self.pod.refusal
        records = (*self._init, *self._main)
        if any(former_state(self.pod, record.container.name) for record in records):
            for record in records:
                record.state = former_end(former_state(self.pod, record.container.name), self._arrived)
            return (
                "NodeAgentRestarted",
                "the node agent was started again, and the processes of the pod ended with the former one",
            )
        return None

    async def _stop_containers(self, life: asyncio.Task[None]) -> None:
        """Stop the containers, then the sidecars in reverse order, within one grace period."""
        self._period.begin(self._grace_s)
        sidecars = {each.name for each in self.pod.sidecars}
        running = [each for name, each in self.containers.items() if name not in sidecars]
        await asyncio.gather(*(self._stop(each) for each in running))
        if not running:
            life.cancel()
        for name in [each.name for each in reversed(self.pod.sidecars)]:
            if name in self.containers:
                await self._stop(self.containers[name])

    async def _stop(self, runner: ContainerRunner) -> None:
        """Stop a container; a deletion that follows with less grace shortens its time."""
        stopping = asyncio.create_task(runner.stop(self._period.left_s))
        over = asyncio.create_task(self._period.over())
        await asyncio.wait([stopping, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not stopping.done():
            await runner.stop(0)
            stopping.cancel()  # it may wait for a hook
        else:
            stopping.result()

    async def _run_containers(self) -> None:
        sidecars: list[tuple[ContainerRunner, asyncio.Task[int]]] = []
        try:
            await self._make_files()
            for record in self._init:
                runner = self._runner(record, init=True)
                if record.container.restart_policy == "Always":
                    task = asyncio.create_task(runner.run())
                    sidecars.append((runner, task))
                    started = asyncio.create_task(runner.started.wait())
                    await asyncio.wait([started, task], return_when=asyncio.FIRST_COMPLETED)
                    started.cancel()
                elif await runner.run() != 0:
                    return
                if self._over:
                    return
            runners = [self._runner(record, init=False) for record in self._main]
            await asyncio.gather(*(runner.run() for runner in runners))
        except asyncio.CancelledError:
            if not self._deleted.is_set() and self._failure is None:
                raise
        finally:
            for runner, task in reversed(sidecars):
                await runner.stop(self._grace_s)
                await task

    def _runner(self, record: ContainerRecord, *, init: bool) -> ContainerRunner:
        container = record.container
        folder = self._folder / container.name
        folder.mkdir(parents=True, exist_ok=True)
        message = folder / "termination-message"
        message.touch()
        mounts = [*self._mounts(container), (str(message), container.termination_message_path)]
        root = None
        if self._machine.namespaces:
            root = folder / "root"
            root.mkdir(exist_ok=True)
            assert self.hosts is not None
            mounts.append((str(self.hosts), "/etc/hosts"))
        group = self._machine.groups.make(
            f"{self.pod.metadata.uid}-{container.name}", container.resources.limits
        )
        self._groups.append(group)
        work = folder / "work"
        (work / "tmp").mkdir(parents=True, exist_ok=True)
        if root is not None:
            mounts.append((str(work / "tmp"), _TEMPORARY))
        runner = ContainerRunner(
            record,
            init=init,
            pod=f"{self.pod.metadata.namespace}/{self.pod.metadata.name}",
            pod_policy=self.pod.spec.restart_policy,
            mark=f"{self._folder}/{container.name};",
            hostname=self.pod.hostname,
            address=self.address,
            files=ContainerFiles(work, folder / "logs", root, mounts, message, group),
            children=self._machine.children,
            variables=lambda: self._variables(container, work),
            changed=self._dirty.set,
        )
        self.containers[container.name] = runner
        return runner

    def _mounts(self, container: Container) -> list[tuple[str, str]]:
        mounts = []
        for mount in container.volume_mounts or ():
            source = self._folder / "volumes" / mount.name
            if mount.sub_path and ".." not in mount.sub_path.split("/"):
                source = source / mount.sub_path.lstrip("/")
                if not source.exists():
                    source.mkdir(parents=True)
            mounts.append((str(source), mount.mount_path.rstrip("/") or "/"))
        return mounts

    # ---- files and variables -------------------------------------------------------------------------------

    async def _make_files(self) -> None:
        """Make the folder, the volumes and the address; wait for what does not exist yet."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.address = self._machine.host_ip if self.pod.spec.host_network else self._machine.addresses.take()
        self.hosts = self._folder / "hosts"
        # others follow, itself it knows at once
        self.hosts.write_text(f"127.0.0.1 localhost\n{self.address} {self.pod.hostname}\n")
        self._facts = PodFacts(self.address, self._machine.host_ip, self._facts.capacity)
        self._resolved()
        for record in (*self._init, *self._main):
            record.state = Waiting("PodInitializing" if self._init else "ContainerCreating")
        self._dirty.set()
        while True:
            try:
                await self.refresh_volumes()
                return
            except (MissingSource, ApiError) as problem:
                for record in (*self._init, *self._main):
                    record.state = Waiting("ContainerCreating", str(problem))
                self._dirty.set()
            await asyncio.sleep(_SOURCE_RETRY_S)

    async def refresh_volumes(self) -> None:
        """Write the files of all volumes.

        Raises
        ------
        MissingSource
            An object does not exist.
        ApiError
            The API server does not answer.
        """
        meta, spec = self.pod.metadata, self.pod.spec
        objects = await self._machine.objects.read(meta.namespace, named_objects(self.pod))
        account = spec.service_account_name or "default"
        keys = tokens_of(spec.volumes or ())
        now = asyncio.get_running_loop().time()
        for key in keys:
            if key not in self._tokens or now - self._tokens[key][1] > _TOKEN_PART * key.expiration_s:
                self._tokens[key] = (
                    await self._machine.objects.token(meta.namespace, account, (meta.name, meta.uid), key),
                    now,
                )
        tokens = {key: token for key, (token, _) in self._tokens.items()}
        for volume in spec.volumes or ():
            folder = self._folder / "volumes" / volume.name
            folder.mkdir(parents=True, exist_ok=True)
            files = volume_files(self.pod, self._facts, volume, objects, tokens)
            if files is not None:
                mode, modes = file_modes(volume)
                write_atomically(folder, files, mode)
                for name in modes.keys() & files.keys():
                    (folder / name).chmod(modes[name])

    async def _variables(self, container: Container, work: Path) -> Mapping[str, str]:
        try:
            contents = await self._machine.objects.read(
                self.pod.metadata.namespace, named_objects(self.pod), binary=False
            )
        except ApiError as error:
            raise MissingSource(str(error)) from None
        sources = {
            key: None
            if content is None
            else {name: value.decode(errors="replace") for name, value in content.items()}
            for key, content in contents.items()
        }
        base = {**self._machine.variables, "HOSTNAME": self.pod.hostname, "HOME": str(work)}
        temporary = _TEMPORARY if self._machine.namespaces else str(work / "tmp")
        if len(temporary) <= _LONGEST_TEMPORARY:
            base["TMPDIR"] = temporary
        return container_variables(self.pod, container, self._facts, base, sources)

    # ---- status --------------------------------------------------------------------------------------------

    def _status(self) -> dict[str, Any]:
        now = datetime.now(UTC)
        status = pod_status(
            self.pod,
            self._init,
            self._main,
            pod_ip=self._facts.pod_ip,
            host_ip=self._machine.host_ip,
            started=self._arrived,
            over=self._over,
            before=self._conditions,
            now=now,
        )
        if self.pod.note:
            status["message"] = self.pod.note
        if self._failure is not None:
            status["phase"] = "Failed"
            status["reason"], status["message"] = self._failure
            if all(isinstance(record.state, Waiting) for record in self._main):  # nothing of it has ever run
                del status["containerStatuses"]
        self._conditions = {
            each["type"]: (each["status"] == "True", each["lastTransitionTime"])
            for each in status["conditions"]
        }
        return status

    async def _write_changes(self) -> None:
        self._dirty.set()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._write_status()
            self._resolved()

    async def _write_status(self) -> None:
        meta = self.pod.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/status"
        while not self._gone.is_set():
            body = {"metadata": {"uid": meta.uid}, "status": self._status()}
            try:
                await self._machine.api.request(
                    "PATCH", path, body=body, content_type=PatchType.STRATEGIC.value
                )
                return
            except (NotFound, Conflict):  # it is gone, or another pod has its name
                self.forget()
            except ApiError as error:
                log.warning(
                    "pod.status_not_written", pod=meta.name, namespace=meta.namespace, error=str(error)
                )
                # the same status would be refused again, and the pod could never be deleted
                if isinstance(error, Invalid):
                    return
                await asyncio.sleep(_RETRY_S)

    async def _remove_object(self) -> None:
        """Wait until the object is deleted, and remove it for good."""
        await self._deleted.wait()
        meta = self.pod.metadata
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": meta.uid},
        }
        while not self._gone.is_set():
            try:
                await self._machine.api.request(
                    "DELETE", f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}", body=body
                )
                return
            except (NotFound, Conflict):
                return
            except ApiError:
                await asyncio.sleep(_RETRY_S)
