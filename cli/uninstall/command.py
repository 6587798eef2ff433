"""`fluxqueue uninstall`: the order of the steps, and what the user reads.

1. The webhook configurations go, so that nothing new is held. Then the policies, which would refuse the
  release of held work.
2. The programs go, and the command waits until no queue runs and its Lease is over: a leader would hold the
  work again.
3. Held work is released to plain Kubernetes, or kept.
4. FluxJobs, Leases, certificates and all other objects go; the data and the CRDs only if the user asks for
  it.

Before that the permissions are checked, so a refusal comes before the first change. No step remembers
anything: a repeated command finds what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from fluxqueue.api.formatting import some_of
from fluxqueue.api.logs import configure_logging
from fluxqueue.cli.remedies import UNREACHABLE
from fluxqueue.cli.uninstall import removal as stages
from fluxqueue.cli.uninstall.held_work import HeldWork, ReleasePass, find_held, pages, release_pass
from fluxqueue.cli.uninstall.helm_release import HelmFailed, has_record, helm_command, run_helm
from fluxqueue.cli.uninstall.installation import Installation, SeveralInstallations, find_installation
from fluxqueue.cli.uninstall.options import (
    DESCRIPTION,
    UninstallOptions,
    add_uninstall_options,
    read_uninstall_options,
)
from fluxqueue.cli.uninstall.permissions import PermissionMissing, PermissionNeed, check_permissions
from fluxqueue.cli.uninstall.removal import QueueStillRuns, Removal
from fluxqueue.cli.usage_errors import UsageParser
from fluxqueue.kube import kinds
from fluxqueue.kube.credentials import NoConfiguration
from fluxqueue.kube.errors import ApiError, Forbidden, Unreachable
from fluxqueue.kube.transport import Api

__all__ = ["UninstallRefused", "Uninstaller", "main", "run"]

_FAILED = 1
_SETTLE_S = 3.0
"""For how long after its deletion an API server may still call a webhook or apply a policy."""
_PASS_S = 1.0
_WAITING_PASSES = 5
"""Passes between two looks at running Jobs."""
_SHOWN = 20


class UninstallRefused(Exception):
    """The uninstallation does not start, or stopped before its end; the message says why."""


_EXPECTED = (
    ApiError,
    HelmFailed,
    NoConfiguration,
    PermissionMissing,
    QueueStillRuns,
    SeveralInstallations,
    UninstallRefused,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fluxqueue uninstall``; return the exit code."""
    parser = UsageParser(prog="fluxqueue uninstall", description=DESCRIPTION)
    parser.example = "fluxqueue uninstall --release-held"
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig to read instead of KUBECONFIG or ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    add_uninstall_options(parser)
    return run(parser.parse_args(argv))


def run(arguments: argparse.Namespace) -> int:
    """Uninstall as a parsed command line says; return the exit code."""
    configure_logging("error")
    try:
        asyncio.run(_uninstall(read_uninstall_options(arguments)))
    except _EXPECTED as error:
        print(f"error: {error}{_remedy(error)}", file=sys.stderr)
        return _FAILED
    return 0


def _remedy(error: Exception) -> str:
    if isinstance(error, Unreachable):
        return f" ({UNREACHABLE})"
    return " (ask an administrator of the cluster)" if isinstance(error, Forbidden) else ""


async def _uninstall(options: UninstallOptions) -> None:
    async with Api.connect(options.kubeconfig, options.context, "fluxqueue/uninstall", timeout_s=30.0) as api:
        await Uninstaller(
            api, await find_installation(api, options.namespace, options.release), options
        ).run()


@dataclass
class _Released:
    """The sums of all passes."""

    jobs: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    last: ReleasePass = field(default_factory=ReleasePass)

    def add(self, result: ReleasePass) -> bool:
        """Add a pass; return true if it changed something."""
        before = len(self.jobs) + len(self.pods) + len(self.deleted)
        self.jobs.update(result.jobs)
        self.pods.update(result.pods)
        self.deleted.update(result.deleted)
        self.last = result
        return len(self.jobs) + len(self.pods) + len(self.deleted) > before


class Uninstaller:
    """One uninstallation.

    Parameters
    ----------
    api
        The cluster.
    installation
        What is removed.
    options
        What the user asked for.
    out
        Where the user reads.
    settle_s, pass_s
        Seconds after which deleted webhooks and policies count as gone, and between passes.
    """

    def __init__(
        self,
        api: Api,
        installation: Installation,
        options: UninstallOptions,
        out: TextIO | None = None,
        *,
        settle_s: float = _SETTLE_S,
        pass_s: float = _PASS_S,
    ) -> None:
        self._api = api
        self._installation = installation
        self._options = options
        self._out = out or sys.stdout
        self._settle_s = settle_s
        self._pass_s = pass_s
        self._removal = Removal(api, installation)

    async def run(self) -> None:
        """Check, ask, remove.

        Raises
        ------
        UninstallRefused, PermissionMissing
            Before anything was changed.
        QueueStillRuns, UninstallRefused, HelmFailed, ApiError
            On the way; the command can be repeated.
        """
        if not self._options.dry_run:
            await check_permissions(self._api, _needs(self._installation, self._options))
        await self.check_miniclusters()
        held = await find_held(self._api)
        await self._say_plan(held)
        if self._options.dry_run:
            self._say("Nothing was changed: this was a dry run.")
            return
        self._confirm()
        await self.remove()

    async def check_miniclusters(self) -> None:
        """Refuse to delete the CRDs while MiniClusters exist:
        they would be deleted with them, and what runs in them.
        """
        if not self._options.delete_crds:
            return
        existing: list[str] = []
        async for page in pages(self._api, kinds.MINICLUSTERS):
            existing += [f"{each.metadata.namespace}/{each.metadata.name}" for each in page.items]
        if existing:
            raise UninstallRefused(
                f"--delete-crds would delete {_counted(existing, 'MiniCluster')}: delete them first, "
                "or leave the CRDs"
            )

    async def remove(self) -> None:
        """Carry out all steps."""
        removal, options = self._removal, self._options
        self._say_removed("admission", await removal.remove(stages.ADMISSION))
        gone_at = time.monotonic()
        self._say_removed("policies", await removal.remove(stages.POLICIES))
        self._say_removed("programs", await removal.remove(stages.PROGRAMS))
        await removal.stop_programs(options.timeout_s)
        kept: set[str] = set()
        later: list[str] = []
        if options.release_held:
            released = await self._release(gone_at)
            later = released.last.gated_later
            kept = released.last.left_uids
        else:
            await asyncio.sleep(max(0.0, gone_at + self._settle_s - time.monotonic()))
            kept = (await self._say_kept()).uids
        self._say(f"Deleted {_number(await removal.remove_fluxjobs(kept), 'FluxJob')}.")
        self._say_removed("objects", [*await removal.remove_created(), *await removal.remove(stages.OTHERS)])
        if options.delete_data:
            self._say_removed("data", await removal.remove_data())
        if options.delete_crds:
            self._say_removed("CRDs", await removal.remove_definitions())
        await self._remove_record()
        if later:
            await self._follow(later)
        await self._say_leftovers()

    async def _release(self, gone_at: float) -> _Released:
        """Run passes until nothing is held any more; a pass after the webhook is surely gone is one of
        them.
        """
        released = _Released()
        progress_at = time.monotonic()
        while True:
            started_at = time.monotonic()
            if released.add(await release_pass(self._api)):
                progress_at = time.monotonic()
            elif not released.last.waiting and started_at - gone_at >= self._settle_s:
                break
            if time.monotonic() - progress_at > self._options.timeout_s:
                waiting = _counted(released.last.waiting, "object")
                raise UninstallRefused(
                    f"{waiting} could not be released within {self._options.timeout_s:g} s: "
                    "repeat this command, "
                    "or keep them with --keep-held"
                )
            await asyncio.sleep(self._pass_s)
        self._say(
            (
                f"Released {_number(len(released.jobs), 'Job')} and {_number(len(released.pods), 'pod')} to "
                "plain Kubernetes"
            )
            + (
                f", and deleted {some_of(sorted(released.deleted), _SHOWN)}, which their owners create again"
                if released.deleted
                else ""
            )
            + "."
        )
        for sentence in released.last.left:
            self._say(f"Left: {sentence}.")
        return released

    async def _follow(self, jobs: Sequence[str]) -> None:
        """Ungate the later pods of running Jobs for as long as the user wants, or say what they need."""
        until = time.monotonic() + self._options.wait_s
        if self._options.wait_s:
            self._say(f"Waiting for {_counted(jobs, 'running Job')}: pods that they create are released.")
        while jobs and time.monotonic() < until:
            await asyncio.sleep(min(_WAITING_PASSES * self._pass_s, max(0.0, until - time.monotonic())))
            jobs = (await release_pass(self._api)).gated_later
        if jobs:
            self._say(
                f"{_counted(jobs, 'running Job')}: a running Job's pod template cannot change, so pods that "
                "it creates later (retries, further completions) have our gate. Repeat this command with "
                "--wait 24h to release them until these Jobs have ended."
            )

    async def _say_plan(self, held: HeldWork) -> None:
        installation, options = self._installation, self._options
        where = f"release {installation.release} in namespace {installation.namespace}"
        self._say(
            f"Removes {where}."
            if installation.exists
            else f"No object of {where} was found: removes what such a release leaves."
        )
        for kind in (*stages.ADMISSION, *stages.POLICIES, *stages.PROGRAMS, *stages.OTHERS):
            if found := await self._removal.find(kind):
                self._say(f"  {kind.plural}: {some_of([name for _, name in found], _SHOWN)}")
        verb = "Releases" if options.release_held else "Keeps"
        self._say(f"{verb} {_counted(held.jobs, 'held Job')} and {_counted(held.pods, 'other held pod')}.")
        if held.gated_later:
            self._say(f"{_counted(held.gated_later, 'running Job')}: later pods have our gate.")
        if data := await self._removal.data():
            self._say(f"{'Deletes' if options.delete_data else 'Leaves'} the data: {some_of(data, _SHOWN)}.")
        if definitions := await self._removal.definitions():
            self._say(
                f"{'Deletes' if options.delete_crds else 'Leaves'} the CRDs: {some_of(definitions, _SHOWN)}."
            )

    def _confirm(self) -> None:
        if self._options.yes:
            return
        if not sys.stdin.isatty():
            raise UninstallRefused(
                "standard input is no terminal, so nobody can confirm: give --yes, or --dry-run"
            )
        if input("Remove it? [y/N] ").strip().lower() not in ("y", "yes"):
            raise UninstallRefused("nothing was changed")

    async def _say_kept(self) -> HeldWork:
        held = await find_held(self._api)
        if held.jobs or held.pods:
            self._say(
                f"Kept {_counted(held.jobs, 'Job')} and {_counted(held.pods, 'other pod')}: nothing starts "
                "them until fluxqueue is installed again, or this command is repeated with --release-held."
            )
        return held

    async def _remove_record(self) -> None:
        if not await has_record(self._api, self._installation):
            return
        command = helm_command(self._installation, self._options.kubeconfig, self._options.context)
        done = await run_helm(command)
        self._say(
            "Helm has removed its record of the release."
            if done
            else f"Helm still lists the release: run '{' '.join(command)}'."
        )

    async def _say_leftovers(self) -> None:
        if data := await self._removal.data():
            self._say(f"Left: {some_of(data, _SHOWN)}. Repeat with --delete-data to delete the data.")
        if dumps := await self._removal.dumps():
            self._say(
                f"Left: {some_of(dumps, _SHOWN)}, with dumps of the database. "
                "Delete it with kubectl once nobody needs them."
            )
        if definitions := await self._removal.definitions():
            self._say(
                f"Left: the CRDs {some_of(definitions, _SHOWN)}, with their objects. "
                "Repeat with --delete-crds to delete them."
            )
        self._say("Namespaces keep the label fluxqueue/managed. fluxqueue is removed.")

    def _say_removed(self, what: str, removed: Sequence[str]) -> None:
        self._say(
            f"Deleted {what}: {some_of(removed, _SHOWN)}." if removed else f"Deleted {what}: there were none."
        )

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


def _needs(installation: Installation, options: UninstallOptions) -> list[PermissionNeed]:
    """Return the permissions of all steps."""
    removed = (*stages.ADMISSION, *stages.POLICIES, *stages.PROGRAMS, *stages.OTHERS)
    needs = [
        PermissionNeed(kind, ("delete", "list"), installation.namespace if kind.namespaced else "")
        for kind in removed
    ]
    needs += [
        PermissionNeed(kinds.JOBS, ("list", "patch", "delete")),
        PermissionNeed(kinds.PODS, ("list", "patch", "delete")),
    ]
    needs += [
        PermissionNeed(kinds.FLUXJOBS, ("list", "delete")),
        PermissionNeed(kinds.LEASES, ("get", "delete"), installation.namespace),
    ]
    needs.append(
        PermissionNeed(
            kinds.CLAIMS, ("list", "delete") if options.delete_data else ("list",), installation.namespace
        )
    )
    needs.append(
        PermissionNeed(kinds.CUSTOM_RESOURCES, ("get", "delete") if options.delete_crds else ("get",))
    )
    if options.delete_crds:
        needs.append(PermissionNeed(kinds.MINICLUSTERS, ("list",)))
    return needs


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _counted(listed: Sequence[str], what: str) -> str:
    return _number(len(listed), what) + (f" ({some_of(listed, _SHOWN)})" if listed else "")
