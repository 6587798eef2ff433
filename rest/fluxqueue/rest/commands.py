"""What a Flux instance is told and asked, by its own `flux` command and by argv only.

The service links nothing of Flux: it runs in our image beside a broker of any version, whose command it finds in the view that both mount.
No word of a request ever passes a shell, and none of them can be taken for an option: what could begin with a dash is refused or stands
behind an equals sign. Values of variables are kept from being expanded (`flux submit` would).

A job has the environment that the leader's application has, as if it had been submitted there: the programs it is to find are in that image
and not in ours. The leader writes it down before its broker starts.

Each command has a deadline; output that is followed has none, and its process ends when the reader goes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluxqueue.api.hostlists import decode

__all__ = [
    "Flux",
    "FluxFailed",
    "FluxMissing",
    "InvalidWord",
    "NodeGroup",
    "Submission",
    "UnknownJob",
    "environment_for",
    "read_environment",
    "read_size",
]

_DEADLINE_S = 30.0
_END_S = 5.0
_CHUNK = 64 * 1024
_LONGEST_OUTPUT = 16 * 2**20
_AT_ONCE = 16
_JOB_ID = re.compile(r"[fƒ]?[0-9A-Za-z.]{1,24}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN = re.compile(r"unknown|no such job|not found|does not exist|invalid job", re.IGNORECASE)
_NODE_FIELDS = "{state}\t{nnodes}\t{ncores}\t{ngpus}\t{nodelist}"


class FluxFailed(Exception):
    """A command of Flux failed; the message is what it said."""


class UnknownJob(FluxFailed):
    """There is no such job in this instance."""


class FluxMissing(Exception):
    """There is no `flux` to run, or the instance does not answer yet."""


class InvalidWord(ValueError):
    """A part of a request that cannot be handed to Flux; the message names the field."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to be submitted; None leaves a choice to Flux.

    Attributes
    ----------
    command
        The program and its arguments, as they are.
    nodes, tasks, cores_per_task, gpus_per_task
        Its size.
    duration_s
        Its time limit.
    environment
        Variables beside those of the application.
    """

    command: Sequence[str]
    nodes: int | None = None
    tasks: int | None = None
    cores_per_task: int | None = None
    gpus_per_task: int | None = None
    duration_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    name: str | None = None
    urgency: int | None = None

    def words(self, application: Mapping[str, str] | None = None) -> list[str]:
        """The words after ``flux``.

        Parameters
        ----------
        application
            Environment to begin with; None for that of this process.

        Raises
        ------
        InvalidWord
            The command is empty or begins like an option, or a variable has no name.
        """
        if not self.command or not self.command[0] or self.command[0].startswith("-"):
            raise InvalidWord("command: say the program to run as its first word; it cannot be empty or begin with a dash")
        if any("\0" in word for word in (*self.command, *self.environment.values(), self.working_directory or "", self.name or "")):
            raise InvalidWord("command: no word may hold a NUL character")
        sized = (
            ("nodes", self.nodes),
            ("ntasks", self.tasks),
            ("cores-per-task", self.cores_per_task),
            ("gpus-per-task", self.gpus_per_task),
            ("time-limit", f"{self.duration_s:g}s" if self.duration_s is not None else None),
            ("urgency", self.urgency),
            ("cwd", self.working_directory),
            ("job-name", self.name),
        )
        words = ["submit", *(f"--{option}={value}" for option, value in sized if value is not None)]
        for key in self.environment:
            if not _VARIABLE.fullmatch(key):
                raise InvalidWord(f"environment: {key!r} cannot be the name of a variable: use letters, digits and underscores")
        if application is not None:
            words.append("--env=-*")
        variables = {**(application or {}), **self.environment}
        words += [f"--env={key}={value.replace('$', '$$')}" for key, value in variables.items()]
        return [*words, *self.command]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes in one state (``free``, ``allocated``, ``down``, ``drained``) with the cores and GPUs of all of them."""

    state: str
    hosts: tuple[str, ...]
    cores: int
    gpus: int


def environment_for(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the commands: the view's programs first on the path (``FLUX_VIEW``), job ids in ASCII."""
    environment = dict(base)
    if view := base.get("FLUX_VIEW"):
        environment["PATH"] = f"{view}/bin:{base.get('PATH', os.defpath)}"
    environment["FLUX_F58_FORCE_ASCII"] = "1"
    return environment


class Flux:
    """One instance, spoken to through its command.

    Parameters
    ----------
    environment
        Of the commands; ``FLUX_URI`` says which instance, ``PATH`` which `flux`.
    deadline_s
        Of each command but followed output.
    application
        File with the environment of the leader's application; see `read_environment`.
    """

    def __init__(self, environment: Mapping[str, str], deadline_s: float = _DEADLINE_S, application: Path | None = None) -> None:
        self._environment = dict(environment)
        self._application = application
        self._deadline_s = deadline_s
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def submit(self, submission: Submission) -> str:
        """Submit a job; its id."""
        application = read_environment(self._application) if self._application is not None else None
        said = await self._run(*submission.words(application))
        return said.strip().splitlines()[-1]

    async def jobs(self, *, active_only: bool = False, limit: int = 1000) -> list[dict[str, Any]]:
        """The instance's jobs as `flux jobs --json` tells them, the youngest first."""
        flags = [] if active_only else ["-a"]
        found = json.loads(await self._run("jobs", *flags, f"--count={limit}", "--json") or "{}")
        return list(found.get("jobs", [found] if found.get("id") is not None else []))

    async def job(self, jobid: str) -> dict[str, Any]:
        """One job.

        Raises
        ------
        UnknownJob
            There is none of this id.
        """
        found = json.loads(await self._run("jobs", "-a", "--json", _job_id(jobid)) or "{}")
        listed = found.get("jobs", [found] if found else [])
        if not listed:
            raise UnknownJob(f"there is no job {jobid} in this instance")
        return dict(listed[0])

    async def cancel(self, jobid: str) -> None:
        """Cancel a job that has not ended."""
        await self._run("cancel", _job_id(jobid))

    async def nodes(self) -> list[NodeGroup]:
        """The instance's nodes, by state."""
        said = await self._run("resource", "list", "--no-header", "--states=free,allocated,down", f"--format={_NODE_FIELDS}")
        groups = []
        for line in said.splitlines():
            state, _, cores, gpus, hosts = ([part.strip() for part in line.split("\t")] + [""] * 5)[:5]
            if hosts:
                groups.append(NodeGroup(state, tuple(decode(hosts)), int(cores or 0), int(gpus or 0)))
        return groups

    async def alive(self) -> bool:
        """Whether the instance answers."""
        try:
            await self._run("ping", "--count=1", "0")
        except (FluxFailed, FluxMissing):
            return False
        return True

    async def output(self, jobid: str) -> AsyncGenerator[bytes, None]:
        """What the job has written so far, standard output and error as they came.

        Raises
        ------
        UnknownJob
            There is none of this id.
        """
        said = await self._run("job", "eventlog", "--format=json", "--path=guest.output", _job_id(jobid))
        for line in said.splitlines():
            entry = json.loads(line)
            context = entry.get("context", {})
            if entry.get("name") == "data" and context.get("data"):
                yield _data(context)

    async def follow(self, jobid: str) -> AsyncGenerator[bytes, None]:
        """What the job has written and goes on to write, until it ends or the reader goes."""
        process = await self._start("job", "attach", "--read-only", _job_id(jobid), stderr=asyncio.subprocess.STDOUT)
        assert process.stdout is not None
        try:
            while piece := await process.stdout.read(_CHUNK):
                yield piece
        finally:
            await _end(process)

    async def _start(self, *words: str, stderr: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                "flux",
                *words,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        except OSError as error:
            where = self._environment.get("PATH", "")
            raise FluxMissing(f"flux cannot be run ({error.strerror}): is the Flux view mounted? PATH is {where}") from None

    async def _run(self, *words: str) -> str:
        async with self._limit:
            process = await self._start(*words, stderr=asyncio.subprocess.PIPE)
            try:
                out, err = await asyncio.wait_for(process.communicate(), self._deadline_s)
            except TimeoutError:
                raise FluxMissing(f"flux {words[0]} did not answer within {self._deadline_s:g} s") from None
            finally:
                await _end(process)
        if process.returncode:
            said = (err or out).decode(errors="replace").strip().splitlines()
            sentence = said[-1] if said else f"flux {words[0]} ended with code {process.returncode}"
            raise (UnknownJob if _UNKNOWN.search(sentence) else FluxFailed)(sentence)
        if len(out) > _LONGEST_OUTPUT:
            raise FluxFailed(f"flux {words[0]} said more than {_LONGEST_OUTPUT} bytes")
        return out.decode(errors="replace")


def _job_id(text: str) -> str:
    if not _JOB_ID.fullmatch(text):
        raise UnknownJob(f"{text!r} is not the id of a job")
    return text


def _data(context: Mapping[str, Any]) -> bytes:
    text = str(context["data"])
    if context.get("encoding") == "base64":
        return base64.b64decode(text)
    return text.encode()


async def _end(process: asyncio.subprocess.Process) -> None:
    """See a process to its end, whatever it takes."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def read_environment(file: Path) -> dict[str, str] | None:
    """The variables that `env -0` wrote into a file; None where it is not there, says nothing, or may not be read.

    What is no variable to a shell (functions that bash exports) is left out: Flux would take such names for something else.
    """
    try:
        entries = file.read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return None
    variables = {key: value for key, equals, value in (entry.partition("=") for entry in entries) if equals and _VARIABLE.fullmatch(key)}
    return variables or None


def read_size(settings: Path) -> int | None:
    """The number of brokers, from the instance's ``settings.sh``; None where it cannot be told."""
    try:
        found = re.search(r"^fq_size='?([0-9]+)'?$", settings.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) if found else None
