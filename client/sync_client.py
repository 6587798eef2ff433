"""The client for code without ``async``: the same as `AsyncClient`, usable from any thread.

with Client() as client: prepare = client.submit(Job(name="prepare", image="tools", command=["prepare"]))
solver = client.submit(Job(name="solver", image="solver", pods=4, cpu=8), after=prepare,
duration=timedelta(hours=1)) print(solver.explain()) solver.wait(check=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from fluxqueue.client.arguments import workloads
from fluxqueue.client.async_client import AsyncClient
from fluxqueue.client.async_workloads import AsyncWorkload
from fluxqueue.client.errors import SubmissionFailed
from fluxqueue.client.explanations import Explanation
from fluxqueue.client.handles import Handle
from fluxqueue.client.listings import JobListing, QueueListing
from fluxqueue.client.podlogs import LogLine
from fluxqueue.client.portals import Portal
from fluxqueue.client.progress import Progress
from fluxqueue.client.statuses import WorkStatus
from fluxqueue.client.submissions import Work
from fluxqueue.client.sync_flux import Flux
from fluxqueue.client.terms import Terms
from fluxqueue.client.waiting import Timeout

if TYPE_CHECKING:
    from fluxqueue.client.histories import HistoryListing
    from fluxqueue.client.nodes import NodeListing

__all__ = ["Client", "Workload"]


class Client:
    """A client of one cluster; a context manager. All methods raise `FluxQueueError`.

    Parameters
    ----------
    kubeconfig
        A file; by default ``$KUBECONFIG``, ``~/.kube/config``, or the pod's ServiceAccount.
    context
        Context of the kubeconfig; by default its current one.
    namespace
        Namespace of work that names none; by default that of the context.

    Raises
    ------
    NoCluster
        There is no usable configuration.
    """

    def __init__(
        self,
        kubeconfig: Path | str | None = None,
        *,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self.portal = Portal()
        try:
            self.asynchronous = self.portal.enter(
                AsyncClient.connect(kubeconfig, context=context, namespace=namespace)
            )
        except BaseException:
            self.portal.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the watch; all work goes on."""
        self.portal.close()

    @property
    def namespace(self) -> str:
        """Namespace of work that names none."""
        return self.asynchronous.namespace

    def submit(self, work: Work, **terms: Unpack[Terms]) -> Workload:
        """Submit one workload; see `AsyncClient.submit`."""
        return self._workload(self.portal.call(self.asynchronous.submit(work, **terms)))

    def submit_all(self, works: Iterable[Work] | str | Path, **terms: Unpack[Terms]) -> list[Workload]:
        """Submit many workloads at once; see `AsyncClient.submit_all`."""
        try:
            return [
                self._workload(each)
                for each in self.portal.call(self.asynchronous.submit_all(works, **terms))
            ]
        except SubmissionFailed as error:
            error.submitted = [
                self._workload(each) for each in error.submitted if isinstance(each, AsyncWorkload)
            ]
            raise

    def get(self, title: str, namespace: str | None = None) -> Workload:
        """Return work that exists, by ``job/NAME``, ``pod/NAME``,
        ``pod-group/NAME`` or ``minicluster/NAME``.
        """
        return self._workload(self.portal.call(self.asynchronous.get(title, namespace)))

    def jobs(
        self,
        *,
        queue: str = "",
        states: Iterable[str] = (),
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> JobListing:
        """Return the work that runs, waits and has ended; see `AsyncClient.jobs`."""
        return self.portal.call(
            self.asynchronous.jobs(
                queue=queue, states=states, namespace=namespace, all_namespaces=all_namespaces
            )
        )

    def queues(self) -> QueueListing:
        """Return the queues with what they use of their limits; see `AsyncClient.queues`."""
        return self.portal.call(self.asynchronous.queues())

    def nodes(self, *, selector: str = "", states: Iterable[str] = ()) -> NodeListing:
        """Return the nodes with what fluxqueue's work uses of them; see `AsyncClient.nodes`."""
        return self.portal.call(self.asynchronous.nodes(selector=selector, states=states))

    def history(
        self,
        *,
        name: str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        states: Iterable[str] = (),
        queue: str | None = None,
        account: str | None = None,
        user: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
        limit: int = 1000,
        system_namespace: str = "",
    ) -> HistoryListing:
        """Return the work that ended since a time, runs or waits; see `AsyncClient.history`."""
        return self.portal.call(
            self.asynchronous.history(
                name=name,
                since=since,
                until=until,
                states=states,
                queue=queue,
                account=account,
                user=user,
                namespace=namespace,
                all_namespaces=all_namespaces,
                limit=limit,
                system_namespace=system_namespace,
            )
        )

    def workload(self, handle: Handle) -> Workload:
        """Return the workload of a handle that was kept."""
        return self._workload(self.asynchronous.workload(handle))

    def flux(self, minicluster: Workload | str, *, url: str = "") -> Flux:
        """Return the Flux instance of a MiniCluster that serves its REST interface;
        see `AsyncClient.flux`.
        """
        which = minicluster if isinstance(minicluster, str) else minicluster.asynchronous
        return Flux(self.portal, self.portal.call(self.asynchronous.flux(which, url=url)))

    def wait(
        self, works: Iterable[Workload], *, timeout: Timeout = None, check: bool = False
    ) -> list[WorkStatus]:
        """Wait until all of some workloads have ended; see `AsyncClient.wait`."""
        waited = [work.asynchronous for work in workloads(works, Workload)]
        return self.portal.call(self.asynchronous.wait(waited, timeout=timeout, check=check))

    def progress(self, works: Iterable[Workload], *, timeout: Timeout = None) -> Iterator[Progress]:
        """Yield how far some workloads are, until all have ended; see `AsyncClient.progress`."""
        yield from self.portal.iterate(
            self.asynchronous.progress(
                [work.asynchronous for work in workloads(works, Workload)], timeout=timeout
            )
        )

    def as_ended(self, works: Iterable[Workload], *, timeout: Timeout = None) -> Iterator[Workload]:
        """Yield workloads as they end; see `AsyncClient.as_ended`."""
        by_own = {work.asynchronous: work for work in workloads(works, Workload)}
        for each in self.portal.iterate(self.asynchronous.as_ended(by_own, timeout=timeout)):
            yield by_own[each]

    def _workload(self, own: AsyncWorkload) -> Workload:
        return Workload(self.portal, own)


class Workload:
    """A submitted workload: a Job, a Pod, a pod group or a MiniCluster.
    All methods raise `FluxQueueError`.
    """

    def __init__(self, portal: Portal, asynchronous: AsyncWorkload) -> None:
        self._portal = portal
        self.asynchronous = asynchronous

    def __repr__(self) -> str:
        return repr(self.asynchronous)

    @property
    def handle(self) -> Handle:
        """What identifies it; plain data, which can be kept and given to `Client.workload`."""
        return self.asynchronous.handle

    @property
    def kind(self) -> str:
        """``Job``, ``Pod``, ``PodGroup`` or ``MiniCluster``."""
        return self.handle.kind

    @property
    def name(self) -> str:
        """Name of the object, or of the group."""
        return self.handle.name

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.handle.namespace

    def status(self) -> WorkStatus:
        """Return its status now."""
        return self._portal.call(self.asynchronous.status())

    def state(self) -> str:
        """Return its state now: ``Pending``, ``Running``, ``Completed`` and so on."""
        return self._portal.call(self.asynchronous.state())

    def eta(self) -> datetime | None:
        """Return its planned start, or its start if it has started; None if there is no estimate."""
        return self._portal.call(self.asynchronous.eta())

    def wait(self, *, timeout: Timeout = None, started: bool = False, check: bool = False) -> WorkStatus:
        """Wait until it has ended; see `AsyncWorkload.wait`."""
        return self._portal.call(self.asynchronous.wait(timeout=timeout, started=started, check=check))

    def explain(self) -> Explanation:
        """Return why it waits and what helps, as ``kubectl fluxqueue explain`` says it."""
        return self._portal.call(self.asynchronous.explain())

    def hold(self) -> None:
        """Keep it from starting, while it waits."""
        self._portal.call(self.asynchronous.hold())

    def release(self) -> None:
        """End a hold."""
        self._portal.call(self.asynchronous.release())

    def cancel(self) -> None:
        """Cancel it: a Job is suspended and keeps its pods' output, waiting pods are deleted."""
        self._portal.call(self.asynchronous.cancel())

    def prioritize(self, priority: int) -> None:
        """Give it another priority, while it waits."""
        self._portal.call(self.asynchronous.prioritize(priority))

    def move(self, queue: str) -> None:
        """Move it to another queue, while it waits."""
        self._portal.call(self.asynchronous.move(queue))

    def requeue(self, *, hold: bool = False, timeout: Timeout = 600.0) -> None:
        """Stop a Job that runs, and have it wait again; see `AsyncWorkload.requeue`."""
        self._portal.call(self.asynchronous.requeue(hold=hold, timeout=timeout))

    def delete(self) -> None:
        """Delete its object and all that belongs to it, in any state."""
        self._portal.call(self.asynchronous.delete())

    def logs(
        self, *, follow: bool = False, tail: int | None = None, container: str = ""
    ) -> Iterator[LogLine]:
        """Yield the output of its pods; see `AsyncWorkload.logs`."""
        yield from self._portal.iterate(self.asynchronous.logs(follow=follow, tail=tail, container=container))
