from __future__ import annotations

import hashlib
import re

import pytest

from fluxqueue.api.fluxjobs import (
    FluxJob,
    FluxJobSpec,
    ObjectRef,
    fluxjob_name,
    fluxjob_names,
    is_named_for_its_object,
)
from fluxqueue.api.metadata import ObjectMeta

UID = "2f3ba0c4-8a16-4a3e-9c1d-0d9a4a7b5e11"


def test_a_fluxjob_is_named_for_its_object_with_ten_characters_of_its_uids_hash() -> None:
    assert fluxjob_name("Job", "lammps", UID) == f"job-lammps-{hashlib.sha256(UID.encode()).hexdigest()[:10]}"


@pytest.mark.parametrize("name", ["lammps", "x" * 63, "a.b.c", "trailing-", "9" * 200])
def test_each_name_it_may_have_is_a_label_that_ends_in_the_hash(name: str) -> None:
    digest = hashlib.sha256(UID.encode()).hexdigest()
    for found, digits in zip(fluxjob_names("Job", name, UID), (10, 20, 40, 5), strict=True):
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", found)
        assert found.endswith(f"-{digest[:digits]}")


def test_a_hundred_thousand_objects_of_one_name_have_a_hundred_thousand_names() -> None:
    """With five characters of the hash some four thousand of them would have shared one."""
    uids = (f"{number:08x}-8a16-4a3e-9c1d-0d9a4a7b5e11" for number in range(100_000))
    assert len({fluxjob_name("Job", "lammps", uid) for uid in uids}) == 100_000


def test_a_long_name_is_cut_and_its_hash_is_not() -> None:
    assert fluxjob_name("Job", "x" * 80, UID, within=30).endswith(fluxjob_name("Job", "x", UID)[-11:])
    assert len(fluxjob_name("Job", "x" * 80, UID, within=30)) == 30


@pytest.mark.parametrize(
    ("called", "ours"),
    [*((name, True) for name in fluxjob_names("Job", "a", UID)), ("mine", False), ("job-a", False)],
)
def test_a_fluxjob_that_names_an_object_under_another_name_is_somebody_elses(called: str, ours: bool) -> None:
    spec = FluxJobSpec(object_ref=ObjectRef(kind="Job", name="a", uid=UID))
    assert is_named_for_its_object(FluxJob(metadata=ObjectMeta(name=called), spec=spec)) is ours
