"""What the images install: the versions of ``constraints.txt``, each with digests, complete,
and nothing that an image does not import.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fluxqueue.api.release import DISTRIBUTION

_ROOT = Path(__file__).resolve().parents[3]
_IMAGES = _ROOT / "images"
_LISTS = sorted(path.stem for path in _IMAGES.glob("*.in"))
_IMPORTS = """
import importlib, json, pkgutil, sys
for name in {rooms!r}:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + ".") if hasattr(package, "__path__") else ():
        if module.name not in {extras!r}:
            importlib.import_module(module.name)
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
_ROOMS = {
    # the first two by name, from uvicorn's configuration
    "webhook": ("httptools", "uvloop", "fluxqueue.webhook", "fluxqueue.cli.main"),
    "queue": (
        "httptools",
        "uvloop",
        "fluxqueue.queue",
        "fluxqueue.fluxion",
        "fluxqueue.scheduler_plugin",
        "fluxqueue.rest",
        "fluxqueue.minicluster",
        "fluxqueue.cli",
        "fluxqueue.dashboard",
    ),
}
_EXTRAS = ("fluxqueue.cli.top",)
"""They need an extra of the package that no image has."""
_OPTIONAL = {
    "rich",
    "pygments",
    "setuptools",
    "cffi",
    "attrs",
    "grpcio-tools",
    "greenlet",
    "colorama",
    "psutil",
}
"""Taken where present, by libraries that do without."""


def _names(text: str) -> set[str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return {canonicalize_name(Requirement(line).name) for line in lines if line}


def _listed(name: str) -> set[str]:
    return _names((_IMAGES / f"{name}.in").read_text())


def _locked(name: str) -> dict[str, Requirement]:
    text = (_IMAGES / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = (line.split("--hash")[0].split("#")[0].strip() for line in text.splitlines())
    return {canonicalize_name(found.name): found for line in lines if line for found in [Requirement(line)]}


def _constraints() -> dict[str, str]:
    pins = map(Requirement, (_ROOT / "constraints.txt").read_text().splitlines())
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def _with_dependencies(names: set[str], extras: tuple[str, ...] = ("", "binary", "pool")) -> set[str]:
    """Return these distributions and all that they require here."""
    found: set[str] = set()
    open_ = set(names)
    while open_:
        name = canonicalize_name(open_.pop())
        if name in found:
            continue
        found.add(name)
        own = extras if name == "psycopg" else ("",)
        requirements = (Requirement(text) for text in distribution(name).requires or ())
        open_ |= {
            r.name
            for r in requirements
            if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in own)
        }
    return found


@pytest.mark.parametrize("name", _LISTS)
def test_every_version_is_that_of_the_constraints_and_has_digests(name: str) -> None:
    text, constraints = (_IMAGES / f"{name}.txt").read_text(), _constraints()
    assert {str(found.specifier) for found in _locked(name).values()} == {
        f"=={constraints[key]}" for key in _locked(name)
    }
    assert all(str(found.specifier) == f"=={constraints[key]}" for key, found in _locked(name).items())
    blocks = re.split(r"^(?=[\w.\[\],-]+==)", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(_locked(name))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert _listed(name) <= _locked(name).keys()
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("name", ["queue", "webhook"])
def test_what_is_required_here_is_locked(name: str) -> None:
    assert _with_dependencies(_listed(name)) <= _locked(name).keys()


def test_the_queue_image_has_what_its_programs_declare() -> None:
    declared = map(Requirement, distribution(DISTRIBUTION).requires or ())
    needed = {
        canonicalize_name(one.name)
        for one in declared
        if one.marker is None or one.marker.evaluate({"extra": "server"})
    }
    assert needed <= _listed("queue")
    assert "kubernetes" not in _locked("queue")


def test_the_webhook_image_has_none_of_the_heavy_libraries() -> None:
    assert not _locked("webhook").keys() & {
        "numpy",
        "grpcio",
        "psycopg",
        "kubernetes",
        "procrastinate",
        "protobuf",
    }


@pytest.mark.parametrize("image", ["queue", "webhook"])
def test_an_image_has_what_its_programs_import(image: str) -> None:
    command = [sys.executable, "-c", _IMPORTS.format(rooms=_ROOMS[image], extras=_EXTRAS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    owners = packages_distributions()
    modules = set(re.findall(r'"(\w+)"', done.stdout)) - {"fluxqueue"}
    found = {
        module: {canonicalize_name(owner) for owner in owners[module]}
        for module in modules
        if module in owners
    }
    assert {
        module: names for module, names in found.items() if not names & (_locked(image).keys() | _OPTIONAL)
    } == {}


@pytest.mark.parametrize(("image", "limit_mb"), [("queue", 250), ("webhook", 110)])
def test_what_an_image_installs_stays_below_its_limit(image: str, limit_mb: int) -> None:
    """An upper bound from this environment: bytecode counts, and what `images/trim.py` removes does too."""
    here = [name for name in _locked(image) if name in _with_dependencies(_listed(image))]
    files = {
        Path(str(file.locate())) for name in [*here, DISTRIBUTION] for file in distribution(name).files or ()
    }
    assert len(files) > 1_000
    assert sum(path.stat().st_size for path in files if path.is_file()) < limit_mb * 1e6


def test_the_build_backend_is_exact() -> None:
    (backend,) = re.findall(r'^requires = \["(\S+)"\]', (_ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert backend == f"hatchling=={_constraints()['hatchling']}"
    assert _locked("build")["hatchling"].specifier == Requirement(backend).specifier
