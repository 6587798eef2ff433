import argparse

import pytest

from fluxqueue.cli.arrays import TaskArray, read_array


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-99", TaskArray(100)),
        ("0-99%10", TaskArray(100, 10)),
        ("0-0", TaskArray(1)),
        ("0-3%9", TaskArray(4)),
    ],
)
def test_ranges_of_slurm_are_read(text: str, array: TaskArray) -> None:
    assert read_array(text) == array


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,3,5", "'1,3,5' is no array: write 0-99, or 0-99%10 for ten at once"),
        ("0-9:2", "lists and steps are not offered"),
        ("7", "is no array"),
        ("1-100", "tasks are numbered from 0: write 0-99, and add 1 to JOB_COMPLETION_INDEX"),
        ("0-9%0", "at least one runs at once"),
        ("0-100000", "1 to 100000 tasks"),
    ],
)
def test_other_arrays_are_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        read_array(text)
    assert message in str(refused.value)
