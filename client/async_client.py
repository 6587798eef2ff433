"""The asynchronous client: submits work, waits for it, and edits it, as the person of the kubeconfig.

It creates the objects and edits the FluxJobs that people create and edit with kubectl, so it may do what its
user may do. All waits of a namespace share one watch (`fluxqueue.client.object_watches`).

    async with AsyncClient.connect() as client:
        prepare = await client.submit(Job(name="prepare", image="tools", command=["prepare"]))
        solve = Job(name="solver", image="solver", pods=4, cpu=8)
        solver = await client.submit(solve, after=prepare, duration=timedelta(hours=1))
        print(await solver.explain())
        await solver.wait(check=True)
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fluxqueue.api import names
from fluxqueue.client.arguments import many, workloads
from fluxqueue.client.async_listings import AsyncListings
from fluxqueue.client.async_workloads import AsyncWorkload
from fluxqueue.client.connections import Connection
from fluxqueue.client.errors import (
    FluxQueueError,
    InvalidWork,
    NoCluster,
    NoSuchWork,
    NotInstalled,
    NotManaged,
    SubmissionFailed,
    translated,
)
from fluxqueue.client.flux_instances import AsyncFlux
from fluxqueue.client.handles import Handle, parse_title
from fluxqueue.client.progress import Progress, progress_of
from fluxqueue.client.statuses import WorkStatus
from fluxqueue.client.submissions import Submission, Work, submissions
from fluxqueue.client.terms import Terms, with_lists
from fluxqueue.client.waiting import Timeout, Waiting
from fluxqueue.kube.errors import ApiError, Invalid, NotFound
from fluxqueue.kube.kinds import PODS
from fluxqueue.kube.kubeconfig import default_namespace, impersonation
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig

if TYPE_CHECKING:
    from fluxqueue.kube.transport import Api

__all__ = ["AsyncClient"]

_AT_ONCE = 16


class AsyncClient(AsyncListings):
    """A client of one cluster; created by `connect`."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace)
        self.connection = Connection(api)
        self._managed: set[tuple[str, str]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, kubeconfig: Path | str | None = None, *, context: str | None = None, namespace: str | None = None
    ) -> AsyncIterator[AsyncClient]:
        """Open a client; it closes its connections and its watch at the end, and leaves all work as it is.

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
        from fluxqueue.client.library_logs import use_standard_logging
        from fluxqueue.kube.credentials import NoConfiguration
        from fluxqueue.kube.transport import Api

        use_standard_logging()
        try:
            chosen = namespace or default_namespace(str(kubeconfig) if kubeconfig else None, context)
            somebody_else = impersonation(str(kubeconfig) if kubeconfig else None, context)
            connection = Api.connect(kubeconfig, context, "fluxqueue/client")
            api = await connection.__aenter__()
            api = api.with_headers(somebody_else) if somebody_else else api
        except (NoConfiguration, InvalidKubeconfig, OSError) as error:
            raise NoCluster(f"{error}: set KUBECONFIG, or give kubeconfig=") from None
        client = cls(api, chosen)
        try:
            yield client
        finally:
            await client.connection.close()
            await connection.__aexit__(None, None, None)

    async def submit(self, work: Work, **terms: Unpack[Terms]) -> AsyncWorkload:
        """Submit one workload.

        Parameters
        ----------
        work
            A `Job`, `Pod`, `PodGroup` or `MiniCluster`, a dictionary, an object of the ``kubernetes``
            package, YAML as text, or a `pathlib.Path`.
        **terms
            See `Terms`.

        Raises
        ------
        InvalidWork
            It cannot be submitted, or is more than one workload. Nothing was created.
        NotManaged
            fluxqueue does not queue work of this namespace. Nothing was created.
        FluxQueueError
            The API server refused; see the other classes.
        """
        found = submissions(work, self.namespace, terms)
        if len(found) != 1:
            titles = ", ".join(f"{unit.kind} {unit.name}" for unit in found[:5])
            raise InvalidWork(f"it holds {len(found)} workloads ({titles}): use submit_all")
        return await self._submit(found[0])

    async def submit_all(
        self, works: Iterable[Work] | str | Path, **terms: Unpack[Terms]
    ) -> list[AsyncWorkload]:
        """Submit many workloads at once, in no particular order.

        Parameters
        ----------
        works
            What `submit` accepts, each of which may hold several workloads; or one YAML text or file.
        **terms
            For all of them; see `Terms`.

        Returns
        -------
        list of AsyncWorkload
            In the order of what was given.

        Raises
        ------
        InvalidWork
            One of them cannot be submitted. Nothing was created.
        SubmissionFailed
            The API server refused some; the others are submitted, and the error has them.
        """
        given = [works] if isinstance(works, str | Path) else [*many("works", works, "a list of work")]
        terms = with_lists(terms)
        units = [unit for work in given for unit in submissions(work, self.namespace, terms)]
        done = await asyncio.gather(*(self._submit(unit) for unit in units), return_exceptions=True)
        failures: dict[int, FluxQueueError] = {}
        for position, result in enumerate(done):
            if isinstance(result, FluxQueueError):
                failures[position] = result
            elif isinstance(result, BaseException):
                raise result
        submitted = [result for result in done if isinstance(result, AsyncWorkload)]
        if failures:
            raise SubmissionFailed([*submitted], failures)
        return submitted

    async def get(self, title: str, namespace: str | None = None) -> AsyncWorkload:
        """Return work that exists.

        Parameters
        ----------
        title
            ``job/NAME``, ``pod/NAME``, ``pod-group/NAME`` or ``minicluster/NAME``; without a kind, a Job.
        namespace
            Its namespace; by default that of the client.

        Raises
        ------
        InvalidWork
            The title cannot be read.
        NoSuchWork
            There is no such object.
        """
        kind, name = parse_title(title)
        where = namespace or self.namespace
        unit = Submission(kind, name, where, ())
        try:
            if kind == "PodGroup":
                members = await self.api.list(PODS, where, label_selector=f"{names.POD_GROUP_LABEL}={name}")
            else:
                members = [await self.api.get(unit.served_as, name, where)]
        except NotFound as error:
            raise NoSuchWork(
                f"{kind} {where}/{name} does not exist: check name and namespace ({error.reason})"
            ) from None
        except ApiError as error:
            raise translated(error) from None
        if not members:
            raise NoSuchWork(f"pod group {where}/{name} has no pods: check name and namespace")
        return self.workload(Handle(kind, where, name, tuple(each.metadata.uid for each in members)))

    def workload(self, handle: Handle) -> AsyncWorkload:
        """Return the workload of a handle that was kept."""
        if not isinstance(handle, Handle):
            raise InvalidWork(
                f"handle: {handle!r:.60} is no Handle: keep the handle of a workload, "
                "or write client.get('job/NAME')"
            )
        return AsyncWorkload(self.connection, handle)

    async def flux(self, minicluster: AsyncWorkload | str, *, url: str = "") -> AsyncFlux:
        """Return the Flux instance of a MiniCluster that serves its REST interface.

        Parameters
        ----------
        minicluster
            The workload, or the name of the MiniCluster.
        url
            Where the service is reached, such as a port of ``kubectl port-forward``; by default through the
            API server, which needs the right to use ``services/proxy``.

        Raises
        ------
        NoSuchWork
            There is no such MiniCluster, or it does not serve the interface.
        NotPermitted
            You may not read its token, which is in a Secret.
        """
        from fluxqueue.client.flux_access import flux_connection

        name = minicluster if isinstance(minicluster, str) else minicluster.name
        where = self.namespace if isinstance(minicluster, str) else minicluster.namespace
        connection = await flux_connection(self.api, where, name, url)
        self.connection.add(connection)
        return AsyncFlux(connection)

    async def wait(
        self, works: Iterable[AsyncWorkload], *, timeout: Timeout = None, check: bool = False
    ) -> list[WorkStatus]:
        """Wait until all of some workloads have ended, and return their statuses in that order.

        Raises
        ------
        WaitTimeout, WorkFailed, WorkGone
            As `AsyncWorkload.wait`, for the first one.
        """
        waits = [
            asyncio.ensure_future(work.wait(timeout=timeout, check=check))
            for work in workloads(works, AsyncWorkload)
        ]
        try:
            return list(await asyncio.gather(*waits))
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def progress(
        self, works: Iterable[AsyncWorkload], *, timeout: Timeout = None
    ) -> AsyncIterator[Progress]:
        """Yield how far some workloads are: now, whenever that changes, and for the last time when all have
        ended.

        Raises
        ------
        WaitTimeout, WorkGone
            As `AsyncWorkload.wait`.
        """
        found = workloads(works, AsyncWorkload)
        waits = [
            Waiting(self.api, await self.connection.watch(work.namespace), work.handle) for work in found
        ]
        async with aclosing(progress_of(waits, timeout)) as steps:
            async for step in steps:
                yield step

    async def as_ended(
        self, works: Iterable[AsyncWorkload], *, timeout: Timeout = None
    ) -> AsyncIterator[AsyncWorkload]:
        """Yield workloads as they end.

        Raises
        ------
        WaitTimeout
            Some have not ended in time.
        WorkGone
            One was deleted.
        """
        waits: dict[asyncio.Task[WorkStatus], AsyncWorkload] = {
            asyncio.ensure_future(work.wait(timeout=timeout)): work
            for work in workloads(works, AsyncWorkload)
        }
        try:
            pending = set(waits)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for wait in done:
                    wait.result()
                    yield waits[wait]
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _submit(self, unit: Submission) -> AsyncWorkload:
        async with self._slots:
            await self._queues.check_work(unit)
            await self.check_managed(unit)
            created: list[Any] = []
            try:
                for manifest in unit.manifests:
                    made = await self.api.create(
                        unit.served_as, manifest, unit.namespace, strict=True, warned=_warn
                    )
                    created.append(made)  # if one is refused, those before it count
            except NotFound as error:
                raise NotInstalled(
                    f"the cluster does not serve {unit.served_as.plural} ({error}): "
                    "install fluxqueue with them"
                ) from None
            except ApiError as error:
                refused = _refused(error, unit)
                try:
                    await self._undo(unit, created)
                except FluxQueueError as other:
                    raise type(refused)(
                        f"{refused}; the pods of {unit.name} that were created are still there: "
                        f"delete them ({other})"
                    ) from None
                raise refused from None
        name = unit.name or created[0].metadata.name
        return self.workload(
            Handle(unit.kind, unit.namespace, name, tuple(each.metadata.uid for each in created))
        )

    async def _undo(self, unit: Submission, created: Sequence[Any]) -> None:
        """Delete the pods of a group of which one was refused: it would wait for ever for the others."""
        if created:
            name = unit.name or created[0].metadata.name
            await Handle(
                unit.kind, unit.namespace, name, tuple(each.metadata.uid for each in created)
            ).delete(self.api)

    async def check_managed(self, unit: Submission) -> None:
        """Ask the API server once for each kind and namespace, by a dry run, whether admission sees the
        object.

        Where it does not, pods would start at once, past the queue.

        Raises
        ------
        NotManaged
            It does not.
        FluxQueueError
            The API server refuses the object.
        """
        key = (unit.served_as.kind, unit.namespace)
        if key in self._managed or unit.kind == "MiniCluster":
            return
        path = unit.served_as.path(unit.namespace)
        manifest = {
            "apiVersion": unit.served_as.api_version,
            "kind": unit.served_as.kind,
            **unit.manifests[0],
        }
        try:
            seen = await self.api.request(
                "POST", path, query={"dryRun": "All", "fieldValidation": "Strict"}, body=manifest
            )
        except ApiError as error:
            raise _refused(error, unit) from None
        if names.SEEN_LABEL.encode() not in seen:
            raise NotManaged(
                f"fluxqueue does not queue {unit.served_as.plural} of namespace {unit.namespace}, so "
                f"nothing was submitted: kubectl label namespace {unit.namespace} "
                f"{names.MANAGED_LABEL}=true, or choose another namespace"
            )
        self._managed.add(key)


def _warn(text: str) -> None:
    """Pass a warning of admission on, such as one about a label that nobody knows."""
    warnings.warn(text, stacklevel=1)


def _refused(error: ApiError, unit: Submission) -> FluxQueueError:
    if isinstance(error, Invalid):
        return translated(error, "correct the field that the message names")
    if error.status == 400:
        return translated(error, f"correct {unit.kind} {unit.name} as it says")
    return translated(error)
