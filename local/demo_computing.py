"""The part of the demo in which pods compute, on nodes of processes:
a gang that prints one result, a sweep, and a service that answers.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from fluxqueue.local.demo_client import DemoClient
from fluxqueue.local.screen import Screen

__all__ = ["RESULTS", "compute", "has_computing"]

_GANG, _SERVICE, _SWEEP = (
    Path("processes", name) for name in ("10-pi.yaml", "20-service.yaml", "30-sweep.yaml")
)
RESULTS = 3
"""How many results `compute` returns if all goes well."""
_WAIT_S = 120
_GREETING = "hello from "
_FOUND = "damping "
_ASK = f"""import time, urllib.request as web
for _ in range({_WAIT_S}):
    try:
        print(web.urlopen("http://hello:8080", timeout=10).read().decode().strip())
        break
    except OSError:  # its name is not known yet
        time.sleep(0.5)
else:
    raise SystemExit("hello does not answer")"""


def has_computing(folder: Path) -> bool:
    """True if a folder of examples has what `compute` runs."""
    return all((folder / part).exists() for part in (_GANG, _SWEEP, _SERVICE))


def compute(client: DemoClient, screen: Screen, folder: Path, namespace: str, *, keep: bool) -> list[str]:
    """Run what computes, show what it prints, and return the results, one line each.
    The service does not stay: it would take room.
    """
    results = (
        _gang(client, screen, folder, namespace)
        + _sweep(client, screen, folder, namespace)
        + _service(client, screen, folder, namespace)
    )
    for part in (_SERVICE,) if keep else (_SERVICE, _GANG, _SWEEP):
        client.kubectl("delete", "-n", namespace, "-f", str(folder / part), "--wait=true", "--timeout=60s")
    client.kubectl("delete", "-n", namespace, "job/ask", "--wait=true", "--timeout=60s")
    return results


def _gang(client: DemoClient, screen: Screen, folder: Path, namespace: str) -> list[str]:
    screen.step("Eight ranks start together and compute; rank 0 prints the result")
    _start(client, folder / _GANG, namespace)
    return _logs_of(client, screen, namespace, "pi", "batch.kubernetes.io/job-completion-index=0,job-name=pi")


def _sweep(client: DemoClient, screen: Screen, folder: Path, namespace: str) -> list[str]:
    screen.step("A sweep: eight values of one parameter, four at a time")
    _start(client, folder / _SWEEP, namespace)
    lines = [
        line
        for line in _logs_of(client, screen, namespace, "sweep", "job-name=sweep")
        if line.startswith(_FOUND)
    ]
    return [f"the best of {len(lines)}: {min(lines, key=_seconds)}"] if lines else []


def _service(client: DemoClient, screen: Screen, folder: Path, namespace: str) -> list[str]:
    screen.step("A service runs, and a Job asks it by its name")
    _start(client, folder / _SERVICE, namespace)
    client.kubectl(
        "wait",
        "-n",
        namespace,
        "--for=condition=available",
        "deployment/hello",
        f"--timeout={_WAIT_S}s",
        timeout_s=2 * _WAIT_S,
    )
    client.kubectl("delete", "-n", namespace, "job/ask", "--ignore-not-found", "--wait=true", "--timeout=60s")
    ask = (
        "submit",
        "-n",
        namespace,
        "-J",
        "ask",
        "-t",
        "1m",
        "--image",
        "python",
        "--attach",
        "--",
        "python3",
        "-c",
        _ASK,
    )
    answer = client.kubectl("fluxqueue", *ask, timeout_s=2 * _WAIT_S)
    screen.command(["fluxqueue", shlex.join([*ask[:-1], "..."])], answer)
    return [
        f"the service says: {_GREETING}{line.partition(_GREETING)[2]}"
        for line in answer.splitlines()
        if _GREETING in line
    ]


def _start(client: DemoClient, file: Path, namespace: str) -> None:
    client.kubectl(
        "delete", "-n", namespace, "-f", str(file), "--ignore-not-found", "--wait=true", "--timeout=60s"
    )
    client.kubectl("apply", "-n", namespace, "-f", str(file))


def _logs_of(client: DemoClient, screen: Screen, namespace: str, job: str, selector: str) -> list[str]:
    """Return what the pods of a Job have printed, in order, once it is complete."""
    client.kubectl(
        "wait",
        "-n",
        namespace,
        "--for=condition=complete",
        f"job/{job}",
        f"--timeout={_WAIT_S}s",
        timeout_s=2 * _WAIT_S,
    )
    logs = ["logs", "-l", selector]
    lines = sorted(client.kubectl(*logs, "-n", namespace).splitlines())
    screen.command(logs, "\n".join(lines) + "\n")
    return lines


def _seconds(line: str) -> float:
    return float(line.split()[-2])
