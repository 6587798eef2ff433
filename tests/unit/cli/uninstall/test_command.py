"""The whole command over an API server in memory, also killed after each of its writes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest
from support.builders import make_job, make_minicluster, make_pod
from support.memory_api import MemoryApi

from fluxqueue.cli import main as fluxqueue
from fluxqueue.cli import plugin
from fluxqueue.cli.uninstall import command
from fluxqueue.cli.uninstall.command import Uninstaller, UninstallRefused
from fluxqueue.cli.uninstall.installation import find_installation
from fluxqueue.cli.uninstall.options import UninstallOptions
from fluxqueue.kube.wire import Request

SPACE = "fluxqueue-system"
MARK = ("fluxqueue/suspended-by", "webhook")
LABELS = {
    "app.kubernetes.io/name": "fluxqueue",
    "app.kubernetes.io/instance": "fluxqueue",
    "app.kubernetes.io/component": "queue",
    "helm.sh/chart": "fluxqueue-0.1.0",
}
RELEASE = UninstallOptions(release_held=True, yes=True, timeout_s=1)
KEEP = UninstallOptions(release_held=False, yes=True, timeout_s=1)


class Killed(BaseException):
    """The command was killed."""


class MortalApi(MemoryApi):
    """The API server in memory; the command is killed before its n-th write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None

    async def call(self, request: Request, timeout_s: float | None = None, *, tries: int = 1) -> bytes:
        if not request.reads and self.writes_left is not None:
            if self.writes_left == 0:
                raise Killed
            self.writes_left -= 1
        return await super().call(request, timeout_s, tries=tries)


def a_cluster() -> MortalApi:
    """An installation with held work of several kinds, and work that runs."""
    cluster = MortalApi()
    for plural, name in (
        ("mutatingwebhookconfigurations", "fluxqueue-webhook"),
        ("validatingwebhookconfigurations", "fluxqueue-webhook"),
        ("validatingadmissionpolicies", "fluxqueue-jobs"),
        ("validatingadmissionpolicybindings", "fluxqueue-jobs"),
        ("clusterroles", "fluxqueue-queue"),
    ):
        cluster.put(plural, {"metadata": {"name": name, "labels": LABELS}})
    for plural, name in (
        ("deployments", "fluxqueue-queue"),
        ("services", "fluxqueue-queue"),
        ("serviceaccounts", "fluxqueue-queue"),
        ("persistentvolumeclaims", "data-fluxqueue-postgres-0"),
    ):
        cluster.put(plural, {"metadata": {"name": name, "namespace": SPACE, "labels": LABELS}})
    cluster.put("leases", {"metadata": {"name": "fluxqueue-queue", "namespace": SPACE}})
    cluster.put("secrets", {"metadata": {"name": "fluxqueue-webhook-tls", "namespace": SPACE}})
    cluster.put("customresourcedefinitions", {"metadata": {"name": "fluxjobs.jobs.converged-computing.org"}})
    cluster.put("jobs", make_job("waiting").uid("w").suspended().annotation(*MARK).build())
    cluster.put(
        "jobs",
        make_job("flux").suspended().annotation(*MARK).annotation("fluxqueue/minicluster", "true").build(),
    )
    cluster.put("jobs", make_job("running").build())
    cluster.put("pods", make_pod("bare").gate("fluxqueue").build())
    cluster.put("pods", make_pod("bound").gate().on_node("n1").build())
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "waiting", "uid": "w"}
    cluster.put(
        "fluxjobs", {"metadata": {"name": "waiting"}, "spec": {"objectRef": ref, "pods": 1, "jobspec": "{}"}}
    )
    return cluster


async def uninstall(cluster: MemoryApi, options: UninstallOptions = RELEASE) -> str:
    out = io.StringIO()
    installation = await find_installation(cluster.api, options.namespace, options.release)
    await Uninstaller(cluster.api, installation, options, out, settle_s=0, pass_s=0).remove()
    return out.getvalue()


def state_of(cluster: MemoryApi) -> dict[Any, Any]:
    """Return all objects without what changes with each write."""
    return {
        key: {
            **body,
            "metadata": {
                name: value
                for name, value in body["metadata"].items()
                if name not in ("resourceVersion", "uid")
            },
        }
        for key, body in cluster._objects.items()
    }


async def test_released_work_is_plain_and_only_data_and_definitions_are_left() -> None:
    cluster = a_cluster()
    said = await uninstall(cluster)
    left = {(plural, name) for plural, _, name in cluster._objects}
    assert left == {
        ("persistentvolumeclaims", "data-fluxqueue-postgres-0"),
        ("customresourcedefinitions", "fluxjobs.jobs.converged-computing.org"),
        *(("jobs", name) for name in ("waiting", "flux", "running")),
        *(("pods", name) for name in ("bare", "bound")),
    }
    assert not cluster.get("jobs", "waiting")["spec"]["suspend"]
    assert not cluster.get("pods", "bare")["spec"]["schedulingGates"]
    assert "Released 1 Job and 1 pod to plain Kubernetes." in said
    assert "Left: Job default/flux asks for a Flux cluster" in said
    assert "Repeat with --delete-data" in said


async def test_what_could_catch_or_refuse_work_goes_before_held_work_is_released() -> None:
    cluster = a_cluster()
    await uninstall(cluster)
    order = [(write.verb, write.resource) for write in cluster.writes]
    first = order.index(("patch", "jobs"))
    before = [resource for verb, resource in order[:first] if verb == "delete"]
    assert before == [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "deployments",
    ]
    assert order[-1] == ("delete", "serviceaccounts")


@pytest.mark.parametrize("options", [RELEASE, KEEP], ids=["release", "keep"])
async def test_killed_before_any_write_and_repeated_it_comes_to_the_same_end(
    options: UninstallOptions,
) -> None:
    whole = a_cluster()
    await uninstall(whole, options)
    for writes in range(len(whole.writes)):
        cluster = a_cluster()
        cluster.writes_left = writes
        with pytest.raises(Killed):
            await uninstall(cluster, options)
        cluster.writes_left = None
        await uninstall(cluster, options)
        assert state_of(cluster) == state_of(whole), f"killed after {writes} writes"


async def test_kept_work_stays_as_it_is_with_its_fluxjob_and_is_listed() -> None:
    cluster = a_cluster()
    before = cluster.get("jobs", "waiting")
    said = await uninstall(cluster, KEEP)
    assert cluster.get("jobs", "waiting") == before
    assert cluster.get("pods", "bare")["spec"]["schedulingGates"] == [{"name": "fluxqueue"}]
    assert cluster.get("fluxjobs", "waiting") is not None
    assert "Kept 2 Jobs (Job default/waiting, Job default/flux) and 1 other pod (Pod default/bare)" in said
    assert "Released 1 Job and 1 pod" in await uninstall(cluster)
    assert cluster.get("fluxjobs", "waiting") is None


async def test_data_and_definitions_go_where_they_are_asked_for() -> None:
    cluster = a_cluster()
    await uninstall(
        cluster, UninstallOptions(release_held=True, delete_data=True, delete_crds=True, yes=True)
    )
    assert {plural for plural, _, _ in cluster._objects} == {"jobs", "pods"}


async def test_definitions_are_not_deleted_with_miniclusters() -> None:
    cluster = a_cluster()
    cluster.put("miniclusters", make_minicluster("lammps"))
    options = UninstallOptions(release_held=True, delete_crds=True)
    uninstaller = Uninstaller(cluster.api, await find_installation(cluster.api), options)
    with pytest.raises(UninstallRefused, match=r"would delete 1 MiniCluster \(default/lammps\)"):
        await uninstaller.check_miniclusters()


async def test_a_dry_run_writes_nothing_and_says_all() -> None:
    cluster = a_cluster()
    out = io.StringIO()
    options = UninstallOptions(release_held=True, dry_run=True)
    await Uninstaller(cluster.api, await find_installation(cluster.api), options, out).run()
    assert cluster.writes == []
    said = out.getvalue()
    assert "mutatingwebhookconfigurations: fluxqueue-webhook" in said
    assert (
        "Releases 2 held Jobs (Job default/waiting, Job default/flux) and 1 other held pod (Pod "
        "default/bare)."
    ) in said
    assert "Leaves the data: PersistentVolumeClaim fluxqueue-system/data-fluxqueue-postgres-0." in said


async def test_work_that_is_refused_again_and_again_stops_the_command_with_one_sentence() -> None:
    cluster = a_cluster()
    for _ in range(2000):
        cluster.fail_next("patch", "pods", 422, "Invalid", "no")
    with pytest.raises(UninstallRefused, match=r"1 object \(.*\) could not be released within 0.05 s"):
        await uninstall(cluster, UninstallOptions(release_held=True, yes=True, timeout_s=0.05))
    assert cluster.get("serviceaccounts", "fluxqueue-queue", SPACE) is not None


async def test_later_pods_of_running_jobs_are_released_while_it_waits() -> None:
    cluster = a_cluster()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "many", "uid": "m", "controller": True}
    later = make_pod("many-1").gate("fluxqueue").with_("metadata.ownerReferences", [owner])
    label = ("batch.kubernetes.io/controller-uid", "m")
    cluster.put(
        "jobs",
        make_job("many")
        .uid("m")
        .with_("spec.template.spec.schedulingGates", [{"name": "fluxqueue"}])
        .build(),
    )
    cluster.put(
        "pods",
        make_pod("many-0").on_node("n1").label(*label).with_("metadata.ownerReferences", [owner]).build(),
    )
    assert "1 running Job (Job default/many): a running Job's pod template cannot change" in await uninstall(
        cluster
    )
    out = io.StringIO()
    options = UninstallOptions(release_held=True, yes=True, wait_s=60)
    waiting = asyncio.create_task(
        Uninstaller(
            cluster.api, await find_installation(cluster.api), options, out, settle_s=0, pass_s=0.001
        ).remove()
    )
    async with asyncio.timeout(60):
        while "Waiting for 1 running Job (Job default/many)" not in out.getvalue():
            await asyncio.sleep(0.001)
        cluster.put("pods", later.build())
        while cluster.get("pods", "many-1")["spec"]["schedulingGates"]:
            await asyncio.sleep(0.001)
        cluster.put(
            "jobs",
            {
                **cluster.get("jobs", "many"),
                "status": {"conditions": [{"type": "Complete", "status": "True"}]},
            },
        )
        await waiting
    assert "cannot change" not in out.getvalue()


@pytest.mark.parametrize(
    "entry",
    [lambda argv: fluxqueue.main(argv), lambda argv: plugin.main(argv)],
    ids=["fluxqueue", "kubectl fluxqueue"],
)
def test_held_work_is_decided_on_the_command_line(
    entry: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        entry(["uninstall"])
    assert caught.value.code == 1
    assert "--release-held" in capsys.readouterr().err


def test_without_a_terminal_it_asks_for_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    uninstaller = Uninstaller(a_cluster().api, None, UninstallOptions(release_held=True))  # type: ignore[arg-type]  # not used
    with pytest.raises(UninstallRefused, match="give --yes, or --dry-run"):
        uninstaller._confirm()


def test_without_a_cluster_it_says_so_in_one_sentence(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert command.main(["--release-held", "--yes"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
