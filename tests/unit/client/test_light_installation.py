"""Who only submits and looks installs a few MB: client and plugin need nothing of the extra `server`."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import importlib, importlib.abc, importlib.metadata, pkgutil, re, sys
from fluxqueue.api.release import DISTRIBUTION

def closure(names):
    found, rest = set(), list(names)
    while rest:
        name = re.sub(r"[-_.]+", "-", rest.pop()).lower()
        if name not in found:
            found.add(name)
            for text in importlib.metadata.requires(name) or ():
                if "extra ==" not in text:
                    try:
                        importlib.metadata.distribution(re.match(r"[\\w.-]+", text)[0])
                        rest.append(re.match(r"[\\w.-]+", text)[0])
                    except importlib.metadata.PackageNotFoundError:
                        pass
    return found

needed = closure([DISTRIBUTION])
heavy = {module for module, owners in importlib.metadata.packages_distributions().items()
         if not needed & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}}

class Without(importlib.abc.MetaPathFinder):
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path, target=None):
        return None if name.split(".")[0] in heavy else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
assert "numpy" in heavy and "aiohttp" not in heavy
for room in ("client", "cli"):
    package = importlib.import_module(f"fluxqueue.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"fluxqueue.{room}."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            print(found.name, error.name)
"""
_WITH_AN_EXTRA = {"fluxqueue.cli.top": "the extra `top`", "fluxqueue.cli.job_forecasts": "the extra `server`"}


def test_client_and_plugin_import_nothing_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == _WITH_AN_EXTRA.keys(), done.stdout
