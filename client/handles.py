"""What identifies a workload for the client, and how its FluxJob, its object and its pods are found.

A `Handle` is plain data, made from what the API server returned at submission, or from what ``kind/name``
names.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.client.errors import InvalidWork, WorkGone, translated
from fluxqueue.kube.errors import ApiError, Conflict, NotFound
from fluxqueue.kube.kinds import JOBS, MINICLUSTERS, PODS, Kind

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["Handle", "parse_title"]

_WORDS = {
    **dict.fromkeys(("job", "jobs"), "Job"),
    **dict.fromkeys(("pod", "pods", "po"), "Pod"),
    **dict.fromkeys(("minicluster", "miniclusters"), "MiniCluster"),
    **dict.fromkeys(("pod-group", "podgroup", "pod-groups"), "PodGroup"),
}
_KINDS: dict[str, Kind[Any]] = {"Job": JOBS, "Pod": PODS, "MiniCluster": MINICLUSTERS}


def parse_title(title: str) -> tuple[str, str]:
    """Return kind and name of ``job/NAME``, ``pod/NAME``, ``pod-group/NAME`` or ``minicluster/NAME``; without
    a kind, of a Job.

    Raises
    ------
    InvalidWork
        The kind is another one, or there is no name.
    """
    word, slash, name = title.rpartition("/") if isinstance(title, str) else ("", "", "")
    kind = _WORDS.get(word.lower()) if slash else "Job"
    if kind is None or not name:
        raise InvalidWork(
            f"{title!r} names no work: write job/NAME, pod/NAME, pod-group/NAME or minicluster/NAME"
        )
    return kind, name


@dataclass(frozen=True)
class Handle:
    """A workload: kind, namespace and name, and the uids of its objects (of a group: of all its pods)."""

    kind: str
    namespace: str
    name: str
    uids: tuple[str, ...]

    @property
    def title(self) -> str:
        """For messages: ``Job team/solver``."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> Hashable:
        """The key of its FluxJob in a watch of FluxJobs."""
        if self.kind == "MiniCluster":
            return ("Job", self.name)
        if self.kind == "PodGroup":
            return (self.kind, self.name)
        return self.uids[0]

    def owns(self, fluxjob: FluxJob, job: Job | None) -> bool:
        """True if a FluxJob that was found by `key` is that of this workload, and not of another one with the
        same name.

        Parameters
        ----------
        fluxjob
            The FluxJob.
        job
            The Job of a MiniCluster; None if there is none.
        """
        if self.kind == "MiniCluster":
            if job is None or job.metadata.uid != fluxjob.spec.object_ref.uid:
                return False
            controller = job.metadata.controller
            return controller is not None and controller.uid in self.uids
        if self.kind == "PodGroup":
            return not {owner.uid for owner in fluxjob.metadata.owner_references or ()}.isdisjoint(self.uids)
        return True

    async def objects(self, api: Api) -> Sequence[Any]:
        """Return its objects that still exist, as they are now.

        Raises
        ------
        FluxQueueError
            The API server refuses, or does not answer.
        """
        try:
            if self.kind == "PodGroup":
                pods = await api.list(
                    PODS, self.namespace, label_selector=f"{names.POD_GROUP_LABEL}={self.name}"
                )
                return [pod for pod in pods if pod.metadata.uid in self.uids]
            found = await api.get(_KINDS[self.kind], self.name, self.namespace)
        except NotFound:
            return ()
        except ApiError as error:
            raise translated(error) from None
        return [found] if found.metadata.uid in self.uids else ()

    async def job(self, api: Api) -> Job | None:
        """Return its Job; None if it has none (yet)."""
        if self.kind not in ("Job", "MiniCluster"):
            return None
        try:
            job = await api.get(JOBS, self.name, self.namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise translated(error) from None
        controller = job.metadata.controller
        mine = (
            job.metadata.uid in self.uids
            if self.kind == "Job"
            else controller is not None and controller.uid in self.uids
        )
        return job if mine else None

    async def pods(self, api: Api) -> list[Pod]:
        """Return its pods that exist."""
        if self.kind in ("Pod", "PodGroup"):
            return list(await self.objects(api))
        job = await self.job(api)
        if job is None:
            return []
        try:
            return await api.list(
                PODS, self.namespace, label_selector=f"{names.CONTROLLER_UID_LABEL}={job.metadata.uid}"
            )
        except ApiError as error:
            raise translated(error) from None

    async def delete(self, api: Api) -> None:
        """Delete its objects, and in the background all that belongs to them.
        Objects of the same name with other uids stay.
        """
        kind = PODS if self.kind == "PodGroup" else _KINDS[self.kind]
        for each in await self.objects(api):
            try:
                await api.delete(kind, each.metadata.name, namespace=self.namespace, uid=each.metadata.uid)
            except (NotFound, Conflict):
                continue  # it is gone, or another one has its name
            except ApiError as error:
                raise translated(error) from None

    def gone(self) -> WorkGone:
        """Return the error for work whose object is not there any more."""
        return WorkGone(
            f"{self.title} was deleted before its end was seen: submit it again if it is still needed"
        )
