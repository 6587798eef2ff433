"""Generate the Python code of every .proto file below this folder, beside it.

The generated files are committed, so that installing needs no compiler, and a test generates them once more
and compares: what is committed is what the .proto says. The stubs are protoc's own (``--pyi_out``): they name
every field for mypy, and need no plugin that could drift from the compiler. Run it with ``make proto``;
another folder may be named to write there instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it carries no types

ROOT = Path(__file__).resolve().parent
PACKAGE = "fluxqueue/proto"


def generate(target: Path) -> int:
    """Write ``*_pb2.py`` and ``*_pb2.pyi`` below ``target``; returns protoc's exit code."""
    sources = sorted(f"{PACKAGE}/{path.relative_to(ROOT)}" for path in ROOT.rglob("*.proto"))
    outputs = [f"--{kind}={target}" for kind in ("python_out", "pyi_out")]
    well_known = files("grpc_tools") / "_proto"
    return int(protoc.main(["protoc", f"-I{PACKAGE}={ROOT}", f"-I{well_known}", *outputs, *sources]))


def main(arguments: Sequence[str]) -> int:
    """Generate into the folder named, else beside the sources, through the link of the package."""
    return generate(Path(arguments[0]) if arguments else ROOT.parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
