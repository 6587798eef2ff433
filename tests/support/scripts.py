"""Programs in Python: those of the repository that are no modules of the package,
and those that tests write.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).resolve().parents[2]


def script_head(*options: str, python: str = sys.executable) -> str:
    """Return the first lines of a program for this Python, also if there is a space in its path,
    which a kernel does not accept there.
    """
    return f"""#!/bin/sh
'''exec' {shlex.join([python, *options])} "$0" "$@"
' '''
"""


def load_script(path: str) -> ModuleType:
    """Return a program as a module; its ``main`` is not called.

    Parameters
    ----------
    path
        Relative to the repository, such as ``local/bootstrap.py``.
    """
    spec = importlib.util.spec_from_file_location(f"script_{Path(path).stem}", _ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
