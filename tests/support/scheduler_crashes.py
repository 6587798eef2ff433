"""What the crash suite does to our scheduler, and to the pods that it is about to bind.

It fills a node between the match and the bind of a pod. It creates a claim that waits for its first consumer.
It freezes the leader for longer than its Lease, so that the leader resumes next to the new one.
"""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from support.audit_logs import writes_of
from support.builders import make_pod
from support.end_to_end import NotInTime, Stage
from support.replicas import LifeCount, asked, metrics

from fluxqueue.api import names
from fluxqueue.api.hostlists import decode
from fluxqueue.api.pods import Pod
from fluxqueue.local.apiserver_client import ApiServerError
from fluxqueue.local.operator_requests import OperatorRefused

__all__ = ["RUN_SECONDS", "SchedulerCrashes"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREIGN = "default"
_FOREIGN_GATE = "example.com/wait"
_SELECTED = "volume.kubernetes.io/selected-node"
_BOUND = re.compile(
    rb'^scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} ([0-9.e+]+)', re.MULTILINE
)


class SchedulerCrashes:
    """The schedulers of a cluster.

    Attributes
    ----------
    stage
        A namespace of the cluster.
    wrong
        A message for each action of a scheduler that is not allowed.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.wrong: list[str] = []
        self._claims: list[str] = []
        self._provided: set[str] = set()
        self._storage_class = ""
        self._foreign = self._probes = 0

    @property
    def names(self) -> list[str]:
        """The scheduler programs of the cluster, the first replica first."""
        return [
            name
            for name in self.stage.cluster.programs
            if name == "scheduler" or name.startswith("scheduler-")
        ]

    def leader(self) -> str:
        """Return the leading scheduler; empty if there is none."""
        cluster = self.stage.cluster
        leading = (
            name
            for name in self.names
            if cluster.programs[name].process.running and asked(cluster, name)["role"] == "leader"
        )
        return next(leading, "")

    def counted(self) -> dict[str, LifeCount]:
        """Return how many pods each scheduler has bound since its start."""
        return {name: self._counted(name) for name in self.names}

    def until_binding(self, before: dict[str, LifeCount], besides: str = "", within_s: float = 120) -> None:
        """Wait until a scheduler other than ``besides`` has bound a pod since ``before``.
        One pod is applied for that.
        """
        self._probes += 1
        probe = (
            make_pod(f"probe-{self._probes}")
            .cpu("1")
            .annotation(RUN_SECONDS, "1")
            .with_("spec.restartPolicy", "Never")
        )
        self.stage.apply_all(probe.build())
        others = [name for name in self.names if name != besides]
        log_excerpt = self.stage.cluster.programs[others[0]].process.log_excerpt
        self.stage.until(
            "a scheduler binds pods",
            lambda: any(self._counted(name).went_on_since(before[name]) for name in others),
            within_s,
            log_excerpt,
        )

    def _counted(self, name: str) -> LifeCount:
        program = self.stage.cluster.programs[name]
        with suppress(OSError, OperatorRefused):
            return LifeCount(
                program.process.pid,
                sum(float(number) for number in _BOUND.findall(metrics(self.stage.cluster, name))),
            )
        return LifeCount(program.process.pid, 0.0)

    def fill_its_node(self, name: str) -> None:
        """Fill the node of a released pod with a foreign pod before the bind:
        the scheduler must refuse it.
        """
        whole = (
            make_pod(name)
            .cpu("8")
            .gate(_FOREIGN_GATE)
            .annotation(RUN_SECONDS, "1")
            .with_("spec.restartPolicy", "Never")
        )
        self.stage.apply_all(whole.build())
        try:
            node = self.stage.until(f"{name} is released", lambda: self._released_to(name), 10)
        except NotInTime:  # the cluster is full
            self._open_gate(name)
            return
        self._foreign += 1
        foreign = (
            make_pod(f"foreign-{self.stage.namespace}-{self._foreign}")
            .namespace(FOREIGN)
            .cpu("1")
            .on_node(node)
        )
        self.stage.cluster.control_plane.client.request(
            "POST",
            f"/api/v1/namespaces/{FOREIGN}/pods",
            foreign.label("filler", "yes")
            .annotation(RUN_SECONDS, "3")
            .with_("spec.restartPolicy", "Never")
            .build(),
        )
        self._open_gate(name)

    def request_a_volume(self, name: str) -> None:
        """Apply a pod with a claim that waits for its first consumer; `provide_volumes` binds the claim."""
        if not self._storage_class:
            self._storage_class = self.stage.storage_class(volumeBindingMode="WaitForFirstConsumer")
        self.stage.claim(name, self._storage_class)
        self._claims.append(name)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        pod = make_pod(name).cpu("1").annotation(RUN_SECONDS, "1").with_("spec.restartPolicy", "Never")
        self.stage.apply_all(pod.with_("spec.volumes", volumes).build())

    def freeze(self) -> float:
        """Freeze the leader for longer than its Lease, under load, and resume it.
        Return the seconds until another one bound a pod.
        """
        frozen = self.stage.until("a scheduler leads", self.leader, 30)
        process = self.stage.cluster.programs[frozen].process
        before = self.counted()
        process.send(signal.SIGSTOP)
        began = time.monotonic()
        try:
            self.until_binding(before, besides=frozen)
            seconds = time.monotonic() - began
        finally:
            resumed_at = datetime.now(UTC)
            process.send(signal.SIGCONT)
        victim = process.pid
        self.stage.until(
            "the frozen scheduler leads no more", lambda: not process.running or process.pid != victim, 60
        )
        self.stage.cluster.programs[frozen].revive()
        replica = f"fluxqueue-scheduler-{frozen.partition('-')[2] or 0}"
        self.wrong += [
            (
                f"{replica} was frozen until {resumed_at:%H:%M:%S.%f} and bound pod {write.name} at "
                f"{write.at:%H:%M:%S.%f}"
            )
            for write in writes_of(self.stage.cluster, "scheduler")
            if write.replica == replica
            and write.at >= resumed_at
            and write.resource == "pods/binding"
            and write.code < 300
        ]
        return seconds

    def provide_volumes(self) -> None:
        """Bind each claim that has none to a volume on the node that the scheduler selected,
        as a provisioner does.
        """
        for claim in [claim for claim in self._claims if claim not in self._provided]:
            self._provided.add(claim)
            self.stage.bind(
                claim,
                self.stage.until(f"a node is selected for claim {claim}", partial(self._selected, claim), 60),
            )

    def clear(self) -> None:
        """Delete the objects that the stage does not delete."""
        for claim in self._claims:
            self.stage.kubectl("delete", "pvc", claim, "--ignore-not-found", "--wait=false")
        self._claims.clear()
        self._provided.clear()
        self._storage_class = ""  # the stage deletes it
        self.stage.cluster.kubectl(
            "-n", FOREIGN, "delete", "pods", "-l", "filler=yes", "--wait=true", "--timeout=60s"
        )

    def _released_to(self, name: str) -> str:
        pod = next((pod for pod in self.stage.items("pods", Pod) if pod.metadata.name == name), None)
        nodes = pod.metadata.annotation(names.NODES_ANNOTATION) if pod is not None else None
        return decode(nodes)[0] if nodes else ""

    def _open_gate(self, name: str) -> None:
        """Remove the gate of the other controller. Ours stays, if the pod still has it."""
        gone = {"spec": {"schedulingGates": [{"name": _FOREIGN_GATE, "$patch": "delete"}]}}
        self.stage.kubectl("patch", "pod", name, "--type=strategic", "-p", json.dumps(gone))

    def _selected(self, claim: str) -> str:
        path = f"/api/v1/namespaces/{self.stage.namespace}/persistentvolumeclaims/{claim}"
        with suppress(ApiServerError, OSError):
            body = self.stage.cluster.control_plane.client.get(path)
            return str((body["metadata"].get("annotations") or {}).get(_SELECTED, ""))
        return ""
