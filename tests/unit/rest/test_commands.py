"""The words that Flux is given, and what is made of its answers."""

import json
from pathlib import Path

import pytest

from fluxqueue.rest.commands import (
    Flux,
    FluxFailed,
    FluxMissing,
    InvalidWord,
    Submission,
    UnknownJob,
    environment_for,
    read_environment,
    read_size,
)


def stand_in(folder: Path, script: str, deadline_s: float = 10) -> Flux:
    """A `flux` that runs this shell text; its words are in ``$@``."""
    program = folder / "flux"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Flux({"PATH": f"{folder}:/usr/bin:/bin"}, deadline_s)


def test_every_wish_is_one_word_and_the_command_comes_last() -> None:
    wish = Submission(
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
    assert wish.words() == [
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
    wish = Submission(["solve"], environment={"A": "mine"})
    assert wish.words({"PATH": "/opt/app/bin:$x", "A": "theirs"}) == [
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
    await flux.submit(Submission(["solve"]))
    assert (tmp_path / "words").read_text().split("\0")[:-1] == ["submit", "solve"]
    written.write_bytes(b"PATH=/opt/app/bin\0LINES=one\ntwo=2\0BASH_FUNC_f%%=() { :; }\0EMPTY=\0")
    await flux.submit(Submission(["solve"]))
    told = (tmp_path / "words").read_text().split("\0")[:-1]
    assert told == ["submit", "--env=-*", "--env=PATH=/opt/app/bin", "--env=LINES=one\ntwo=2", "--env=EMPTY=", "solve"]


@pytest.mark.parametrize("text", [b"", b"\0", b"no variable\0"])
def test_a_file_without_variables_is_no_environment(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "environment").write_bytes(text)
    assert read_environment(tmp_path / "environment") is None
    assert read_environment(tmp_path / "other") is None


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (Submission([]), "command"),
        (Submission([""]), "command"),
        (Submission(["--flags=waitable", "x"]), "command"),
        (Submission(["a\0b"]), "command"),
        (Submission(["a"], environment={"A=B": "c"}), "environment"),
        (Submission(["a"], environment={"-x": "c"}), "environment"),
    ],
)
def test_what_could_be_taken_for_an_option_is_refused(wish: Submission, field: str) -> None:
    with pytest.raises(InvalidWord, match=field):
        wish.words()


def test_the_views_programs_come_first() -> None:
    environment = environment_for({"FLUX_VIEW": "/mnt/flux/view", "PATH": "/bin", "FLUX_URI": "local:///x"})
    assert environment["PATH"] == "/mnt/flux/view/bin:/bin"
    assert environment["FLUX_URI"] == "local:///x"


async def test_a_submitted_job_is_known_by_the_last_line_flux_says(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, 'printf "%s\\n" "$@" >"${0%/*}/words"; echo a warning; echo f2ABC')
    assert await flux.submit(Submission(["solve", "it's"])) == "f2ABC"
    assert (tmp_path / "words").read_text().splitlines() == ["submit", "solve", "it's"]


@pytest.mark.parametrize("said", ['{"id": 7, "state": "RUN"}', '{"jobs": [{"id": 7, "state": "RUN"}]}'])
async def test_one_job_is_found_in_either_shape_that_versions_of_flux_answer(tmp_path: Path, said: str) -> None:
    flux = stand_in(tmp_path, f"echo '{said}'")
    assert (await flux.job("f7"))["state"] == "RUN"
    assert [job["id"] for job in await flux.jobs()] == [7]


async def test_nodes_are_told_by_state(tmp_path: Path) -> None:
    flux = stand_in(tmp_path, "printf 'free\\t2\\t8\\t1\\tflux-[0-1]\\nallocated\\t0\\t0\\t0\\t\\ndown\\t1\\t4\\t0\\tflux-2\\n'")
    groups = await flux.nodes()
    assert [(group.state, group.hosts, group.cores, group.gpus) for group in groups] == [
        ("free", ("flux-0", "flux-1"), 8, 1),
        ("down", ("flux-2",), 4, 0),
    ]


async def test_output_is_put_together_from_the_event_log(tmp_path: Path) -> None:
    entries = [
        {"name": "header", "context": {"version": 1}},
        {"name": "data", "context": {"stream": "stdout", "rank": "0", "data": "hello "}},
        {"name": "data", "context": {"stream": "stderr", "rank": "0", "data": "d29ybGQ=", "encoding": "base64"}},
        {"name": "data", "context": {"stream": "stdout", "rank": "0", "eof": True}},
    ]
    (tmp_path / "log").write_text("\n".join(json.dumps(entry) for entry in entries))
    flux = stand_in(tmp_path, 'cat "${0%/*}/log"')
    assert b"".join([piece async for piece in flux.output("f7")]) == b"hello world"


async def test_what_flux_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(FluxFailed, match="unsatisfiable request"):
        await stand_in(tmp_path, "echo 'flux-submit: ERROR: unsatisfiable request' >&2; exit 1").submit(Submission(["x"]))
    with pytest.raises(UnknownJob):
        await stand_in(tmp_path, "echo 'flux-jobs: ERROR: JobID f9 unknown' >&2; exit 1").job("f9")
    with pytest.raises(UnknownJob, match="is not the id"):
        await stand_in(tmp_path, "exit 0").cancel("--all")


async def test_a_command_that_is_missing_or_silent_is_an_instance_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(FluxMissing, match="is the Flux view mounted"):
        await Flux({"PATH": str(tmp_path)}).nodes()
    with pytest.raises(FluxMissing, match="did not answer within"):
        await stand_in(tmp_path, "exec sleep 60", deadline_s=0.2).nodes()
    assert not await stand_in(tmp_path, "exit 1").alive()


def test_the_size_is_read_from_the_settings_if_they_are_there(tmp_path: Path) -> None:
    settings = tmp_path / "settings.sh"
    settings.write_text("fq_mode=idle\nfq_size=4\n")
    assert read_size(settings) == 4
    assert read_size(tmp_path / "other") is None
