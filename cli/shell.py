"""`kubectl fluxqueue shell`: a shell or a command in one pod of a workload that runs.

``kubectl exec`` does it, in place of this program: a terminal over a stream of the API server is its work.
What is found out here is which pod: the person knows the name of the Job and, of parallel work, the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.formatting import some_of
from fluxqueue.api.pods import Pod
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.jobs import object_name, state_of
from fluxqueue.cli.lookup import observed
from fluxqueue.cli.pod_placement import placement
from fluxqueue.cli.simulated_nodes import why_nothing_runs

__all__ = ["ANY_SHELL", "Entered", "choose_pod", "exec_words"]

ANY_SHELL: Final = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""bash where the image has it, else sh."""
_SHOWN: Final = 8


@dataclass(frozen=True)
class Entered:
    """A pod that is entered, with its rank; ``others`` is how many more run."""

    pod: Pod
    rank: int | None
    others: int

    @property
    def words(self) -> str:
        """Say which pod it is, and that there are others."""
        rank = "" if self.rank is None else f"rank {self.rank}, "
        more = f"; --rank chooses another of {self.others + 1}" if self.others else ""
        return f"{rank}pod {self.pod.metadata.name} on {self.pod.spec.node_name}{more}"


def choose_pod(client: ApiClient, jobs: Sequence[FluxJob], typed: str, rank: int | None) -> Entered:
    """Return the pod of a rank; without one, the pod whose name was typed, or the first that runs.

    Raises
    ------
    ClusterError
        No such pod runs, or it is simulated; the message says what helps.
    """
    placed = [each for job in jobs for each in placement(job, observed(client, job).pods)]
    running = [(each.rank, each.pod) for each in placed if each.pod is not None and _runs(each.pod)]
    if not running:
        raise ClusterError(
            f"error: no pod of {typed} runs now ({', '.join(_state(job) for job in jobs[:_SHOWN])}): "
            f"{_what_helps(jobs)}"
        )
    called = typed.rpartition("/")[2]
    chosen = [
        (number, pod)
        for number, pod in running
        if (number == rank if rank is not None else pod.metadata.name == called)
    ]
    if not chosen and rank is not None:
        raise ClusterError(
            f"error: no pod of rank {rank} of {typed} runs now: there "
            f"{_ranks([number for number, _ in running])}"
        )
    number, pod = (chosen or running)[0]
    if why := why_nothing_runs(client, [pod.spec.node_name or ""]):
        raise ClusterError(f"error: {why}")
    return Entered(pod, number, len(running) - 1)


def exec_words(
    program: str,
    entered: Entered,
    command: Sequence[str],
    *,
    container: str,
    terminal: bool,
    target: Sequence[str],
) -> list[str]:
    """Return the command line of ``kubectl exec``.

    Parameters
    ----------
    program, target
        kubectl, and its options that say which cluster.
    entered, command, container
        What runs where; no command: a shell; no container: that of the pod's default.
    terminal
        True if a person types.
    """
    meta = entered.pod.metadata
    where = [*target, "-n", meta.namespace, meta.name]
    first = next((each.name for each in entered.pod.spec.containers), "")
    return [
        program,
        "exec",
        "-i",
        *(["-t"] if terminal else []),
        *where,
        "-c",
        container or first,
        "--",
        *(command or ANY_SHELL),
    ]


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and not pod.metadata.deletion_timestamp


def _state(job: FluxJob) -> str:
    return f"{object_name(job) or job.metadata.name} is {state_of(job).lower()}"


def _what_helps(jobs: Sequence[FluxJob]) -> str:
    waits = any(state_of(job) in ("Pending", "Allocated") for job in jobs)
    name = object_name(jobs[0]) or jobs[0].metadata.name
    return (
        f"kubectl fluxqueue wait {name} --for started waits for it"
        if waits
        else f"kubectl fluxqueue logs {name} has what it printed"
    )


def _ranks(ranks: Sequence[int | None]) -> str:
    numbers = sorted(number for number in ranks if number is not None)
    if not numbers:
        return "are pods without a rank: name one as pod/NAME"
    return f"run {some_of([str(number) for number in numbers], _SHOWN)}"
