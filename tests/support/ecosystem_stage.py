"""What the tests with real controllers do and look at:
manifests applied as they are, full nodes, gangs and where their pods are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.builders import Json, make_job
from support.end_to_end import Stage

from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.pods import Pod

__all__ = ["FILLERS", "RUN_SECONDS", "GangStage"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
FILLERS = ("full", "rest")
_NODES, _NODE_MILLICORES = 4, 4_000
_WITHIN_S = 150


@dataclass(frozen=True)
class GangStage:
    """A managed namespace, and the gangs of one kind in it.

    Attributes
    ----------
    stage
        The namespace.
    kind
        Of the object that the gangs are known by.
    """

    stage: Stage
    kind: str

    def fill(self, *, spare_millicores: int, nodes: int = 1) -> None:
        """Fill all nodes but for a rest on some: too small for a gang,
        and large enough for one of its pods.
        """
        for name, count, cpu in zip(
            FILLERS,
            (_NODES - nodes, nodes),
            (_NODE_MILLICORES, _NODE_MILLICORES - spare_millicores),
            strict=True,
        ):
            if count and cpu:
                self.stage.apply(
                    make_job(name)
                    .indexed(count)
                    .cpu(f"{cpu}m")
                    .pod_annotation(RUN_SECONDS, "forever")
                    .build()
                )
                self.stage.until_state(name, State.RUNNING)

    def free(self) -> None:
        """Give back what `fill` took."""
        self.stage.kubectl("delete", "job", *FILLERS, "--ignore-not-found", "--wait=true")

    def apply(self, source: Path | Json) -> None:
        """Apply a manifest as it is."""
        text = source.read_text() if isinstance(source, Path) else json.dumps(source)
        self.stage.kubectl("apply", "-f", "-", stdin=text)

    def delete(self, resource: str, name: str) -> None:
        """Delete an object, and wait until nothing of it is left: no pods, no FluxJobs, no slots."""
        self.stage.kubectl("delete", resource, name, "--wait=true", "--timeout=120s")
        self.stage.until("its pods are gone", lambda: not self.nodes(), _WITHIN_S, self.nodes)
        self.stage.until("its FluxJobs are gone", lambda: not self.others(), _WITHIN_S, self.others)
        self.stage.until_consistent()

    def fluxjobs(self) -> list[FluxJob]:
        """Return the FluxJobs of gangs of this kind."""
        return [one for one in self.others() if one.spec.object_ref.kind == self.kind]

    def others(self) -> list[FluxJob]:
        """Return the FluxJobs of all but the fillers."""
        return [one for one in self.stage.fluxjobs() if one.spec.object_ref.name not in FILLERS]

    def pods(self) -> list[Pod]:
        """Return the pods that have not ended, but for those of the fillers."""
        return [
            pod
            for pod in self.stage.items("pods", Pod)
            if pod.active and not pod.metadata.name.startswith(FILLERS)
        ]

    def nodes(self) -> dict[str, str | None]:
        """Return where each of these pods is."""
        return {pod.metadata.name: pod.spec.node_name for pod in self.pods()}

    def until_waiting(self, *, gangs: int, pods: int) -> Sequence[FluxJob]:
        """Wait until so many gangs wait for nodes with so many pods in all, none of which has one."""

        def waits() -> bool:
            reasons = [one.status.reason for one in self.others()]
            return reasons == ["WaitingForNodes"] * gangs and len(self.nodes()) >= pods

        self.stage.until(f"{gangs} gangs of {pods} pods wait for nodes", waits, _WITHIN_S, self._standing)
        self.stage.until_consistent()
        assert [one.spec.object_ref.kind for one in self.others()] == [self.kind] * gangs
        assert set(self.nodes().values()) == {None}, "none of its pods has a node"
        return self.fluxjobs()

    def until_running(self, *, gangs: int, pods: int) -> dict[str, str | None]:
        """Wait until so many gangs run with so many pods, all of them the gangs',
        and return where they are.
        """

        def runs() -> bool:
            states = [one.status.state for one in self.fluxjobs()]
            nodes = self.nodes()
            return states == [State.RUNNING] * gangs and len(nodes) == pods and None not in nodes.values()

        self.stage.until(f"{gangs} gangs of {pods} pods run", runs, _WITHIN_S, self._standing)
        self.stage.until_consistent()
        assert len(self.others()) == gangs, "no pod is matched outside of its gang"
        return self.nodes()

    def keep_running(self) -> None:
        """Let the pods that exist run until they are deleted:
        on nodes of kwok, pods that do not restart end after three seconds.
        """
        self.stage.kubectl("annotate", "pods", "--all", "--overwrite", f"{RUN_SECONDS}=forever")

    def uids(self) -> set[str]:
        """Return the uids of the pods."""
        return {pod.metadata.uid for pod in self.pods()}

    def _standing(self) -> object:
        return [(one.metadata.name, one.spec.pods, one.status) for one in self.others()], self.nodes()
