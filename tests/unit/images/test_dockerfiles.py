"""Rules of the Dockerfiles, of which most are hadolint's:
a base by digest, no root, nothing installed without a digest.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_IMAGES = ("queue", "webhook")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def _instructions(image: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    text = (_ROOT / f"Dockerfile.{image}").read_text()
    lines = [
        line
        for line in re.sub(r"\\\n\s*", " ", text).splitlines()
        if line.strip() and not line.startswith("#")
    ]
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def _bases() -> dict[str, dict[str, str]]:
    return dict(json.loads((_ROOT / "images" / "bases.json").read_text()))


@pytest.mark.parametrize("image", _IMAGES)
def test_the_base_is_the_recorded_one(image: str) -> None:
    python = _bases()["python"]
    assert _instructions(image)[0] == ("ARG", f"BASE={python['reference']}")
    own = {"build", "listing", "scratch"}
    assert {rest.split()[0] for word, rest in _instructions(image) if word == "FROM"} - own == {"${BASE}"}


def test_each_recorded_base_says_where_its_digest_comes_from() -> None:
    for name, base in _bases().items():
        assert _DIGEST.fullmatch(base["digest"]), name
        assert base.keys() == {"reference", "digest", "version", "recorded", "source"}
        assert "/" not in base["reference"]


@pytest.mark.parametrize("image", _IMAGES)
def test_an_image_runs_as_a_number_and_enters_by_the_one_command(image: str) -> None:
    last = _instructions(image)[
        max(index for index, (word, _) in enumerate(_instructions(image)) if word == "FROM") :
    ]
    assert [rest for word, rest in last if word == "USER"] == ["65532:65532"]
    assert last[-2:] == [("ENTRYPOINT", '["fluxqueue"]'), ("CMD", f'["{image}"]')]
    assert not [rest for word, rest in last if word == "RUN"], (
        "a step in the last stage would run as root and leave its traces"
    )


@pytest.mark.parametrize("image", _IMAGES)
def test_what_is_installed_has_a_digest_or_was_built_here(image: str) -> None:
    steps = [
        step.strip() for word, rest in _instructions(image) if word == "RUN" for step in rest.split("&&")
    ]
    installs = [step for step in steps if re.search(r"\bpip\b.* install\b", step)]
    assert len(installs) == 4
    for step in installs:
        assert "--require-hashes" in step or "--no-index" in step, step
        assert "--no-cache-dir" in step, step
        assert "--no-deps" in step, step
    (wheel,) = [step for step in steps if "pip wheel" in step]
    assert "--no-build-isolation" in wheel


@pytest.mark.parametrize("image", _IMAGES)
def test_the_instructions_are_those_that_are_needed(image: str) -> None:
    assert {word for word, _ in _instructions(image)} <= {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "LABEL",
        "ENV",
        "USER",
        "ENTRYPOINT",
        "CMD",
    }
    assert all(rest.startswith("/") for word, rest in _instructions(image) if word == "WORKDIR")
    assert not [
        rest
        for word, rest in _instructions(image)
        if word == "RUN" and re.search(r"\b(sudo|curl|wget|apt|chmod 777|cd)\b", rest)
    ]


def test_the_build_context_has_every_package_and_nothing_unnamed() -> None:
    rooms = {path.name for path in (_ROOT / "fluxqueue").iterdir()}
    lines = (_ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert rooms | {"fluxqueue", "images"} <= kept
    assert "*" in lines
