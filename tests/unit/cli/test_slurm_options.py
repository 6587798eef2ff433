from __future__ import annotations

import pytest

from fluxqueue.cli.slurm_options import (
    FLAGS_REFUSED,
    OF_SACCT,
    OF_SCANCEL,
    OF_SLURM,
    OF_SQUEUE,
    READ,
    REFUSED,
    REMARKED,
)


def test_each_option_has_one_meaning() -> None:
    tables = (READ, REFUSED, REMARKED, FLAGS_REFUSED)
    named = [name for table in tables for name in table]
    assert len(named) == len(set(named))
    shorts = [
        *READ.values(),
        *(short for table in (REFUSED, REMARKED, FLAGS_REFUSED) for short, _ in table.values()),
    ]
    used = [short for short in shorts if short is not None]
    assert len(used) == len(set(used))


@pytest.mark.parametrize(
    "table", [OF_SLURM, OF_SQUEUE, OF_SCANCEL, OF_SACCT], ids=["sbatch", "squeue", "scancel", "sacct"]
)
def test_what_is_typed_is_told_what_to_type_instead_and_no_line_of_a_script(table: dict[str, str]) -> None:
    assert [
        option
        for option, text in table.items()
        if not option.startswith("-") or not text or "the line" in text
    ] == []
