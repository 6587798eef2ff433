"""The arguments of `flux`, and the reading of its output."""

import asyncio
import json
from pathlib import Path

import pytest

from fluxqueue.rest.commands import (
    Flux,
    FluxFailed,
    FluxMissing,
    NoSuchJob,
    environment_for,
    read_environment,
    read_python_path,
    read_size,
)
from fluxqueue.rest.submissions import FluxSubmission, InvalidWord


def stand_in(folder: Path, script: str, deadline_s: float = 10) -> Flux:
    """A `flux` that runs this shell text; its arguments are in ``$@``."""
    program = folder / "flux"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Flux({"PATH": f"{folder}:/usr/bin:/bin"}, deadline_s)


def test_every_option_is_one_word_and_the_command_comes_last() -> None:
    wanted = FluxSubmission(
        ["solve", "--fast", "a b; rm -rf /"],
        nodes=2,
        tasks=8,
        cores_per_task=4,
        gpus_per_task=1,
        duration_s=90,
        environment={"HOME_OF": "$HOME"},
        working_directory="/data",
        name="my job",
        urgency=20,
    )
    assert wanted.words() == [
        "submit",
        "--nodes=2",
        "--ntasks=8",
        "--cores-per-task=4",
        "--gpus-per-task=1",
        "--time-limit=90s",
        "--urgency=20",
        "--cwd=/data",
        "--job-name=my job",
        "--env=HOME_OF=$$HOME",
        "solve",
        "--fast",
        "a b; rm -rf /",
    ]


def test_a_job_begins_with_the_applications_environment_and_not_with_the_services() -> None:
    wanted = FluxSubmission(["solve"], environment={"A": "mine"})
    assert wanted.words({"PATH": "/opt/app/bin:$x", "A": "theirs"}) == [
        "submit",
        "--env=-*",
        "--env=PATH=/opt/app/bin:$$x",
        "--env=A=mine",
        "solve",
    ]


async def test_the_applications_environment_is_read_when_a_job_is_submitted(tmp_path: Path) -> None:
    stand_in(tmp_path, 'printf "%s\\0" "$@" >"${0%/*}/words"; echo f1')
    written = tmp_path / "environment"
    flux = Flux({"PATH": f"{tmp_path}:/usr/bin:/bin"}, application=written)
    await flux.submit(FluxSubmission(["solve"]))
    assert (tmp_path / "words").read_text().split("\0")[:-1] == ["submit", "solve"]
    written.write_bytes(b"PATH=/opt/app/bin\0LINES=one\ntwo=2\0BASH_FUNC_f%%=() { :; }\0EMPTY=\0")
    await flux.submit(FluxSubmission(["solve"]))
    told = (tmp_path / "words").read_text().split("\0")[:-1]
    assert told == [
        "submit",
        "--env=-*",
        "--env=PATH=/opt/app/bin",
        "--env=LINES=one\ntwo=2",
        "--env=EMPTY=",
        "solve",
    ]


@pytest.mark.parametrize("text", [b"", b"\0", b"no variable\0"])
def test_a_file_without_variables_is_no_environment(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "environment").write_bytes(text)
    assert read_environment(tmp_path / "environment") is None
    assert read_environment(tmp_path / "other") is None


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (FluxSubmission([]), "command"),
        (FluxSubmission([""]), "command"),
        (FluxSubmission(["--flags=waitable", "x"]), "command"),
        (FluxSubmission(["a\0b"]), "command"),
        (FluxSubmission(["a"], environment={"A=B": "c"}), "environment"),
        (FluxSubmission(["a"], environment={"-x": "c"}), "environment"),
    ],
)
def test_a_word_that_looks_like_an_option_is_refused(wanted: FluxSubmission, field: str) -> None:
    with pytest.raises(InvalidWord, match=field):
        wanted.words()


async def test_a_word_that_is_too_long_for_a_program_is_the_callers_fault(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, "echo f1")
    with pytest.raises(InvalidWord, match="too long"):
        await flux.submit(FluxSubmission(["solve", "x" * 500_000]))


def test_the_views_programs_and_modules_are_used_and_not_ours(tmp_path: Path) -> None:
    modules = tmp_path / "lib" / "python3.12" / "site-packages"
    modules.mkdir(parents=True)
    base = {"FLUX_VIEW": str(tmp_path), "PATH": "/bin", "FLUX_URI": "local:///x", "PYTHONPATH": "/ours"}
    environment = environment_for(base)
    assert environment["PATH"] == f"{tmp_path}/bin:/bin"
    assert environment["FLUX_URI"] == "local:///x"
    assert environment["PYTHONPATH"] == str(modules)
    assert environment_for(base, "/chosen")["PYTHONPATH"] == "/chosen"
    assert "PYTHONPATH" not in environment_for({**base, "FLUX_VIEW": "/nowhere"})


async def test_modules_that_cannot_be_loaded_are_an_instance_that_cannot_be_used(tmp_path: Path) -> None:
    flux = stand_in(
        tmp_path,
        "echo Traceback >&2; echo \"ModuleNotFoundError: No module named '_cffi_backend'\" >&2; exit 1",
    )
    with pytest.raises(
        FluxMissing,
        match=r"cannot load its Python modules .*'_cffi_backend'.* set spec\.flux\.container\.pythonPath",
    ):
        await flux.jobs()


async def test_the_id_of_a_submitted_job_is_the_last_line_of_flux(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, 'printf "%s\\n" "$@" >"${0%/*}/words"; echo a warning; echo f2ABC')
    assert await flux.submit(FluxSubmission(["solve", "it's"])) == "f2ABC"
    assert (tmp_path / "words").read_text().splitlines() == ["submit", "solve", "it's"]


@pytest.mark.parametrize("listing", ['{"id": 7, "state": "RUN"}', '{"jobs": [{"id": 7, "state": "RUN"}]}'])
async def test_a_job_is_read_in_the_format_of_every_flux_version(tmp_path: Path, listing: str) -> None:
    flux = stand_in(tmp_path, f"echo '{listing}'")
    assert (await flux.job("f7"))["state"] == "RUN"
    assert [job["id"] for job in await flux.jobs()] == [7]


async def test_output_that_is_no_json_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FluxFailed, match="printed no JSON object but 'usage"):
        await stand_in(tmp_path, "echo usage").jobs()


async def test_nodes_are_grouped_by_state(tmp_path: Path) -> None:
    flux = stand_in(
        tmp_path,
        "printf 'free\\t2\\t8\\t1\\tflux-[0-1]\\nallocated\\t0\\t0\\t0\\t\\ndown\\t1\\t4\\t0\\tflux-2\\n'",
    )
    groups = await flux.nodes()
    assert [(group.state, group.hosts, group.cores, group.gpus) for group in groups] == [
        ("free", ("flux-0", "flux-1"), 8, 1),
        ("down", ("flux-2",), 4, 0),
    ]


async def test_output_is_put_together_from_the_event_log(tmp_path: Path) -> None:
    entries = [
        {"name": "header", "context": {"version": 1}},
        {"name": "data", "context": {"stream": "stdout", "rank": "0", "data": "hello "}},
        {
            "name": "data",
            "context": {"stream": "stderr", "rank": "0", "data": "d29ybGQ=", "encoding": "base64"},
        },
        {"name": "data", "context": {"stream": "stdout", "rank": "0", "eof": True}},
    ]
    (tmp_path / "log").write_text("\n".join(json.dumps(entry) for entry in entries))
    flux = stand_in(tmp_path, 'cat "${0%/*}/log"')
    assert b"".join([piece async for piece in flux.output("f7")]) == b"hello world"


async def test_a_job_that_has_not_started_has_no_output(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, "echo 'flux-job: eventlog path guest.output not found' >&2; exit 1")
    assert [piece async for piece in flux.output("f7")] == []


async def test_no_more_is_read_than_the_memory_holds(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, "exec yes", deadline_s=120)  # without an end
    with pytest.raises(FluxFailed, match="wrote more than 16777216 bytes: follow the output instead"):
        await anext(flux.output("f7"))


async def test_a_command_is_stopped_while_its_pipe_is_full(tmp_path: Path) -> None:
    output = stand_in(tmp_path, "exec yes").follow("f7")
    await anext(output)
    await asyncio.sleep(0.3)  # nobody reads, so asyncio stops to take from the pipe
    await asyncio.wait_for(output.aclose(), 60)


async def test_a_refusal_of_flux_is_passed_on_literally(tmp_path: Path) -> None:
    with pytest.raises(FluxFailed, match="unsatisfiable request"):
        await stand_in(tmp_path, "echo 'flux-submit: ERROR: unsatisfiable request' >&2; exit 1").submit(
            FluxSubmission(["x"])
        )
    with pytest.raises(NoSuchJob):
        await stand_in(tmp_path, "echo 'flux-jobs: ERROR: JobID f9 unknown' >&2; exit 1").job("f9")
    with pytest.raises(NoSuchJob, match="is not the id"):
        await stand_in(tmp_path, "exit 0").cancel("--all")


async def test_a_command_that_is_missing_or_silent_is_an_instance_that_does_not_answer(
    tmp_path: Path,
) -> None:
    with pytest.raises(FluxMissing, match="is the Flux view mounted"):
        await Flux({"PATH": str(tmp_path)}).nodes()
    with pytest.raises(FluxMissing, match="did not respond within"):
        await stand_in(tmp_path, "exec sleep 60", deadline_s=0.2).nodes()


def test_the_size_is_read_from_the_settings_if_they_are_there(tmp_path: Path) -> None:
    settings = tmp_path / "settings.sh"
    settings.write_text("fq_mode=idle\nfq_size=4\n")
    assert read_size(settings) == 4
    assert read_size(tmp_path / "other") is None


def test_the_folder_of_python_modules_is_read_from_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.sh"
    settings.write_text("fq_python_path='/opt/a b'\n")
    assert read_python_path(settings) == "/opt/a b"
    settings.write_text("fq_python_path=''\n")
    assert read_python_path(settings) == ""
    assert read_python_path(tmp_path / "other") == ""
