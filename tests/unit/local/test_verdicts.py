import msgspec
import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef
from fluxqueue.api.metadata import ObjectCondition, ObjectMeta, OwnerReference
from fluxqueue.api.pods import Pod, PodSpec, PodStatus
from fluxqueue.fluxion.messages import JobInfo, JobMode, NodeShare
from fluxqueue.local.announced_starts import StartExpectations
from fluxqueue.local.verdicts import (
    AppliedExample,
    NamespaceSnapshot,
    Row,
    bound_by,
    bound_by_another,
    differences,
    leftovers,
    notes_on,
    rows_of,
    settled,
)

LAMMPS = AppliedExample("Job", "lammps", "uid-job")
WEB = AppliedExample("Deployment", "web", "uid-deployment", replicas=2)
NEVER = AppliedExample("Job", "never", "uid-never", expects="Unsatisfiable")


def fluxjob(uid: str = "uid-job", pods: int = 2, **status: object) -> FluxJob:
    done = {
        "state": "Completed",
        "outcome": "Succeeded",
        "nodes": "n[1-2]",
        "allocatedAt": "2026-03-02T12:00:10Z",
        **status,
    }
    return FluxJob(
        metadata=ObjectMeta(name=f"fj-{uid}"),
        spec=FluxJobSpec(object_ref=ObjectRef(uid=uid), pods=pods),
        status=msgspec.convert(done, FluxJobStatus),
    )


def pod(
    name: str,
    node: str | None,
    *,
    index: int | None = None,
    owner: str = "uid-job",
    bound: str = "2026-03-02T12:00:10Z",
    phase: str = "Succeeded",
    created: str = "2026-03-02T12:00:00Z",
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            creation_timestamp=created,
            annotations=None if index is None else {"batch.kubernetes.io/job-completion-index": str(index)},
            owner_references=[OwnerReference(kind="Job", uid=owner, controller=True)] if owner else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            conditions=[ObjectCondition(type="PodScheduled", status="True", last_transition_time=bound)],
        ),
    )


RIGHT = (pod("a", "n1", index=0), pod("b", "n2", index=1))


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        pytest.param(Row(LAMMPS, fluxjob(), RIGHT), [], id="all well"),
        pytest.param(Row(LAMMPS, None), ["job/lammps has no FluxJob"], id="never taken in"),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n2", index=0), pod("b", "n1", index=1))),
            ["job/lammps: Fluxion chose n[1-2], the pods ran on n[2,1]"],
            id="ranks swapped",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n2"), pod("b", "n1"))),
            [],
            id="pods without an index may come in any order",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n1"), pod("b", "n1"))),
            ["job/lammps: Fluxion chose n[1-2], the pods ran on n1 (2)"],
            id="another node",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n1", index=0, bound="2026-03-02T12:00:09Z"), RIGHT[1])),
            ["job/lammps: pod a was bound at 12:00:09, all of it was allocated at 12:00:10"],
            id="too early",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(nodes="n1"), (RIGHT[0],)),
            ["job/lammps asked for 2 pods, but its allocation 'n1' has 1 slots"],
            id="part of a group",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(state="Failed", reason="BindFailed", message="x"), RIGHT),
            ["job/lammps should be Completed, but is Failed (BindFailed: x)"],
            id="failed",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(outcome="Unknown"), RIGHT),
            ["job/lammps ended as Unknown"],
            id="nobody knows how it ended",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(allocatedAt=None), RIGHT),
            ["job/lammps: its time of allocation is missing"],
            id="no time",
        ),
        pytest.param(
            Row(
                WEB,
                fluxjob(pods=1, state="Running", outcome="", nodes="n1"),
                (pod("w", "n1", phase="Running"),),
            ),
            [],
            id="a pod of a Deployment",
        ),
        pytest.param(
            Row(NEVER, fluxjob(state="Pending", reason="Unsatisfiable", nodes="", outcome="")),
            [],
            id="impossible, as expected",
        ),
        pytest.param(
            Row(
                NEVER,
                fluxjob(state="Pending", reason="WaitingForNodes", message="busy", nodes="", outcome=""),
            ),
            ["job/never should wait as Unsatisfiable, but is Pending (WaitingForNodes: busy)"],
            id="impossible, but not known to be",
        ),
        pytest.param(
            Row(
                NEVER,
                fluxjob(state="Pending", reason="Unsatisfiable", nodes="", outcome=""),
                (pod("x", "n1"),),
            ),
            ["job/never can never start, but pod x is on n1"],
            id="impossible, but it runs",
        ),
    ],
)
def test_names_each_difference(row: Row, wrong: list[str]) -> None:
    assert differences(row) == wrong


def test_an_object_has_the_name_that_the_queue_shows() -> None:
    flux = AppliedExample("MiniCluster", "flux", "uid-job")
    assert Row(flux, None).title == "minicluster/flux"
    named = fluxjob()
    spec = msgspec.structs.replace(named.spec, object_ref=ObjectRef(kind="Job", name="flux", uid="uid-job"))
    assert Row(flux, msgspec.structs.replace(named, spec=spec)).title == "job/flux"


def test_what_a_node_says_of_pods_that_ended_well_is_told_once() -> None:
    stand_in = msgspec.structs.replace(
        RIGHT[0], status=PodStatus(phase="Succeeded", message="There is no flux")
    )
    failed = msgspec.structs.replace(RIGHT[1], status=PodStatus(phase="Failed", message="It was evicted"))
    assert notes_on(
        [Row(LAMMPS, fluxjob(), (stand_in, stand_in, failed)), Row(LAMMPS, fluxjob(), RIGHT)]
    ) == ["job/lammps: There is no flux"]


def test_finds_the_pods_of_jobs_bare_pods_and_deployments() -> None:
    probe = AppliedExample("Pod", "probe", "uid-probe")
    seen = NamespaceSnapshot(
        (fluxjob(), fluxjob("uid-probe", 1), fluxjob("uid-web-a", 1)),
        (
            RIGHT[1],
            RIGHT[0],
            pod("probe", "n1", owner=""),
            pod("web-a", "n1", owner="uid-set"),
            pod("web-b", None, owner="uid-set"),
        ),
        {"uid-set": "uid-deployment"},
    )
    found = [
        (row.example.name, row.fluxjob and row.fluxjob.metadata.name, [one.metadata.name for one in row.pods])
        for row in rows_of([LAMMPS, probe, WEB, NEVER], seen)
    ]
    assert found == [
        ("lammps", "fj-uid-job", ["a", "b"]),
        ("probe", "fj-uid-probe", ["probe"]),
        ("web", "fj-uid-web-a", ["web-a"]),
        ("web", None, ["web-b"]),
        ("never", None, []),
    ]


def test_of_several_pods_of_a_rank_the_newest_counts() -> None:
    old, new = pod("old", "n9", index=0, created="2026-03-02T11:00:00Z"), pod("new", "n1", index=0)
    (row,) = rows_of([LAMMPS], NamespaceSnapshot((), (new, old)))
    assert row.ran_on == ["n1"]


@pytest.mark.parametrize(
    ("rows", "done"),
    [
        pytest.param([Row(LAMMPS, fluxjob(), RIGHT)], True, id="ended"),
        pytest.param([Row(LAMMPS, fluxjob(state="Running"), RIGHT)], False, id="a Job that runs"),
        pytest.param([Row(LAMMPS, None)], False, id="no FluxJob yet"),
        pytest.param([Row(NEVER, fluxjob(state="Pending", reason="Unsatisfiable"))], True, id="never starts"),
        pytest.param(
            [Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Running"),))] * 2,
            True,
            id="all replicas run",
        ),
        pytest.param(
            [Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Running"),))],
            False,
            id="a replica is missing",
        ),
        pytest.param(
            [Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Pending"),))] * 2,
            False,
            id="a replica does not run yet",
        ),
    ],
)
def test_knows_when_there_is_nothing_more_to_wait_for(rows: list[Row], done: bool) -> None:
    assert settled(rows) is done


def test_knows_the_scheduler_of_each_pod_that_is_bound() -> None:
    named = {"ours": "FluxionScheduler", "theirs": "default-scheduler", "waiting": "default-scheduler"}
    pods = [pod(name, None if name == "waiting" else "n1") for name in named]
    pods = [
        msgspec.structs.replace(
            each, spec=msgspec.structs.replace(each.spec, scheduler_name=named[each.metadata.name])
        )
        for each in pods
    ]
    row = Row(LAMMPS, fluxjob(), tuple(pods))
    assert bound_by([row]) == {"FluxionScheduler": 1, "default-scheduler": 1}
    (wrong,) = bound_by_another(row, "FluxionScheduler")
    assert (
        wrong
        == "job/lammps: pod theirs should have been bound by FluxionScheduler, but was by default-scheduler"
    )


def test_names_what_is_left_but_not_what_others_have() -> None:
    jobs = [
        JobInfo(1, JobMode.ALLOCATED, shares=(NodeShare("n1"), NodeShare("n2"))),
        JobInfo(2, JobMode.SYSTEM, shares=(NodeShare("n3"),)),
    ]
    assert leftovers(jobs, [fluxjob()]) == [
        "Fluxion still holds job 1 (allocated) on n[1-2]",
        "FluxJob fj-uid-job is still there (Completed)",
    ]


BIG = AppliedExample("Job", "big", "uid-big", reserved=True)
FILLER = AppliedExample("Job", "filler", "uid-filler", ahead_of="big")
ANNOUNCED = {"reservedAt": "2026-03-02T12:00:20Z", "etaFirst": "2026-03-02T12:00:20Z"}


def waits(example: AppliedExample, **announced: str) -> Row:
    return Row(
        example, fluxjob(example.uid, 2, state="Pending", outcome="", nodes="", allocatedAt=None, **announced)
    )


def began(example: AppliedExample, at: str) -> Row:
    return Row(example, fluxjob(example.uid, state="Running", allocatedAt=f"2026-03-02T12:{at}Z"))


@pytest.mark.parametrize(
    ("announced", "big", "filler", "wrong"),
    [
        pytest.param(ANNOUNCED, "00:18", "00:05", [], id="kept"),
        pytest.param(ANNOUNCED, "00:50", "00:05", [], id="late on a busy machine"),
        pytest.param(
            ANNOUNCED,
            "00:51",
            "00:05",
            [
                (
                    "job/big had nodes reserved from 12:00:20 on, was expected to start at 12:00:20 at the "
                    "latest, but started at 12:00:51"
                )
            ],
            id="late",
        ),
        pytest.param(
            {},
            "00:18",
            "00:05",
            ["job/big should have had nodes reserved while it waited, and had none"],
            id="none",
        ),
        pytest.param(
            ANNOUNCED,
            "00:18",
            "00:18",
            ["job/filler should have been backfilled ahead of job/big, and was not"],
            id="behind",
        ),
    ],
)
def test_the_first_announced_start_must_come_true(
    announced: dict[str, str], big: str, filler: str, wrong: list[str]
) -> None:
    expectations = StartExpectations()
    expectations.record([waits(BIG, **announced), waits(FILLER)])
    if announced:
        expectations.record([waits(BIG, reservedAt="2026-03-02T12:09:00Z", etaFirst="2026-03-02T12:09:00Z")])
    rows = [began(BIG, big), began(FILLER, filler)]
    assert expectations.broken(rows) == wrong


@pytest.mark.parametrize(("at", "late_s"), [("00:18", 0), ("00:21", 0), ("00:31", 10)])
def test_it_is_said_by_how_much_a_start_was_late(at: str, late_s: float) -> None:
    expectations = StartExpectations()
    expectations.record([waits(BIG, **ANNOUNCED)])
    assert expectations.late_s([began(BIG, at)]) == late_s


def test_starts_that_came_true_are_listed_with_their_times() -> None:
    expectations = StartExpectations()
    expectations.record([waits(BIG, **ANNOUNCED)])
    first, second = expectations.kept([began(BIG, "00:18"), began(FILLER, "00:05")])
    assert first == (
        "job/big had nodes reserved from 12:00:20 on, "
        "was expected to start at 12:00:20 at the latest and started at 12:00:18"
    )
    assert second == "job/filler was applied after job/big and started 13 s before it, in a gap"


def test_an_indexed_pod_that_ran_counts_after_it_was_deleted() -> None:
    waiting = pod("c", None, index=2)
    seen = NamespaceSnapshot(pods=RIGHT[:1]).with_deleted(
        NamespaceSnapshot(pods=(*RIGHT, waiting, pod("d", "n4")))
    )
    assert seen.pods == RIGHT
    (row,) = rows_of([LAMMPS], NamespaceSnapshot((fluxjob(),), seen.pods))
    assert differences(row) == []


def test_a_job_that_started_with_fewer_pods_has_others_on_nodes_of_their_own() -> None:
    small = fluxjob(pods=4)
    moldable = msgspec.structs.replace(small.spec, jobspec='{"attributes":{"user":{"minPods":2}}}')
    pods = (*RIGHT, pod("c", "n8", index=2), pod("d", "n9", index=3))
    assert differences(Row(LAMMPS, msgspec.structs.replace(small, spec=moldable), pods)) == []
    assert len(differences(Row(LAMMPS, small, pods))) == 2
