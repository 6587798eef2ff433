from __future__ import annotations

import pytest
import yaml

from fluxqueue.api import names
from fluxqueue.dashboard.submissions import manifest_of_form, read_manifest
from fluxqueue.dashboard.verbs import Refused

FORM = {
    "namespace": "blue",
    "image": "example/solver",
    "command": "solve 'in put.dat'",
    "nodes": "4",
    "cpus": "8",
    "time": "30m",
}


async def test_the_form_writes_the_job_that_the_command_line_writes() -> None:
    job = await read_manifest(manifest_of_form({**FORM, "gpus": "1", "queue": "night"}))
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert job["metadata"]["namespace"] == "blue"
    assert job["metadata"]["labels"] == {names.QUEUE_LABEL: "night"}
    assert job["metadata"]["annotations"][names.DURATION_ANNOTATION] == "30m"
    assert (job["spec"]["completions"], container["command"]) == (4, ["solve", "in put.dat"])
    assert container["resources"]["requests"] == {"cpu": "8", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"image": ""}, "--image"),
        ({"nodes": "many"}, "-N/--nodes"),
        ({"time": "soon"}, "soon"),
        ({"command": "solve 'in"}, "a quote is not closed"),
        ({"name": "--help"}, "--help"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(changed: dict[str, str], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        manifest_of_form({**FORM, **changed})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "write one Job"),
        ("a: [", "cannot be read as YAML"),
        ("--- {}\n--- {}", "write one Job"),
        ("just words", "write one Job"),
        ("{apiVersion: v1, kind: Pod, metadata: {namespace: blue}}", "only a Job"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: a}}", "metadata.namespace is missing"),
        ("{apiVersion: batch/v1, kind: Job, metadata: [a]}", "metadata.namespace is missing"),
        ("!!python/object/apply:os.system ['true']", "cannot be read as YAML"),
        ("when: 2026-99-99", "cannot be read as YAML"),
        ("a: !!timestamp foo", "cannot be read as YAML"),
        ("a: !!int ''", "cannot be read as YAML"),
        ("a: !!float ''", "cannot be read as YAML"),
        ("a: !!bool foo", "cannot be read as YAML"),
        ("a: " + "1:" + "0:" * 400 + "0.5", "cannot be read as YAML"),
        ("spec: {a: 1, b: 2, a: 2}", "line 1 has 'a' a second time"),
        ("x" * 40_000, "40000 characters"),
        ("[" * 5_000, "levels deep"),
    ],
)
async def test_a_text_that_is_no_job_is_refused_in_words(text: str, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        await read_manifest(text)


async def test_a_few_lines_do_not_become_gigabytes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(Refused, match="it has an alias"):
        await read_manifest("\n".join(lines))


def test_a_script_in_the_job_has_its_lines() -> None:
    text = manifest_of_form({**FORM, "command": 'sh -c "one\ntwo"'})
    assert "one\n" in text
    assert yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]["command"] == [
        "sh",
        "-c",
        "one\ntwo",
    ]
