"""Which images a Dockerfile starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.nodes.buildah import Buildah, ImageError, base_references, substitutions

HERE = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("dockerfile", "references"),
    [
        pytest.param("FROM python:3.13-slim\n", ["python:3.13-slim"], id="one"),
        pytest.param(
            "FROM a:1 AS build\nRUN x\nFROM a:1\nCOPY --from=build /a /a\n", ["a:1"], id="the same twice"
        ),
        pytest.param("FROM a:1 AS build\nFROM build\n", ["a:1"], id="a stage of its own"),
        pytest.param("FROM scratch\n", [], id="nothing"),
        pytest.param(
            "ARG BASE=a@sha256:00\nFROM --platform=linux/amd64 ${BASE} AS build\n",
            ["a@sha256:00"],
            id="an argument",
        ),
        pytest.param("ARG TAG=3\nfrom a:$TAG as build\nFROM b\n", ["a:3", "b"], id="lower case"),
    ],
)
def test_the_images_that_a_dockerfile_starts_from(dockerfile: str, references: list[str]) -> None:
    assert base_references(dockerfile) == references


@pytest.mark.parametrize(
    ("dockerfile", "options"),
    [
        pytest.param("FROM a:1\n", ["--build-context", "a:1=container-image://here"], id="a reference"),
        pytest.param("ARG BASE=a@sha256:00\nFROM ${BASE}\n", ["--build-arg", "BASE=here"], id="an argument"),
        pytest.param(
            "ARG TAG=3\nFROM a:$TAG\n",
            ["--build-context", "a:3=container-image://here"],
            id="a part of a reference",
        ),
    ],
)
def test_a_local_image_takes_the_place_of_each(dockerfile: str, options: list[str]) -> None:
    assert substitutions(dockerfile, "here") == options


@pytest.mark.parametrize("program", ["queue", "webhook"])
def test_the_project_starts_from_python_only(program: str) -> None:
    references = base_references((HERE / f"Dockerfile.{program}").read_text())
    assert references
    assert all(reference.rpartition("/")[2].startswith("python") for reference in references)


def test_an_image_without_a_stand_in_is_named(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile.other"
    dockerfile.write_text("FROM golang:1.26\n")
    with pytest.raises(
        ImageError,
        match=r"Dockerfile\.other starts from golang:1\.26: a stand-in exists for Python's image only",
    ):
        Buildah(tmp_path).build(dockerfile, tmp_path, "image", "base")
