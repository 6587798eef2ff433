"""docs/slurm.md and docs/flux.md have a row for everything that people type in a week,
and the commands of their right columns are ours.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fluxqueue.cli.plugin import VERBS, plugin_parser, split_words
from fluxqueue.cli.usage_errors import _OF_OTHERS

DOCS = Path(__file__).parents[3] / "docs"
SLURM, FLUX = (DOCS / "slurm.md").read_text(), (DOCS / "flux.md").read_text()
TYPED = [
    *(
        "sbatch",
        "srun",
        "salloc",
        "sattach",
        "scancel",
        "squeue --me",
        "squeue -u",
        "squeue --start",
        "sinfo",
        "sacct",
        "sstat",
        "seff",
    ),
    *(
        "scontrol show job",
        "scontrol hold",
        "scontrol requeue",
        "scontrol suspend",
        "scrontab",
        "sdiag",
        "sprio",
        "sshare",
        "sreport",
    ),
    *(
        "--array",
        "--output",
        "--error",
        "--mail-type",
        "--licenses",
        "--dependency",
        "--begin",
        "--time",
        "--mem",
        "--gres",
        "--exclusive",
    ),
    *("--wrap", "--test-only", "--parsable", "--wait", "--chdir", "--pty", "module load", "mpirun"),
    *(
        "SLURM_ARRAY_TASK_ID",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_CPUS_PER_TASK",
    ),
]
COMMANDS = sorted(set(re.findall(r"`(kubectl fluxqueue [^`]+)`", SLURM + FLUX)))


def left_cells(page: str) -> str:
    return "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| "))


@pytest.mark.parametrize("word", TYPED)
def test_what_is_typed_in_a_week_has_a_row(word: str) -> None:
    assert word in left_cells(SLURM)


@pytest.mark.parametrize(
    "word", sorted(word for word in _OF_OTHERS if word.startswith("s") and word != "ssh")
)
def test_each_command_of_slurm_that_the_plugin_knows_is_on_the_page(word: str) -> None:
    assert re.search(rf"`{word}\b", SLURM)


@pytest.mark.parametrize(
    "word",
    [
        "flux submit",
        "flux run",
        "flux batch",
        "flux jobs",
        "flux cancel",
        "flux job attach",
        "flux exec",
        "flux top",
    ],
)
def test_each_command_of_flux_has_a_row(word: str) -> None:
    assert word in left_cells(FLUX)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_to_be_typed_here_is_understood(command: str) -> None:
    words = shlex.split(command.partition(" > ")[0])[2:]
    if len(words) == 1:
        assert words[0] in VERBS
        return
    own, _ = split_words(words)
    assert plugin_parser(own).parse_args(own).command in VERBS
