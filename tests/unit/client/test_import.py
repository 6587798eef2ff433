"""`from fluxqueue.client import Client` loads nothing that only an open client, YAML or a Flux instance
needs.

Modules are counted instead of time, which depends on the machine: what is named here took most of it.
"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
before = set(sys.modules)
from fluxqueue.client import Client, FluxQueueExecutor, Job
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
print(sum(name.startswith("fluxqueue.") for name in sys.modules))
"""
_HEAVY = {
    "aiohttp",
    "yarl",
    "structlog",
    "rich",
    "pygments",
    "yaml",
    "cloudpickle",
    "numpy",
    "orjson",
    "kubernetes",
    "unittest",
    "IPython",
}


def test_the_client_is_imported_without_what_is_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    packages, own = done.stdout.splitlines()
    assert _HEAVY.isdisjoint(packages.split()), _HEAVY & set(packages.split())
    assert {"msgspec", "fluxqueue"} <= set(packages.split())
    assert int(own) < 110
