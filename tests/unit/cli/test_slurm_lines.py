import shlex
from typing import Any

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.arrays import TaskArray
from fluxqueue.cli.slurm_lines import SlurmLine, SlurmRequest, read_slurm_lines


def read(*lines: str) -> SlurmRequest:
    return read_slurm_lines(
        [SlurmLine(number, tuple(shlex.split(line))) for number, line in enumerate(lines, 2)], "md.sh"
    )


def test_the_lines_of_an_ordinary_script_are_read() -> None:
    found = read(
        "--job-name=My_MD",
        "-N 4 --ntasks-per-node=2",
        "-c 8",
        "--mem=64G",
        "--gres=gpu:4",
        "-t 1-00:00:00",
        "-p night",
        "--exclusive",
    )
    assert found == SlurmRequest(
        {
            "nodes": 4,
            "pods": 8,
            "cpus": "8",
            "memory": "32Gi",
            "gpus": 2,
            "time": "86400s",
            "queue": "night",
            "exclusive": "true",
        },
        "my-md",
    )


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("-n 64", {"pods": 64}),
        ("-N2", {"nodes": 2}),
        ("--array=0-99%10", {"array": TaskArray(100, 10)}),
        ("--nodes=2-2", {"nodes": 2}),
        ("-n 8 --ntasks-per-node=4", {"nodes": 2, "pods": 8}),
        ("--ntasks-per-node=4", {"nodes": 1, "pods": 4}),
        ("--mem=4000", {"memory": "4000Mi"}),
        ("--mem=4G", {"memory": "4Gi"}),
        ("--mem-per-cpu=500M -c 4", {"cpus": "4", "memory": "2000Mi"}),
        ("-n 4 --mem-per-cpu=2gb", {"pods": 4, "memory": "2Gi"}),
        ("-n 4 -G 8", {"pods": 4, "gpus": 2}),
        ("--gpus-per-task=1 -n 3", {"pods": 3, "gpus": 1}),
        ("-N 2 --gpus-per-node=4", {"nodes": 2, "gpus": 4}),
        ("--gres=gpu", {"gpus": 1}),
        ("--time=30", {"time": "30m"}),
        ("--begin=now+2hours", {"begin": "+2h"}),
        ("--begin=now+1week", {"begin": "+7d"}),
        ("--begin=now+90", {"begin": "+90s"}),
        ("--begin=now", {}),
        ("--deadline=2026-12-24T18:00:00Z", {"deadline": "2026-12-24T18:00:00Z"}),
        ("--export=NONE", {}),
        ("--export=A=1,B=x", {"env": [("A", "1"), ("B", "x")]}),
        (
            "--container-image=example/md --priority 5 --reservation=lab --requeue",
            {"image": "example/md", "priority": 5, "reservation": "lab"},
        ),
    ],
)
def test_common_options_are_read_as_those_of_submit(line: str, options: dict[str, Any]) -> None:
    assert read(line).options == options


def test_where_output_goes_is_remarked_upon() -> None:
    found = read("-o out-%j.txt", "--error=err.txt")
    assert found.options == {}
    assert found.remarks == (
        "line 2 of md.sh: #SBATCH --output has no effect: what pods print is read by kubectl fluxqueue logs",
        "line 3 of md.sh: #SBATCH --error has no effect: what pods print is read by kubectl fluxqueue logs",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-A physics", "--account is not offered: the account follows from the namespace"),
        ("--mail-type=END", "--mail-type is not offered: no mail is sent: remove the line"),
        (
            "-d afterok:123",
            "--dependency is not offered: names take the place of job ids: write #FQ --after ok:job/NAME",
        ),
        (
            "-C haswell",
            "--constraint is not offered: write it into the Job that submit --dry-run -o yaml prints",
        ),
        ("-H", "--hold is not offered: hold it afterwards"),
        ("--nodes=2-8", "--nodes: '2-8': a range of nodes is the annotation fluxqueue/min-pods"),
        ("-N many", "--nodes: 'many' is no whole number from 1 on"),
        ("-n 0", "--ntasks: '0' is no whole number from 1 on"),
        ("--mem=0", "--mem: 0 is all memory of a node for Slurm"),
        ("--mem=lots", "--mem: 'lots' is no size: write 4000"),
        (
            "-n 8 --mem=4G",
            (
                "--mem: it counts for a node, and how many of the 8 tasks share one is not said: "
                "write --nodes too, or --mem-per-cpu"
            ),
        ),
        ("-N 1 -n 3 --gres=gpu:4", "--gres: 4 GPUs cannot be divided among 3 tasks"),
        (
            "--gres=gpu:a100:2",
            (
                "--gres: 'gpu:a100:2': a kind of GPU is a resource of its own: "
                "write #FQ -g 2 --gpu-resource NAME"
            ),
        ),
        ("--gres=lustre:1", "--gres: 'lustre:1' is no number of GPUs"),
        ("--array=1-10", "--array: '1-10': tasks are numbered from 0: write 0-9"),
        ("-t soon", "--time: 'soon' is not a duration: write 30 (minutes)"),
        ("-p a,b", "--partition: 'a,b' are several"),
        ("--begin=16:00", "--begin: '16:00' is not a time"),
        ("--exclusive=user", "--exclusive: 'user' is not offered"),
        ("--export=ALL", "--export: 'ALL': pods have no variables of this machine: write NAME=VALUE"),
        ("--nodse=4", "cannot be read: submit does not understand '--nodse=4'"),
        ("-N", "cannot be read: -N/--nodes needs a value"),
        ("--hint=nomultithread", "--hint is not offered: it has no effect here: remove the line"),
        (
            "--threads-per-core=1",
            (
                "--threads-per-core is not offered: the cores of a node are not told apart: "
                "write --cpus-per-task"
            ),
        ),
        ("--get-user-env", "--get-user-env is not offered: it has no effect here: remove the line"),
        ("-M north", "--clusters is not offered: kubectl chooses the cluster"),
        ("--priority=99999999999", "--priority: '99999999999' is no whole number from -1000000 to 1000000"),
        ("--priority=1_0", "--priority: '1_0' is no whole number"),
    ],
)
def test_every_other_line_is_refused_by_name(line: str, message: str) -> None:
    with pytest.raises(ClusterError) as refused:
        read("-J x", line)
    assert str(refused.value).startswith("error: line 3 of md.sh: #SBATCH ")
    assert message in str(refused.value)
