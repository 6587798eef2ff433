"""Archives are named after the content that they are built from; a folder of git stands for the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fluxqueue.local.nodes import images
from fluxqueue.local.nodes.buildah import ImageError
from fluxqueue.local.nodes.images import (
    Image,
    ImageArchive,
    built_images,
    chart_values,
    find_image,
    newest_images,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one source, and an empty cache."""
    checkout = tmp_path / "checkout"
    for name, text in {
        ".dockerignore": "*\n!queue\n**/__pycache__\n",
        ".gitignore": "*.pyc\n",
        "Dockerfile.queue": "FROM python:3\n",
        "Dockerfile.webhook": "FROM python:3\n",
        "queue/main.py": "1",
        "docs/index.md": "1",
        "tests/support/flux_standin.py": "1",
    }.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    subprocess.run(["git", "init", "-q", checkout], check=True)
    monkeypatch.setattr(images, "checkout", lambda: checkout)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return checkout


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("queue/main.py", True),
        ("queue/added.py", True),
        ("queue/main.pyc", False),
        ("docs/index.md", False),
        ("Dockerfile.queue", True),
        ("Dockerfile.webhook", False),
    ],
)
def test_only_what_an_image_is_built_from_changes_its_tag(folder: Path, path: str, changes: bool) -> None:
    before = find_image(Image.QUEUE).tag
    (folder / path).write_text("2")
    assert (find_image(Image.QUEUE).tag != before) == changes


def test_settings_of_pip_change_every_tag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {image: find_image(image).tag for image in Image}
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example.org/simple")
    assert not any(find_image(image).tag == tag for image, tag in before.items())


def test_images_are_complete_only_if_every_archive_is_there(folder: Path) -> None:
    for image in Image:
        assert built_images(build=False) is None
        path = find_image(image).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert built_images(build=False) == {image: find_image(image) for image in Image}


def test_the_newest_archive_is_found_after_the_content_has_changed(folder: Path) -> None:
    with pytest.raises(ImageError, match="the image fluxqueue-queue was never built"):
        newest_images()
    archives = [find_image(image) for image in Image]
    for archive in archives:
        archive.path.parent.mkdir(parents=True, exist_ok=True)
        archive.path.touch()
    (folder / "queue/main.py").write_text("2")
    assert newest_images()[Image.QUEUE] == archives[0]
    assert find_image(Image.QUEUE) != archives[0]


def test_the_values_of_the_chart_select_the_built_images() -> None:
    archives = {image: ImageArchive(image, "0", Path("a.tar")) for image in Image}
    values = chart_values(archives)
    assert set(values) == {"queue", "webhook", "postgres", "miniclusters"}
    assert values["queue"]["image"] == {
        "repository": "fluxqueue-queue",
        "tag": "0",
        "digest": "",
        "pullPolicy": "Never",
    }
