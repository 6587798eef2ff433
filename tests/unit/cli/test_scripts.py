from pathlib import Path

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.scripts import literal, read_script
from fluxqueue.cli.slurm_lines import SlurmLine


def script(folder: Path, content: str | bytes, name: str = "solve.sh") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_the_lines_before_the_first_command_have_options(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash -e\n"
        "#FQ -N 4 -c 8  # four nodes\n\n"
        "# about it\n"
        '#FQ: --name "my solver"\n'
        "echo a\n"
        "#FQ -N 99\n"
    )
    path = script(tmp_path, text)
    found = read_script(path)
    assert found.options == ("-N", "4", "-c", "8", "--name", "my solver")
    assert found.command == ("/bin/bash", "-e", "-c", text, path)
    assert found.name == "solve"


@pytest.mark.parametrize(
    "first", ["#!/bin/sh", "#!/usr/bin/env python3", "#!/usr/bin/env -S bash -x", "#! /usr/bin/python3.11 -u"]
)
def test_shells_and_python_take_a_script_as_text(first: str, tmp_path: Path) -> None:
    command = read_script(script(tmp_path, f"{first}\n1\n")).command
    assert command[-3] == "-c"
    assert "-S" not in command


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("#!/bin/sh\r\necho a\r\n", "end as on Windows.*dos2unix", id="lines of Windows"),
        pytest.param("echo a\n", "does not name its interpreter: write #!/bin/sh", id="no first line"),
        pytest.param(
            "#!/usr/bin/perl\n", "wants /usr/bin/perl, and only shells and Python", id="another language"
        ),
        pytest.param("#!/usr/bin/env node\n", "wants node", id="another language by env"),
        pytest.param(b"\x7fELF\xff", "is no script", id="a program"),
        pytest.param("#!/bin/sh\n" + "x" * 100_000, "longer than 100000 bytes", id="too long"),
        pytest.param(
            "#!/bin/sh\n#FQ --name 'a\n", "line 2 of .* cannot be read", id="a quote that does not end"
        ),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=message):
        read_script(script(tmp_path, content))


def test_lines_of_slurm_are_kept_with_their_numbers(tmp_path: Path) -> None:
    found = read_script(
        script(
            tmp_path, "#!/bin/sh\n#SBATCH -N 4  # four\n#FQ -c 2\n#SBATCH --time=30\n##SBATCH -N 9\necho\n"
        )
    )
    assert found.slurm_lines == (SlurmLine(2, ("-N", "4")), SlurmLine(4, ("--time=30",)))
    assert (found.options, found.remarks) == (("-c", "2"), ())


@pytest.mark.parametrize(
    "line", ["#PBS -l nodes=4", "#BSUB -n 4", "#flux: -N 4", "#MSUB -l nodes=4", "#$ -pe mpi 4"]
)
def test_lines_of_other_systems_are_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="line 2 of .* lines are not read: write its options as #FQ"):
        read_script(script(tmp_path, f"#!/bin/sh\n{line}\necho\n"))


def test_a_line_that_stands_too_late_is_remarked_upon(tmp_path: Path) -> None:
    (remark,) = read_script(script(tmp_path, "#!/bin/sh\necho\n#FQ -N 4\n")).remarks
    assert remark.startswith("line 3 of ")
    assert remark.endswith("is not read: #FQ lines stand before the first command")


@pytest.mark.parametrize("line", ["srun ./md", "echo $SLURM_PROCID"])
def test_what_only_slurm_has_is_remarked_upon(line: str, tmp_path: Path) -> None:
    (remark,) = read_script(script(tmp_path, f"#!/bin/sh\n#SBATCH -N 2\n{line}\n")).remarks
    assert "each pod runs the script, and JOB_COMPLETION_INDEX is its rank" in remark


def test_options_may_stand_after_a_tab_and_the_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    found = read_script(
        script(tmp_path, b"\xef\xbb\xbf#!/bin/sh\n#FQ\t-N 4\n#FQ:\t-c 8\n#FQx -c 1\n#FQ\necho \x0c\n")
    )
    assert found.options == ("-N", "4", "-c", "8")
    assert found.command[-2].startswith("#!/bin/sh")


def test_a_script_that_is_not_there_is_refused() -> None:
    with pytest.raises(ClusterError, match="cannot be read .*; a command comes after --"):
        read_script("/nonexistent.sh")


def as_the_kubelet_expands(text: str) -> str:
    """As third_party/forked/golang/expansion of Kubernetes does, where no variable is known."""
    out, at = "", 0
    while at < len(text):
        if text[at] == "$" and at + 1 < len(text) and text[at + 1] == "$":
            out, at = out + "$", at + 2
        else:
            out, at = out + text[at], at + 1
    return out


@pytest.mark.parametrize("text", ["$$", "$(date)", "$$(x)", "$$$", "a$b$", "${A}$((1+1))", "$", "'$$$$('"])
def test_the_kubelet_changes_nothing_in_a_script(text: str) -> None:
    assert as_the_kubelet_expands(literal(text)) == text
    assert "$(" not in literal(text).replace("$$", "")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("# SBATCH --nodes=2", "SBATCH"),
        ("#SBATCH--nodes=2", "SBATCH"),
        ("#SBATCH:--nodes=2", "SBATCH"),
        ("#SBACTH -N 2", "SBATCH"),
        ("#sbatch -N2", "SBATCH"),
        ("  #SBATCH -N 2", "SBATCH"),
        ("#SLURM -N 2", "SBATCH"),
        ("#fq -N 2", "FQ"),
        ("#FQ--nodes 2", "FQ"),
    ],
)
def test_a_comment_that_was_meant_as_a_line_of_options_is_remarked_upon(
    line: str, meant: str, tmp_path: Path
) -> None:
    found = read_script(script(tmp_path, f"#!/bin/sh\n{line}\n#FQ -t 5m\nrun\n"))
    (remark,) = found.remarks
    assert remark.startswith("line 2 of ")
    assert remark.endswith(f"is not read: options stand after #{meant} and a space, at the start of a line")
    assert found.options == ("-t", "5m")


@pytest.mark.parametrize(
    "line",
    [
        "##SBATCH -N 2",
        "# batches - of two",
        "# SBATCH lines follow",
        "#- x",
        "# run --fast with -N 2",
        "#!/bin/x -e",
    ],
)
def test_a_comment_is_a_comment(line: str, tmp_path: Path) -> None:
    assert read_script(script(tmp_path, f"#!/bin/sh\n{line}\nrun\n")).remarks == ()
