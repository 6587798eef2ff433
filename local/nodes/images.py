"""The images that run on real nodes, built from the checkout and kept in the cache.

Each archive is named after the content that it is built from, and its tag is the same digest: a pod can only
run the content that the tag names. An archive that exists is not built again. Of each image the two newest
archives are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fluxqueue.local.binaries import locked
from fluxqueue.local.go_programs import BuildDisplay
from fluxqueue.local.nodes.base_image import BASE, make_base, pip_settings
from fluxqueue.local.nodes.buildah import Buildah, ImageError
from fluxqueue.local.nodes.layout import content_digest, nodes_cache
from fluxqueue.local.nodes.requirements import CannotRunNodes, image_obstacle
from fluxqueue.local.nodes.stand_ins import make_postgres, make_work

__all__ = [
    "Image",
    "ImageArchive",
    "build_one",
    "built_images",
    "chart_values",
    "checkout",
    "find_image",
    "newest_images",
]

_PRIVATE = (
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
)
_HERE = Path(__file__).resolve().parent
_FLUX = Path("tests/support/flux_standin.py")


class Image(Enum):
    """An image; the value is its repository, as the chart names it."""

    QUEUE = "fluxqueue-queue"
    WEBHOOK = "fluxqueue-webhook"
    POSTGRES = "postgres"
    WORK = "fluxqueue-work"
    """Debian with Python, for the work of tests; also a view for MiniClusters,
    with the tests' stand-in for ``flux``."""


@dataclass(frozen=True)
class ImageArchive:
    """An image in the cache, built or not.

    Attributes
    ----------
    image
        Which one.
    tag
        The digest of what it is built from.
    path
        The archive.
    """

    image: Image
    tag: str
    path: Path

    @property
    def name(self) -> str:
        """Repository and tag, as in a pod."""
        return f"{self.image.value}:{self.tag}"


def checkout() -> Path:
    """Return the checkout that this package is installed from.

    Raises
    ------
    ImageError
        It is installed without its sources.
    """
    folder = _HERE.parents[1]
    if (folder / "Dockerfile.queue").is_file():
        return folder
    raise ImageError(
        "images are built from a checkout, and fluxqueue is installed without one: "
        "install it with `pip install -e`"
    )


def find_image(image: Image) -> ImageArchive:
    """Return where the archive of an image's current content is, built or not."""
    tag = _digest(image)
    return ImageArchive(image, tag, nodes_cache() / "images" / f"{image.value}-{tag}.tar")


def built_images(
    display: BuildDisplay | None = None, *, build: bool = True
) -> dict[Image, ImageArchive] | None:
    """Return all images; those that are missing are built.

    Parameters
    ----------
    display
        Shows the progress of builds.
    build
        False returns None instead of building.

    Raises
    ------
    CannotRunNodes
        Images cannot be built here.
    ImageError
        A build failed.
    """
    found = {image: find_image(image) for image in Image}
    missing = [archive for archive in found.values() if not archive.path.exists()]
    if not missing:
        return found
    if not build:
        return None
    if obstacle := image_obstacle():
        raise CannotRunNodes(obstacle)
    folder = nodes_cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        for archive in missing:
            if not archive.path.exists():
                if display is not None:
                    display.step(
                        f"building the image {archive.image.value} (1 to 4 minutes, once per content)"
                    )
                _build_apart(archive)
    return found


def newest_images() -> dict[Image, ImageArchive]:
    """Return the newest archive of each image, also of an earlier content; to try something again without a
    build.

    Raises
    ------
    ImageError
        An image was never built.
    """
    found = {}
    for image in Image:
        archives = sorted(
            (nodes_cache() / "images").glob(f"{image.value}-*.tar"), key=lambda path: path.stat().st_mtime
        )
        if not archives:
            raise ImageError(
                f"the image {image.value} was never built: build it with `fluxqueue local nodes images`"
            )
        found[image] = ImageArchive(image, archives[-1].stem.removeprefix(f"{image.value}-"), archives[-1])
    return found


def chart_values(images: dict[Image, ImageArchive]) -> dict[str, Any]:
    """Return the chart's values that select these images and serve MiniClusters."""

    def selected(image: Image) -> dict[str, Any]:
        archive = images[image]
        return {
            "image": {
                "repository": archive.image.value,
                "tag": archive.tag,
                "digest": "",
                "pullPolicy": "Never",
            }
        }

    selections = {
        "queue": selected(Image.QUEUE),
        "webhook": selected(Image.WEBHOOK),
        "postgres": selected(Image.POSTGRES),
    }
    return {**selections, "miniclusters": {"enabled": True, "namespaces": ["*"]}}


def _base_parts() -> list[Path | str | bytes]:
    return [_HERE / "base_image.py", pip_settings()]


def _digest(image: Image) -> str:
    base = _base_parts()
    match image:
        case Image.WORK:
            return content_digest(*base, _HERE / "stand_ins.py", checkout() / _FLUX)
        case Image.POSTGRES:
            return content_digest(*base, _HERE / "stand_ins.py", _HERE / "postgres-entrypoint.sh")
    folder = checkout()
    return content_digest(
        *base, *_wheel_sources(folder), folder / f"Dockerfile.{image.value.removeprefix('fluxqueue-')}"
    )


def _wheel_sources(folder: Path) -> list[Path | bytes]:
    """Return what git knows of, of what a build may copy; new files count, ignored ones do not."""
    allowed = [
        line[1:] for line in (folder / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    command = [
        "git",
        "-c",
        f"safe.directory={folder}",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *allowed,
    ]
    listing = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    if listing.returncode != 0:
        raise ImageError(
            f"{folder} is no git checkout: {listing.stderr.decode(errors='replace').strip()[-300:]}"
        )
    names = sorted(set(os.fsdecode(listing.stdout).split("\0")) - {""})
    parts: list[Path | bytes] = [os.fsencode("\0".join(names))]
    parts += [path for name in names if (path := folder / name).is_file()]
    return parts


def _build_apart(archive: ImageArchive) -> None:
    request = json.dumps({"image": archive.image.name, "tag": archive.tag, "path": str(archive.path)})
    program = [
        sys.executable,
        "-c",
        "from fluxqueue.local.nodes.images import build_one; raise SystemExit(build_one())",
        request,
    ]
    done = subprocess.run(
        [*_PRIVATE, *program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3_600,
        check=False,
    )
    if done.returncode != 0:
        raise ImageError(f"the image {archive.image.value} cannot be built: {done.stderr.strip()[-2_500:]}")


def build_one() -> int:
    """Build one image; runs in namespaces of its own, its argument describes the image as JSON."""
    request = json.loads(sys.argv[1])
    archive = ImageArchive(Image[request["image"]], request["tag"], Path(request["path"]))
    buildah = Buildah(nodes_cache() / "buildah")
    try:
        base = f"{BASE}:{content_digest(*_base_parts())}"
        if not buildah.has(base):
            make_base(buildah)
            buildah.run("tag", BASE, base)
        _write(buildah, archive, base)
        if _digest(archive.image) != archive.tag:
            archive.path.unlink()
            raise ImageError("the checkout was changed during the build: build again")
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    _remove_old(archive)
    return 0


def _remove_old(archive: ImageArchive) -> None:
    """Remove all but the two newest archives of an image:
    the one before is imported perhaps at this moment.
    """
    built = sorted(
        archive.path.parent.glob(f"{archive.image.value}-*.tar"), key=lambda path: path.stat().st_mtime
    )
    for old in built[:-2]:
        old.unlink()


def _write(buildah: Buildah, archive: ImageArchive, base: str) -> None:
    reference = f"docker.io/library/{archive.name}"
    name = f"localhost/{archive.image.value}"
    folder = checkout()
    if archive.image is Image.POSTGRES:
        make_postgres(buildah, base, name)
    elif archive.image is Image.WORK:
        make_work(buildah, base, name, folder / _FLUX)
    else:
        buildah.build(
            folder / f"Dockerfile.{archive.image.value.removeprefix('fluxqueue-')}", folder, name, base
        )
    buildah.archive(name, archive.path, reference)
