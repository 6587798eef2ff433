"""The Kubernetes programs of a local control plane: found, or built once per version.

No package registry has Kubernetes' server programs, but they can be built from Go modules that go.sum
verifies. `local/data/controlplane/go.mod` lists all seven programs of the default version as tools. The other
versions (`kubernetes_versions`) have a module with the four programs of Kubernetes; etcd, kwok and helm are
those of the default. Programs are searched in the folder of ``KUBEBUILDER_ASSETS``, on PATH, and in a cache
per version. A program outside the cache is used only if its version fits, because control plane and kubectl
must have the same Kubernetes minor version, and an older kubectl on PATH would otherwise be used unnoticed.
Rejected programs are reported.

Missing programs are built (`toolchain`), all of a version together, in a folder that is renamed when it is
complete. So an existing cache folder is always complete, and a build that was ended goes on in that folder. A
lock prevents two processes from building at the same time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from fluxqueue.local.kubernetes_versions import KUBERNETES_VERSION, VERSIONS, chosen_minor, minor_of
from fluxqueue.local.user_folders import cache_folder

__all__ = [
    "KUBERNETES_VERSION",
    "Binaries",
    "BinariesError",
    "Build",
    "Tool",
    "are_programs",
    "cached_programs",
    "find_binaries",
    "find_tool",
    "locked",
    "work_folder",
]

Build = Callable[[Path, str], None]
"""Builds, in a folder, the programs of a version of Kubernetes."""

_ABANDONED_S = 24 * 3_600
"""A build that nobody has gone on with for so long is deleted by the next one."""


class BinariesError(RuntimeError):
    """The programs of a control plane are missing and cannot be built; the message says what to do."""


class Tool(Enum):
    """A program of a control plane; the value is its file name in the cache."""

    ETCD = "server"  # the name of etcd's main package
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KUBECTL = "kubectl"
    KWOK = "kwok"
    HELM = "helm"

    @property
    def common_name(self) -> str:
        """Its name on PATH and in messages."""
        return "etcd" if self is Tool.ETCD else self.value


@dataclass(frozen=True)
class _Fit:
    arguments: tuple[str, ...]
    pattern: re.Pattern[str]
    wanted: str


_OF_KUBERNETES = (Tool.API_SERVER, Tool.CONTROLLER_MANAGER, Tool.SCHEDULER, Tool.KUBECTL)
"""The programs that each version of Kubernetes has of its own."""
_FITS: Mapping[Tool, _Fit] = {
    Tool.ETCD: _Fit(("--version",), re.compile(r"etcd Version: 3\.[6-9]\."), "etcd 3.6"),
    Tool.KWOK: _Fit(("--version",), re.compile(r"kwok version v0\.(?:[89]|\d\d)\."), "kwok 0.8"),
    Tool.HELM: _Fit(("version", "--short"), re.compile(r"v[34]\."), "helm 3 or 4"),
}


def _fit(tool: Tool, version: str) -> _Fit:
    if tool not in _OF_KUBERNETES:
        return _FITS[tool]
    minor = minor_of(version)
    pattern = r"v" + re.escape(minor) + r"\.\d+(?![\w.-])"
    if tool is Tool.KUBECTL:
        return _Fit(("version", "--client"), re.compile(rf"Client Version: {pattern}"), f"kubectl {minor}")
    return _Fit(("--version",), re.compile(pattern), f"Kubernetes {minor}")


@dataclass(frozen=True)
class Binaries:
    """The paths of the programs.

    Attributes
    ----------
    paths
        A path for every `Tool`.
    rejected
        Messages about programs that were found and have a wrong version.
    kubernetes
        The version of Kubernetes of which the cached programs are, such as v1.36.3; others may have another
        patch version.
    """

    paths: Mapping[Tool, Path]
    rejected: tuple[str, ...] = field(default=())
    kubernetes: str = KUBERNETES_VERSION

    def __getitem__(self, tool: Tool) -> Path:
        return self.paths[tool]


def find_binaries(build: Build | None = None, minor: str | None = None) -> Binaries:
    """Find all programs of a control plane, and build the missing ones.

    Parameters
    ----------
    build
        Called with the folder in which it must build the programs of a version, and that version; by default
        `toolchain.build_control_plane`.
    minor
        The minor version of Kubernetes, such as 1.36; by default what the environment names
        (`kubernetes_versions`).

    Raises
    ------
    BinariesError
        There is no such version, or a build was needed and failed.
    """
    minor = minor or chosen_minor()
    if minor not in VERSIONS:
        raise BinariesError(
            f"no programs of Kubernetes {minor!r} are built: choose one of {', '.join(VERSIONS)}"
        )
    version = VERSIONS[minor]
    paths: dict[Tool, Path] = {}
    rejected: list[str] = []
    for tool in Tool:
        if path := _fitting(tool, version, rejected):
            paths[tool] = path
    for tool in Tool:
        if tool not in paths:
            paths[tool] = cached_tools(_home(tool, version), build) / tool.value
    return Binaries(paths, tuple(rejected), version)


def find_tool(tool: Tool) -> Path | None:
    """Find one program of the default version without building it; None if it is missing."""
    folder = _folder(KUBERNETES_VERSION)
    found = are_programs(folder, _programs(KUBERNETES_VERSION))
    return _fitting(tool, KUBERNETES_VERSION, []) or (folder / tool.value if found else None)


def cached_tools(version: str = KUBERNETES_VERSION, build: Build | None = None) -> Path:
    """Return the cache folder of a version; the programs are built if it does not exist (see
    `find_binaries`).
    """
    if build is None:
        from fluxqueue.local.toolchain import build_control_plane

        build = build_control_plane
    return cached_programs(_folder(version), _programs(version), lambda folder: build(folder, version))


def _home(tool: Tool, version: str) -> str:
    """Return the version in whose cache folder a program is."""
    return version if tool in _OF_KUBERNETES else KUBERNETES_VERSION


def _folder(version: str) -> Path:
    return cache_folder() / "controlplane" / version


def _programs(version: str) -> list[str]:
    return [tool.value for tool in Tool if _home(tool, version) == version]


def cached_programs(folder: Path, programs: Collection[str], build: Callable[[Path], None]) -> Path:
    """Return a folder that has all the programs; they are built once, by one process, if it does not exist.

    Parameters
    ----------
    folder
        Its name identifies the version; its parent holds the lock of the build.
    programs
        File names.
    build
        Called with a folder in which it must build every program. What it leaves there when it fails or is
        ended is there at the next call.

    Raises
    ------
    BinariesError
        The build failed or left out a program.
    """
    unfinished = folder.with_name(f".{folder.name}")
    work = work_folder(unfinished)
    if are_programs(folder, programs) and not work.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / "lock").touch()
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a folder that can be written"
        raise BinariesError(
            f"the programs cannot be kept in {folder.parent}: {error.strerror}; {remedy}"
        ) from None
    with locked(folder.parent / "lock"):
        if not are_programs(folder, programs):  # else they were built by the process that held the lock
            shutil.rmtree(folder, ignore_errors=True)
            for other in folder.parent.glob(".*"):
                if other not in (unfinished, work) and time.time() - other.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(other, ignore_errors=True)
            build(unfinished)
            if not are_programs(unfinished, programs):
                shutil.rmtree(unfinished)
                raise BinariesError(f"the build left no complete set of programs in {unfinished}")
            unfinished.rename(folder)
        shutil.rmtree(work, ignore_errors=True)  # last: whoever is ended here has the programs
    return folder


def work_folder(target: Path) -> Path:
    """Return where the build of a folder of programs keeps what it needs until it has ended well."""
    return target.with_name(f"{target.name}.build")


@contextmanager
def locked(path: Path, timeout_s: float = 3_600) -> Iterator[None]:
    """Hold an exclusive lock on a file, among all processes of the machine.

    Raises
    ------
    BinariesError
        Another process holds it for longer than ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    said = False
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BinariesError(
                        f"another process holds {path} since {timeout_s:g} s: end it, or wait for it"
                    ) from None
                if not said:
                    print(
                        f"another process holds {path}: waiting for it, {timeout_s:g} s at most",
                        file=sys.stderr,
                        flush=True,
                    )
                    said = True
                time.sleep(0.2)
        yield


def are_programs(folder: Path, programs: Collection[str]) -> bool:
    """Return true if the folder has all these programs."""
    return all(os.access(folder / program, os.X_OK) for program in programs)


def _fitting(tool: Tool, version: str, rejected: list[str]) -> Path | None:
    for candidate in _candidates(tool):
        if mismatch := _mismatch(_fit(tool, version), candidate):
            rejected.append(mismatch)
        else:
            return candidate
    return None


def _candidates(tool: Tool) -> Iterator[Path]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        path = Path(assets) / tool.common_name
        if os.access(path, os.X_OK):
            yield path
    if on_path := shutil.which(tool.common_name):
        yield Path(on_path)


def _mismatch(fit: _Fit, path: Path) -> str | None:
    """Return why a program cannot be used; None if it can."""
    try:
        answer = subprocess.run(
            [path, *fit.arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} is not used: {error}"
    output = answer.stdout + answer.stderr
    if answer.returncode == 0 and fit.pattern.search(output):
        return None
    version = output.strip().splitlines()[0] if output.strip() else "nothing"
    return f"{path} is not used: its version is {version[:80]!r}, and {fit.wanted} is needed"
