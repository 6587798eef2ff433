import msgspec
import pytest

from fluxqueue.api.fluxjobs import FluxJob, FluxJobSpec, FluxJobStatus, ObjectRef
from fluxqueue.api.objects import ObjectCondition, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from fluxqueue.fluxion.messages import JobInfo, Mode, NodeShare
from fluxqueue.local.verdicts import Applied, Promises, Row, Seen, differences, leftovers, rows_of, settled

LAMMPS = Applied("Job", "lammps", "uid-job")
WEB = Applied("Deployment", "web", "uid-deployment", replicas=2)
NEVER = Applied("Job", "never", "uid-never", expects="Unsatisfiable")


def fluxjob(uid: str = "uid-job", pods: int = 2, **status: object) -> FluxJob:
    done = {"state": "Completed", "outcome": "Succeeded", "nodes": "n[1-2]", "allocatedAt": "2026-03-02T12:00:10Z", **status}
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
        status=PodStatus(phase=phase, conditions=[ObjectCondition(type="PodScheduled", status="True", last_transition_time=bound)]),
    )


RIGHT = (pod("a", "n1", index=0), pod("b", "n2", index=1))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param(Row(LAMMPS, fluxjob(), RIGHT), [], id="all well"),
        pytest.param(Row(LAMMPS, None), ["job/lammps has no FluxJob"], id="never taken in"),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n2", index=0), pod("b", "n1", index=1))),
            ["job/lammps: Fluxion chose n[1-2], the pods ran on n[2,1]"],
            id="ranks swapped",
        ),
        pytest.param(Row(LAMMPS, fluxjob(), (pod("a", "n2"), pod("b", "n1"))), [], id="pods without an index may come in any order"),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n1"), pod("b", "n1"))),
            ["job/lammps: Fluxion chose n[1-2], the pods ran on n[1,1]"],
            id="another node",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(), (pod("a", "n1", index=0, bound="2026-03-02T12:00:09Z"), RIGHT[1])),
            ["job/lammps: pod a was bound at 12:00:09, all of it was allocated at 12:00:10"],
            id="too early",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(nodes="n1"), (RIGHT[0],)),
            ["job/lammps asked for 2 pods, but its allocation 'n1' has 1 places"],
            id="part of a group",
        ),
        pytest.param(
            Row(LAMMPS, fluxjob(state="Failed", reason="BindFailed", message="x"), RIGHT),
            ["job/lammps should be Completed, but is Failed (BindFailed: x)"],
            id="failed",
        ),
        pytest.param(Row(LAMMPS, fluxjob(outcome="Unknown"), RIGHT), ["job/lammps ended as Unknown"], id="nobody knows how it ended"),
        pytest.param(Row(LAMMPS, fluxjob(allocatedAt=None), RIGHT), ["job/lammps: nothing says when it was allocated"], id="no time"),
        pytest.param(
            Row(WEB, fluxjob(pods=1, state="Running", outcome="", nodes="n1"), (pod("w", "n1", phase="Running"),)),
            [],
            id="a pod of a Deployment",
        ),
        pytest.param(
            Row(NEVER, fluxjob(state="Pending", reason="Unsatisfiable", nodes="", outcome="")), [], id="impossible, as it should be"
        ),
        pytest.param(
            Row(NEVER, fluxjob(state="Pending", reason="WaitingForNodes", message="busy", nodes="", outcome="")),
            ["job/never should wait as Unsatisfiable, but is Pending (WaitingForNodes: busy)"],
            id="impossible, but not known to be",
        ),
        pytest.param(
            Row(NEVER, fluxjob(state="Pending", reason="Unsatisfiable", nodes="", outcome=""), (pod("x", "n1"),)),
            ["job/never can never start, but pod x is on n1"],
            id="impossible, but it runs",
        ),
    ],
)
def test_says_what_is_not_as_it_should_be(row: Row, said: list[str]) -> None:
    assert differences(row) == said


def test_finds_the_pods_of_jobs_bare_pods_and_deployments() -> None:
    probe = Applied("Pod", "probe", "uid-probe")
    seen = Seen(
        (fluxjob(), fluxjob("uid-probe", 1), fluxjob("uid-web-a", 1)),
        (RIGHT[1], RIGHT[0], pod("probe", "n1", owner=""), pod("web-a", "n1", owner="uid-set"), pod("web-b", None, owner="uid-set")),
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
    (row,) = rows_of([LAMMPS], Seen((), (new, old)))
    assert row.ran_on == ["n1"]


@pytest.mark.parametrize(
    ("rows", "done"),
    [
        pytest.param([Row(LAMMPS, fluxjob(), RIGHT)], True, id="ended"),
        pytest.param([Row(LAMMPS, fluxjob(state="Running"), RIGHT)], False, id="a Job that runs"),
        pytest.param([Row(LAMMPS, None)], False, id="no FluxJob yet"),
        pytest.param([Row(NEVER, fluxjob(state="Pending", reason="Unsatisfiable"))], True, id="never starts"),
        pytest.param([Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Running"),))] * 2, True, id="all replicas run"),
        pytest.param([Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Running"),))], False, id="a replica is missing"),
        pytest.param([Row(WEB, fluxjob(state="Running"), (pod("w", "n1", phase="Pending"),))] * 2, False, id="a replica does not run yet"),
    ],
)
def test_knows_when_there_is_nothing_more_to_wait_for(rows: list[Row], done: bool) -> None:
    assert settled(rows) is done


def test_names_what_is_left_but_not_what_others_have() -> None:
    jobs = [JobInfo(1, Mode.ALLOCATED, shares=(NodeShare("n1"), NodeShare("n2"))), JobInfo(2, Mode.SYSTEM, shares=(NodeShare("n3"),))]
    assert leftovers(jobs, [fluxjob()]) == [
        "Fluxion still holds job 1 (allocated) on n[1-2]",
        "FluxJob fj-uid-job is still there (Completed)",
    ]


BIG = Applied("Job", "big", "uid-big", reserved=True)
FILLER = Applied("Job", "filler", "uid-filler", ahead_of="big")
TOLD = {"reservedAt": "2026-03-02T12:00:20Z", "etaFirst": "2026-03-02T12:00:20Z"}


def waits(example: Applied, **told: str) -> Row:
    return Row(example, fluxjob(example.uid, 2, state="Pending", outcome="", nodes="", allocatedAt=None, **told))


def began(example: Applied, at: str) -> Row:
    return Row(example, fluxjob(example.uid, state="Running", allocatedAt=f"2026-03-02T12:{at}Z"))


@pytest.mark.parametrize(
    ("told", "big", "filler", "said"),
    [
        pytest.param(TOLD, "00:18", "00:05", [], id="kept"),
        pytest.param(TOLD, "00:21", "00:05", [], id="within the second that times are told in"),
        pytest.param(
            TOLD,
            "00:22",
            "00:05",
            ["job/big had nodes reserved from 12:00:20 on, was told to start at 12:00:20 at the latest, but started at 12:00:22"],
            id="late",
        ),
        pytest.param({}, "00:18", "00:05", ["job/big should have had nodes reserved while it waited, and had none"], id="none"),
        pytest.param(TOLD, "00:18", "00:18", ["job/filler should have been backfilled ahead of job/big, and was not"], id="behind"),
    ],
)
def test_what_was_promised_first_must_come_true(told: dict[str, str], big: str, filler: str, said: list[str]) -> None:
    promises = Promises()
    promises.note([waits(BIG, **told), waits(FILLER)])
    if told:
        promises.note([waits(BIG, reservedAt="2026-03-02T12:09:00Z", etaFirst="2026-03-02T12:09:00Z")])
    rows = [began(BIG, big), began(FILLER, filler)]
    assert promises.broken(rows) == said


def test_promises_kept_are_told_with_their_times() -> None:
    promises = Promises()
    promises.note([waits(BIG, **TOLD)])
    first, second = promises.kept([began(BIG, "00:18"), began(FILLER, "00:05")])
    assert first == "job/big had nodes reserved from 12:00:20 on, was told to start at 12:00:20 at the latest and started at 12:00:18"
    assert second == "job/filler was applied after job/big and started 13 s before it, in a gap"
