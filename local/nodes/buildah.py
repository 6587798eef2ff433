"""buildah with a storage of its own, and the Dockerfiles of the project built with it.

The storage is in the cache folder. Everything runs in mount and PID namespaces of its own
(`fluxqueue.local.nodes.images`), so that no mount and no process is left, whatever happens.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Buildah", "ImageError", "base_references", "substitutions"]

_FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)
_ARGUMENT = re.compile(r"^ARG\s+(\w+)=(\S+)\s*$", re.IGNORECASE | re.MULTILINE)


class ImageError(RuntimeError):
    """An image cannot be built; the message says why."""


def base_references(dockerfile: str) -> list[str]:
    """Return the images that a Dockerfile starts from, with its own arguments filled in,
    and without its own stages.
    """
    arguments = dict(_ARGUMENT.findall(dockerfile))
    stages, references = {"scratch"}, []
    for reference, stage in _FROM.findall(dockerfile):
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: arguments.get(match[1], match[0]), reference).strip(
            '"'
        )
        if filled.lower() not in stages and filled not in references:
            references.append(filled)
        stages.add(stage.lower())
    return references


def substitutions(dockerfile: str, base: str) -> list[str]:
    """Return the options that put a local image in place of every image that a Dockerfile starts from.

    A build context cannot stand for a reference with a digest (buildah 1.28), and so an argument that names
    an image is set itself.
    """
    references, arguments = base_references(dockerfile), dict(_ARGUMENT.findall(dockerfile))
    named = [name for name, value in arguments.items() if value in references]
    words = [word for name in named for word in ("--build-arg", f"{name}={base}")]
    others = [reference for reference in references if reference not in arguments.values()]
    return words + [
        word for reference in others for word in ("--build-context", f"{reference}=container-image://{base}")
    ]


class Buildah:
    """Runs buildah."""

    def __init__(self, storage: Path) -> None:
        self._options = [
            "--root",
            str(storage / "root"),
            "--runroot",
            str(storage / "run"),
            "--storage-driver",
            "overlay",
        ]

    def run(self, command: str, *words: str | Path, timeout_s: float = 1_800) -> str:
        """Run a command and return its output.

        Raises
        ------
        ImageError
            It failed; with the end of its output.
        """
        quiet = ["-q"] if command in ("commit", "push", "from") else []
        line = ["buildah", *self._options, command, *quiet, *words]
        try:
            done = subprocess.run(
                line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise ImageError(f"buildah {command} did not end within {timeout_s:g} s") from None
        if done.returncode != 0:
            raise ImageError(
                f"buildah {command} ended with {done.returncode}:\n"
                f"{(done.stdout + done.stderr).strip()[-2_000:]}"
            )
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        """Return true if an image is in the storage."""
        try:
            self.run("inspect", "--type", "image", "--format", "{{.FromImageID}}", image)
        except ImageError:
            return False
        return True

    def build(self, dockerfile: Path, context: Path, image: str, base: str) -> None:
        """Build a Dockerfile, with one local image in place of every image that it starts from; unchanged
        layers are used again.

        Raises
        ------
        ImageError
            It starts from something other than Python's image, or a step failed.
        """
        bases: Sequence[str] = base_references(dockerfile.read_text())
        if other := [reference for reference in bases if not re.search(r"(^|/)python[:@]", reference)]:
            raise ImageError(
                f"{dockerfile.name} starts from {', '.join(other)}: a stand-in exists for Python's image only"
            )
        options: list[str | Path] = [
            "--isolation",
            "chroot",
            "--pull-never",
            "--layers",
            "-f",
            dockerfile,
            "-t",
            image,
        ]
        self.run("build", *substitutions(dockerfile.read_text(), base), *options, context)

    def archive(self, image: str, target: Path, reference: str) -> None:
        """Write an image into an archive, under a name."""
        unfinished = target.with_name(f".{target.name}")
        unfinished.unlink(missing_ok=True)
        self.run("push", image, f"docker-archive:{unfinished}:{reference}")
        unfinished.rename(target)
