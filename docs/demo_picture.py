"""Records `make demo` and the commands of the README on its cluster, and draws them as
`docs/pictures/demo.svg` (`make demo-picture`).

Everything in the picture is typed and printed in a real run. What is long is shortened to its end, with a
line that says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from terminal_picture import COLUMNS, Take, render

__all__ = ["DEMO", "PICTURE", "SCENES", "end_of_demo", "main", "takes"]

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
DEMO = "make demo"
SCENES = (
    "kubectl apply -f examples/start/",
    "kubectl fluxqueue jobs",
    "kubectl fluxqueue explain job/large",
    "kubectl fluxqueue prioritize large 10",
    "kubectl fluxqueue cancel simulate",
    "kubectl fluxqueue wait large --for started",
    "kubectl fluxqueue jobs",
    "kubectl fluxqueue history",
)
"""After the demo. All of them are on the start page or in the README."""
_STILL = "kubectl fluxqueue explain job/large"
_SHOWN_OF_DEMO = "== What Fluxion chose and where the pods ran"
_KEPT = "== The cluster keeps running"
_UNTIL_SHOWN = {
    "kubectl fluxqueue jobs": "job/large .* (Pending|Running)",
    "kubectl fluxqueue explain job/large": "nodes are reserved",
}
_TRIES = 60
_TIMEOUT_S = 300
_TITLE = "fluxqueue in a terminal"
_DESCRIPTION = (
    "make demo ends with a table: each pod ran on the nodes that were chosen for it. Then five kinds of "
    "work and a large Job are applied. kubectl fluxqueue jobs shows that the large Job waits; explain says "
    "why and until when. Another Job is cancelled, the large one starts on all eight nodes, "
    "and history shows what ran."
)
_BEFORE = """
eval "$(fluxqueue local env)"
kubectl create namespace team
kubectl label namespace team fluxqueue/managed=true
kubectl config set-context --current --namespace=team
kubectl create serviceaccount fluxqueue-history
kubectl create rolebinding fluxqueue-history --clusterrole=fluxqueue-history \\
    --serviceaccount=team:fluxqueue-history
"""


def main() -> int:
    """Record, draw and write the picture."""
    with tempfile.TemporaryDirectory(prefix="fluxqueue-picture-") as folder:
        Path(folder).chmod(0o711)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        others = {
            key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "DATABASE_URL")
        }
        environment = {
            **others,
            "PATH": path,
            "XDG_STATE_HOME": folder,
            "COLUMNS": str(COLUMNS),
            "NO_COLOR": "1",
        }
        try:
            printed = _run("fluxqueue local demo --keep", environment)
            _run(_BEFORE, environment)
            recorded = [
                Take(DEMO, end_of_demo(printed), 5.0),
                *takes(lambda command: _run(f"{_BEFORE.splitlines()[1]}\n{command}", environment)),
            ]
        finally:
            _run("fluxqueue local down --delete", environment)
    PICTURE.write_text(render(recorded, _TITLE, _DESCRIPTION))
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")
    return 0


def end_of_demo(printed: str) -> tuple[str, ...]:
    """Return what the demo prints at its end, without what only ``KEEP=1`` adds."""
    table, _, rest = printed.split(_SHOWN_OF_DEMO)[1].partition(_KEPT)
    lines = [line.rstrip() for line in table.splitlines() if line.strip()]
    (verdict,) = re.findall(r"^Every pod ran .*$", rest or table, re.MULTILINE)
    return ("...", *(line for line in lines if line != verdict), verdict)


def takes(run: Callable[[str], str]) -> Iterator[Take]:
    """Yield the scenes.

    Parameters
    ----------
    run
        Runs a command and returns what it prints.
    """
    for command in SCENES:
        output = run(command)
        for _ in range(_TRIES):
            if re.search(_UNTIL_SHOWN.get(command, ""), output):
                break
            output = run(command)
        lines = tuple(line.rstrip() for line in output.rstrip("\n").splitlines())
        yield Take(command, lines, min(6.0, 1.2 + 0.35 * len(lines)), still=command == _STILL)


def _run(script: str, environment: Mapping[str, str]) -> str:
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"the picture was not made: {script.strip()} ended with {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
