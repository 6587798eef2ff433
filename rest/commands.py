"""The client of a Flux instance: it runs the instance's own `flux` command, with arguments only.

The service links nothing of Flux. It runs in our image next to a broker of any version, whose command it
finds in the view that both mount. No word of a request passes a shell, and none can be taken for an option: a
word that could begin with a dash is refused or follows an equals sign. Values of variables are protected from
the expansion that `flux submit` would do.

A job gets the environment of the leader's application, as if it had been submitted there: its programs are in
that image and not in ours. The leader writes that environment to a file before its broker starts.

Each command has a deadline. Followed output has none, and its process ends when the reader disconnects.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxqueue.api.hostlists import decode
from fluxqueue.rest.processes import CHUNK, LONGEST_OUTPUT, collect, stop
from fluxqueue.rest.submissions import VARIABLE, FluxSubmission, InvalidWord

__all__ = [
    "Flux",
    "FluxFailed",
    "FluxMissing",
    "NoSuchJob",
    "NodeGroup",
    "environment_for",
    "read_environment",
    "read_python_path",
    "read_size",
]

_DEADLINE_S = 30.0
_OUTPUT = "guest.output"
_AT_ONCE = 8
"""Commands at a time.
Most are Python programs of some 40 MiB, which the memory limit of the container has to hold."""
_JOB_ID = re.compile(r"[fƒ]?[0-9A-Za-z.]{1,24}")
_UNKNOWN = re.compile(r"unknown|no such job|not found|does not exist|invalid job", re.IGNORECASE)
_UNLOADED = re.compile(r"(ModuleNotFoundError|ImportError): ")
_NODE_FIELDS = "{state}\t{nnodes}\t{ncores}\t{ngpus}\t{nodelist}"


class FluxFailed(Exception):
    """A command of Flux failed; the message is the last line that it wrote."""


class NoSuchJob(FluxFailed):
    """The instance has no such job."""


class _TooMuch(FluxFailed):
    """A command wrote more than is kept in memory."""


class FluxMissing(Exception):
    """`flux` cannot be run, or the instance does not respond yet."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes in one state (``free``, ``allocated``, ``down``, ``drained``),
    with the cores and GPUs of all of them.
    """

    state: str
    hosts: tuple[str, ...]
    cores: int
    gpus: int


def environment_for(base: Mapping[str, str], python_path: str = "") -> dict[str, str]:
    """Return the environment of the commands: the view's programs first on the path (``FLUX_VIEW``), job ids
    in ASCII.

    Parameters
    ----------
    base
        The environment of this process.
    python_path
        Folder of the modules that the Python programs of Flux import; the one of the view if empty. Modules
        of our image are for another Python.
    """
    environment = dict(base)
    if view := base.get("FLUX_VIEW"):
        environment["PATH"] = f"{view}/bin:{base.get('PATH', os.defpath)}"
        environment.pop("PYTHONPATH", None)
        python_path = python_path or next(map(str, sorted(Path(view).glob("lib/python3*/site-packages"))), "")
    if python_path:
        environment["PYTHONPATH"] = python_path
    environment["FLUX_F58_FORCE_ASCII"] = "1"
    return environment


class Flux:
    """One instance, used through its command.

    Parameters
    ----------
    environment
        Environment of the commands. ``FLUX_URI`` selects the instance, ``PATH`` finds `flux`.
    deadline_s
        Deadline of each command except followed output, in seconds.
    application
        File with the environment of the leader's application; see `read_environment`.
    """

    def __init__(
        self, environment: Mapping[str, str], deadline_s: float = _DEADLINE_S, application: Path | None = None
    ) -> None:
        self._environment = dict(environment)
        self._application = application
        self._deadline_s = deadline_s
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def submit(self, submission: FluxSubmission) -> str:
        """Submit a job and return its id."""
        application = read_environment(self._application) if self._application is not None else None
        output = await self._run(*submission.words(application))
        return output.strip().splitlines()[-1]

    async def jobs(self, *, active_only: bool = False, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the instance's jobs as `flux jobs --json` prints them, the newest first."""
        flags = [] if active_only else ["-a"]
        listing = _decoded(await self._run("jobs", *flags, f"--count={limit}", "--json"))
        return list(listing.get("jobs", [listing] if listing.get("id") is not None else []))

    async def job(self, jobid: str) -> dict[str, Any]:
        """Return one job.

        Raises
        ------
        UnknownJob
            There is no job with this id.
        """
        listing = _decoded(await self._run("jobs", "-a", "--json", _job_id(jobid)))
        jobs = listing.get("jobs", [listing] if listing else [])
        if not jobs:
            raise NoSuchJob(f"there is no job {jobid} in this instance")
        return dict(jobs[0])

    async def cancel(self, jobid: str) -> None:
        """Cancel a job that has not ended."""
        await self._run("cancel", _job_id(jobid))

    async def nodes(self) -> list[NodeGroup]:
        """Return the instance's nodes, by state."""
        output = await self._run(
            "resource", "list", "--no-header", "--states=free,allocated,down", f"--format={_NODE_FIELDS}"
        )
        groups = []
        for line in output.splitlines():
            state, _, cores, gpus, hosts = ([part.strip() for part in line.split("\t")] + [""] * 5)[:5]
            if hosts:
                groups.append(NodeGroup(state, tuple(decode(hosts)), int(cores or 0), int(gpus or 0)))
        return groups

    async def output(self, jobid: str) -> AsyncGenerator[bytes, None]:
        """Yield the output of the job so far, standard output and error in their order.

        Raises
        ------
        UnknownJob
            There is no job with this id.
        """
        try:
            output = await self._run("job", "eventlog", "--format=json", f"--path={_OUTPUT}", _job_id(jobid))
        except NoSuchJob as error:
            if _OUTPUT not in str(error):
                raise
            return  # the job has not started, or has written nothing
        except _TooMuch as error:
            raise FluxFailed(f"{error}: follow the output instead, which has no such limit") from None
        for line in output.splitlines():
            entry = json.loads(line)
            context = entry.get("context", {})
            if entry.get("name") == "data" and context.get("data"):
                yield _data(context)

    async def follow(self, jobid: str) -> AsyncGenerator[bytes, None]:
        """Yield the output of the job until it ends or the reader disconnects."""
        process = await self._start(
            "job", "attach", "--read-only", _job_id(jobid), stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        try:
            while piece := await process.stdout.read(CHUNK):
                yield piece
        finally:
            await stop(process)

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
            if error.errno == errno.E2BIG:
                raise InvalidWord(
                    "command: its words and the variables are too long to be passed to flux: "
                    "put what is long into a file"
                ) from None
            where = self._environment.get("PATH", "")
            raise FluxMissing(
                f"flux cannot be run ({error.strerror}): is the Flux view mounted? PATH is {where}"
            ) from None

    async def _run(self, *words: str) -> str:
        async with self._limit:
            process = await self._start(*words, stderr=asyncio.subprocess.PIPE)
            try:
                out, err = await asyncio.wait_for(collect(process), self._deadline_s)
            except TimeoutError:
                raise FluxMissing(f"flux {words[0]} did not respond within {self._deadline_s:g} s") from None
            finally:
                await stop(process)
        if len(out) > LONGEST_OUTPUT:
            raise _TooMuch(f"flux {words[0]} wrote more than {LONGEST_OUTPUT} bytes")
        if process.returncode:
            lines = (err or out).decode(errors="replace").strip().splitlines()
            sentence = lines[-1] if lines else f"flux {words[0]} ended with code {process.returncode}"
            if _UNLOADED.match(sentence):
                raise FluxMissing(
                    f"flux cannot load its Python modules next to the leader ({sentence}): set "
                    "spec.flux.container.pythonPath to the folder that has them, "
                    "or use a flux-view image in which they are complete"
                )
            raise (NoSuchJob if _UNKNOWN.search(sentence) else FluxFailed)(sentence)
        return out.decode(errors="replace")


def _decoded(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text or "{}"))
    except (TypeError, ValueError):
        raise FluxFailed(f"flux jobs printed no JSON object but {text[:200]!r}") from None


def _job_id(text: str) -> str:
    if not _JOB_ID.fullmatch(text):
        raise NoSuchJob(f"{text!r} is not the id of a job")
    return text


def _data(context: Mapping[str, Any]) -> bytes:
    text = str(context["data"])
    if context.get("encoding") == "base64":
        return base64.b64decode(text)
    return text.encode()


def read_environment(file: Path) -> dict[str, str] | None:
    """Return the variables that `env -0` wrote into a file; None if it is missing, empty or unreadable.

    Entries that are not shell variables (functions that bash exports) are left out, because Flux would
    misread their names.
    """
    try:
        entries = file.read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return None
    variables = {
        key: value
        for key, equals, value in (entry.partition("=") for entry in entries)
        if equals and VARIABLE.fullmatch(key)
    }
    return variables or None


def read_size(settings: Path) -> int | None:
    """Return the number of brokers from the instance's ``settings.sh``; None if it cannot be read."""
    size = _read_setting(settings, "fq_size")
    return int(size) if size.isdecimal() else None


def read_python_path(settings: Path) -> str:
    """Return the folder of Python modules that the spec sets, from the instance's ``settings.sh``;
    empty if there is none.
    """
    return _read_setting(settings, "fq_python_path")


def _read_setting(settings: Path, name: str) -> str:
    try:
        match = re.search(rf"^{name}=(.*)$", settings.read_text(), re.MULTILINE)
        return shlex.split(match.group(1))[0] if match else ""
    except (OSError, ValueError, IndexError):
        return ""
