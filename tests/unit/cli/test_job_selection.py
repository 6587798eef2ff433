import argparse
from datetime import UTC, datetime, timedelta

import pytest
from support.plugin_server import PluginServer, fluxjob, fluxjobs_path

from fluxqueue.api.metadata import ObjectMeta, OwnerReference, PartialObjectMetadata
from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.cli.job_selection import WorkloadSelection, is_called, labelled_uids, read_states


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        pytest.param(WorkloadSelection(), True, id="all"),
        pytest.param(WorkloadSelection(queue="default"), True, id="its queue"),
        pytest.param(WorkloadSelection(queue="night"), False, id="another queue"),
        pytest.param(
            WorkloadSelection(states=frozenset({"pending"})),
            True,
            id="pending includes what nobody has looked at",
        ),
        pytest.param(WorkloadSelection(states=frozenset({"running"})), False, id="another state"),
        pytest.param(WorkloadSelection(names=("job/lammps",)), True, id="its name"),
        pytest.param(WorkloadSelection(names=("other",)), False, id="another name"),
        pytest.param(
            WorkloadSelection(since=datetime(2026, 3, 2, tzinfo=UTC)),
            True,
            id="what has not ended is of any time",
        ),
    ],
)
def test_selects_by_name_queue_state_and_time(selection: WorkloadSelection, taken: bool) -> None:
    assert selection.takes(fluxjob()) is taken


def test_since_leaves_out_what_ended_before() -> None:
    ended = fluxjob(state="Completed", finishedAt="2026-03-02T11:00:00Z")
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    assert not WorkloadSelection(since=noon).takes(ended)
    assert WorkloadSelection(since=noon - timedelta(hours=2)).takes(ended)


@pytest.mark.parametrize(
    "name", ["lammps", "job/lammps", "jobs/lammps", "fj/job-lammps-1a2b3", "job-lammps-1a2b3"]
)
def test_a_fluxjob_has_the_names_of_its_object(name: str) -> None:
    assert is_called(fluxjob(), name)
    assert not is_called(fluxjob(), f"{name}x")


def meta(uid: str, owner: str = "") -> PartialObjectMetadata:
    owners = [OwnerReference(kind="Job", uid=owner, controller=True)] if owner else None
    return PartialObjectMetadata(metadata=ObjectMeta(uid=uid, owner_references=owners))


def test_labels_are_those_of_the_fluxjob_of_its_object_and_of_its_pods() -> None:
    server = PluginServer()
    server.has(f"{fluxjobs_path()}?app=md", meta("fj-one"))
    server.has("/apis/batch/v1/namespaces/default/jobs?app=md", meta("two"))
    server.has("/api/v1/namespaces/default/pods?app=md", meta("four"), meta("p", owner="three"))
    has_labels = labelled_uids(server.client, "default", "app=md")
    assert [has_labels(fluxjob(name)) for name in ("one", "two", "three", "four", "five")] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_a_kind_that_may_not_be_listed_selects_nothing() -> None:
    server = PluginServer().has(fluxjobs_path(), meta("fj-one"))
    server.objects["/apis/batch/v1/namespaces/default/jobs"] = {"metadata": {}, "items": None}
    server.refusals["/pods"] = ApiRefused(403, "Forbidden", "no")
    assert labelled_uids(server.client, "default", "app=md")(fluxjob("one"))
    server.refusals["/pods"] = ApiRefused(400, "BadRequest", "unable to parse")
    with pytest.raises(ApiRefused, match="unable to parse"):
        labelled_uids(server.client, "default", "app=md")


def test_reads_states() -> None:
    assert read_states("running, Pending") == {"running", "pending"}
    with pytest.raises(argparse.ArgumentTypeError, match="asleep is not a state"):
        read_states("running,asleep")
