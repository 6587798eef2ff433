"""`kubectl fluxqueue doctor`: compares the cluster, the queue's tables and its resource graph.

The leading queue compares them (`fluxqueue.queue.recovery.comparison`), because only it has all three;
`queue_endpoint` finds it and asks it, and this module prints the result. `kubectl fluxqueue version` prints
the role of each replica and what it cannot reach.
"""

from __future__ import annotations

import json
from typing import TextIO

from fluxqueue.cli.queue_endpoint import QueueEndpoint
from fluxqueue.cli.sessions import now
from fluxqueue.cli.tables import in_zone

__all__ = ["doctor", "show_replicas"]


def doctor(queue: QueueEndpoint, out: TextIO, *, repair: bool, as_json: bool) -> int:
    """Print the differences.

    Returns
    -------
    int
        1 if there are differences (with ``--repair``: after the repair), else 0.
    """
    answer = queue.ask("/doctor/repair", post=True) if repair else queue.ask("/doctor")
    findings: list[dict[str, str]] = answer["findings"]
    repaired: list[dict[str, str]] = answer["repaired"]
    if as_json:
        json.dump(answer, out, indent=2)
        out.write("\n")
        return 1 if findings else 0
    out.writelines(f"repaired: {in_zone(finding['sentence'], now())}\n" for finding in repaired)
    out.writelines(_lines(finding) for finding in findings)
    if findings:
        out.write(f"{len(findings)} {'difference' if len(findings) == 1 else 'differences'}\n")
    else:
        out.write("The cluster, the queue and its graph agree.\n")
    return 1 if findings else 0


def _lines(finding: dict[str, str]) -> str:
    sentence = in_zone(finding["sentence"], now())
    return f"{sentence} ({finding['invariant']}, {finding['what']})\n  {finding['remedy']}\n"


def show_replicas(queue: QueueEndpoint, out: TextIO) -> None:
    """Print the role of each replica, and the dependencies that it cannot reach."""
    for name, answer in queue.ask_each("/status"):
        who = f"Queue {name}" if name else "Queue"
        if "error" in answer:
            out.write(f"{who}: does not answer ({answer['error']})\n")
            continue
        missing: dict[str, str] = answer.get("missing") or {}
        out.write(f"{who}: {answer.get('role', 'unknown')}, {'not ready' if missing else 'ready'}\n")
        out.writelines(f"  {what}: {sentence}\n" for what, sentence in sorted(missing.items()))
