"""One container: started, probed, restarted and stopped.

The life of a container is a loop: resolve the variables, start the process, wait for its end, decide whether
it starts again. Each change of its `ContainerRecord` is reported, and the pod writes its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from fluxqueue.local.chart import relocate
from fluxqueue.local.kubelet.children import MARK, Child, Children, Entry, StartFailed, kill_marked
from fluxqueue.local.kubelet.container_files import ContainerFiles
from fluxqueue.local.kubelet.container_log import ContainerLog
from fluxqueue.local.kubelet.container_streams import ContainerStreams
from fluxqueue.local.kubelet.environment import MissingSource, expand
from fluxqueue.local.kubelet.pod_status import ContainerRecord, Ended, Running, Waiting
from fluxqueue.local.kubelet.probe_results import ProbeResults
from fluxqueue.local.kubelet.probing import Prober
from fluxqueue.local.kubelet.restarts import CrashBackoff, restarts_after
from fluxqueue.local.kubelet.specs import Probe

__all__ = ["ContainerRunner"]

log = structlog.get_logger(__name__)

MESSAGE_BYTES = 4096
MESSAGE_OF_LOG_BYTES = 2048
_CONFIGURATION_RETRY_S = 2.0
_OF_TERMINALS = {"TERM": "xterm"}
"""What container runtimes add where a terminal is asked for."""


class ContainerRunner:
    """Runs one container.

    Parameters
    ----------
    record
        What is known of it; kept up to date here.
    init
        True for an init container, which is ready once it has succeeded.
    pod
        Namespace and name of its pod, for the agent's log.
    pod_policy
        The restart policy of its pod.
    mark
        The mark of its processes (`children`).
    hostname, address
        Those of its pod.
    files, children
        Where and by what it is started.
    variables
        Returns its variables; called at each start.
    changed
        Called after each change of the record.
    """

    def __init__(
        self,
        record: ContainerRecord,
        *,
        init: bool,
        pod: str,
        pod_policy: str,
        mark: str,
        hostname: str,
        address: str,
        files: ContainerFiles,
        children: Children,
        variables: Callable[[], Awaitable[Mapping[str, str]]],
        changed: Callable[[], None],
    ) -> None:
        self.record = record
        self.container = record.container
        self.streams: ContainerStreams | None = None
        self.log: ContainerLog | None = None
        self.started = asyncio.Event()
        self._init = init
        self._pod = pod
        self._policy = pod_policy
        self._mark = mark
        self._hostname = hostname
        self._files = files
        self._children = children
        self._variables = variables
        self._changed = changed
        self._child: Child | None = None
        self._environment: Mapping[str, str] = {}
        self._backoff = CrashBackoff()
        self._failed_probe = ""
        self._stopping = asyncio.Event()
        self._grace_s = 0.0
        self._prober = Prober(self.container, address, self.run_inside)

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return self._child.pid if self._child is not None and not self._child.ended.done() else None

    def previous_log(self) -> ContainerLog | None:
        """Return the log of the run before this one."""
        path = self._files.logs / f"{self.record.restarts - 1}.log"
        return ContainerLog.of_ended(path) if path.exists() else None

    async def run(self) -> int:
        """Run it until it does not start again; return its last exit code."""
        while True:
            ended = await self._run_once()
            again = not self._stopping.is_set() and restarts_after(
                self.container, self._policy, ended.exit_code
            )
            self.record.state = ended
            self.record.started = self.record.ready = False
            if not again:
                self.record.ready = ended.exit_code == 0 and self._init
                self.record.final = True
                self._changed()
                return ended.exit_code
            delay_s = self._backoff.delay_s((ended.until - ended.since).total_seconds())
            self._changed()
            if delay_s:
                message = f"back-off {delay_s:g}s restarting failed container={self.container.name}"
                self.record.state, self.record.last = Waiting("CrashLoopBackOff", message), ended
                self._changed()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), delay_s)
            if self._stopping.is_set():
                self.record.state, self.record.final = ended, True
                self._changed()
                return ended.exit_code
            self.record.last = ended
            self.record.restarts += 1

    async def stop(self, grace_s: float) -> None:
        """Stop it for good: the hook, SIGTERM, and SIGKILL after the grace period."""
        self._grace_s = grace_s
        self._stopping.set()
        await self._end_process(grace_s)

    async def _end_process(self, grace_s: float) -> None:
        child = self._child
        if child is None or child.ended.done():
            return
        deadline = time.monotonic() + grace_s
        hook = self.container.lifecycle.pre_stop if self.container.lifecycle else None
        if hook is not None and grace_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._prober.hook(hook), grace_s)
        with contextlib.suppress(ProcessLookupError):
            if not child.ended.done() and grace_s > 0:
                os.kill(child.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(child.ended), max(0.0, deadline - time.monotonic()))
        child.signal_group(signal.SIGKILL)
        await asyncio.shield(child.ended)

    async def _run_once(self) -> Ended:
        """Start the process, wait for its end, and leave nothing of it."""
        since = datetime.now(UTC).replace(microsecond=0)
        self._failed_probe = ""
        identity = f"process://{Path(self._mark).parent.name}/{self.container.name}/{self.record.restarts}"
        self.log = ContainerLog(self._files.logs / f"{self.record.restarts}.log")
        (self._files.logs / f"{self.record.restarts - 2}.log").unlink(missing_ok=True)
        try:
            child = await self._start(self.log)
        except StartFailed as failed:
            self.log.close()
            return Ended(128, "StartError", since, since, str(failed))
        if child is None:  # it was stopped before its variables could be resolved
            self.log.close()
            return Ended(
                137, "ContainerStatusUnknown", since, since, "it was stopped before it could be started"
            )
        since = datetime.now(UTC).replace(microsecond=0)
        self.record.state, self.record.container_id = Running(since), identity
        self.record.started = self.container.startup_probe is None
        self.record.ready = self.record.started and self.container.readiness_probe is None
        self._changed()
        if self.record.started:
            self.started.set()
        watchers = [asyncio.create_task(self._probe()), asyncio.create_task(self._after_start())]
        if self._stopping.is_set():  # it was stopped while it was started
            watchers.append(asyncio.create_task(self._end_process(self._grace_s)))
        try:
            code = await asyncio.shield(child.ended)
        finally:
            for watcher in watchers:
                watcher.cancel()
            child.signal_group(signal.SIGKILL)
        kill_marked(self._mark)
        self._kill_group(child.pid)
        if self.streams is not None:
            await self.streams.close()
        until = datetime.now(UTC).replace(microsecond=0)
        killed = code == 128 + signal.SIGKILL and self._files.group.out_of_memory()
        reason = "OOMKilled" if killed else "Completed" if code == 0 else "Error"
        return Ended(code, reason, since, until, self._message(code), identity)

    @staticmethod
    def _kill_group(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    async def _start(self, log: ContainerLog) -> Child | None:
        while True:
            try:
                terminal = _OF_TERMINALS if self.container.tty else {}
                self._environment = {**terminal, **await self._variables(), MARK: self._mark}
                break
            except MissingSource as missing:
                waiting = Waiting("CreateContainerConfigError", str(missing))
                if self.record.state != waiting:
                    self.record.state = waiting
                    self._changed()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _CONFIGURATION_RETRY_S)
                if self._stopping.is_set():
                    return None
        self._files.message.write_bytes(b"")
        words = [*(self.container.command or ()), *(self.container.args or ())]
        entry = self._entry([expand(word, self._environment) for word in words])
        streams = ContainerStreams(self.container, log)
        try:
            self._child = await self._children.start(
                entry, self._relocated(self._environment), *streams.theirs
            )
        except StartFailed:
            streams.failed()
            raise
        streams.started()
        self.streams = streams
        return self._child

    def _entry(self, words: list[str], join: int = 0) -> Entry:
        folder = str(self._files.folder)
        groups = [str(each) for each in self._files.group.folders]
        if self._files.root is None:
            placed = [self._place(word) for word in words]
            return Entry(
                placed,
                self._place(self.container.working_dir) or folder,
                groups=groups,
                terminal=self.container.tty,
            )
        return Entry(
            words,
            self.container.working_dir or folder,
            root="" if join else str(self._files.root),
            mounts=() if join else list(self._files.mounts),
            hostname=self._hostname,
            join=join,
            groups=groups,
            terminal=self.container.tty and not join,
        )

    def _place(self, word: str) -> str:
        return relocate(word, [(target, Path(source)) for source, target in self._files.mounts])

    def _relocated(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        if self._files.root is not None:
            return environment
        return {name: value if name == MARK else self._place(value) for name, value in environment.items()}

    def _message(self, code: int) -> str:
        """Return what the container says of its end; if a probe has ended it, that comes first."""
        return "\n".join(filter(None, (self._failed_probe, self._own_message(code))))[:MESSAGE_BYTES]

    def _own_message(self, code: int) -> str:
        with contextlib.suppress(OSError):
            with self._files.message.open("rb") as file:
                text = file.read(MESSAGE_BYTES).decode(errors="replace")
            if text:
                return text
        if (
            code != 0
            and self.container.termination_message_policy == "FallbackToLogsOnError"
            and self.log is not None
        ):
            return self.log.end_of(MESSAGE_OF_LOG_BYTES)
        return ""

    # ---- probes and commands -------------------------------------------------------------------------------

    async def enter(
        self, words: list[str], stdin: int, stdout: int, stderr: int, *, terminal: bool = False
    ) -> Child:
        """Start another command in the container.

        Raises
        ------
        StartFailed
            It cannot be executed, or the container does not run.
        """
        pid = self.pid
        if pid is None:
            raise StartFailed(f"container {self.container.name} does not run")
        entry = replace(self._entry(words, join=pid if self._files.root else 0), terminal=terminal)
        environment = {**(_OF_TERMINALS if terminal else {}), **self._environment}
        return await self._children.start(entry, self._relocated(environment), stdin, stdout, stderr)

    async def run_inside(self, words: list[str]) -> int:
        """Run a command in the container without input and output; return its exit code."""
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            child = await self.enter(words, nothing, nothing, nothing)
        except StartFailed as failed:
            raise OSError(str(failed)) from None
        finally:
            os.close(nothing)
        try:
            return await asyncio.shield(child.ended)
        finally:
            child.signal_group(signal.SIGKILL)

    async def _after_start(self) -> None:
        hook = self.container.lifecycle.post_start if self.container.lifecycle else None
        if hook is not None:
            await self._prober.hook(hook)

    async def _probe(self) -> None:
        if self.container.startup_probe is not None:
            if problem := await self._until_decided(self.container.startup_probe):
                await self._end_by_probe("startup", self.container.startup_probe, problem)
                return
            self.record.started = True
            self.record.ready = self.container.readiness_probe is None
            self._changed()
            self.started.set()
        async with asyncio.TaskGroup() as group:
            if self.container.readiness_probe is not None:
                group.create_task(self._readiness(self.container.readiness_probe))
            if self.container.liveness_probe is not None:
                group.create_task(self._liveness(self.container.liveness_probe))

    async def _until_decided(self, probe: Probe) -> str:
        results = ProbeResults(probe)
        await asyncio.sleep(probe.initial_delay_seconds)
        while not results.add(not (problem := await self._prober.problem(probe))):
            await asyncio.sleep(max(1, probe.period_seconds))
        return problem

    async def _readiness(self, probe: Probe) -> None:
        results = ProbeResults(probe)
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            if results.add(not await self._prober.problem(probe)):
                self.record.ready = bool(results.value)
                self._changed()
            await asyncio.sleep(max(1, probe.period_seconds))

    async def _liveness(self, probe: Probe) -> None:
        results = ProbeResults(probe)
        await asyncio.sleep(probe.initial_delay_seconds)
        while not (
            results.add(not (problem := await self._prober.problem(probe))) and results.value is False
        ):
            await asyncio.sleep(max(1, probe.period_seconds))
        await self._end_by_probe("liveness", probe, problem)

    async def _end_by_probe(self, kind: str, probe: Probe, problem: str) -> None:
        self._failed_probe = f"{kind} probe failed: {problem}"
        log.warning(
            "container.probe_failed", pod=self._pod, container=self.container.name, probe=kind, error=problem
        )
        grace_s = probe.termination_grace_period_seconds
        await self._end_process(30.0 if grace_s is None else float(grace_s))
