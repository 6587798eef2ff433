"""Build the project's images with docker, podman or buildah, and record what was built: ``make images``.

The build arguments, labels and records are the same for each tool. ``build/images.json`` has, for each image,
its base, its identity and its size; ``build/NAME.cdx.json`` is the CycloneDX list of its Python
distributions. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("queue", "webhook")
TOOLS = ("docker", "podman", "buildah")


class BuildError(Exception):
    """An image cannot be built; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build the images; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        tool = arguments.tool or find_tool()
        base = arguments.base or default_base()
        options = shlex.split(arguments.options)
        arguments.folder.mkdir(parents=True, exist_ok=True)
        records = [build(tool, image, base, options, arguments) for image in IMAGES]
    except BuildError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    (arguments.folder / "images.json").write_text(json.dumps(records, indent=2) + "\n")
    for record in records:
        print(
            f"{record['name']}: {record['added_bytes'] / 1e6:.0f} MB on a base of "
            f"{record['base_bytes'] / 1e6:.0f} MB"
        )
    return 0


def find_tool() -> str:
    """Return the first tool that works here."""
    for tool in TOOLS:
        if (
            shutil.which(tool)
            and subprocess.run([tool, "info"], capture_output=True, timeout=60, check=False).returncode == 0
        ):
            return tool
    raise BuildError(
        "none of docker, podman and buildah works here: install one, or name it with CONTAINER_TOOL="
    )


def default_base() -> str:
    """Return the base that the Dockerfiles name, by the digest that ``images/bases.json`` pins."""
    pinned = json.loads((ROOT / "images" / "bases.json").read_text())["python"]
    return f"{pinned['reference']}@{pinned['digest']}"


def build(
    tool: str, image: str, base: str, options: Sequence[str], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Build one image and its list of distributions; return its record."""
    name = f"{arguments.repository}fluxqueue-{image}:{arguments.version}"
    labels = {
        "org.opencontainers.image.version": arguments.version,
        "org.opencontainers.image.revision": _revision(),
        "org.opencontainers.image.base.digest": base.partition("@")[2],
    }
    words = [word for key, value in labels.items() if value for word in ("--label", f"{key}={value}")]
    common = [*options, "--build-arg", f"BASE={base}", "--file", f"Dockerfile.{image}"]
    print(f"{name}: building with {tool} on {base}", flush=True)
    _run([tool, "build", *common, *words, "--tag", name, "."])
    _run(
        [
            tool,
            "build",
            *common,
            "--target",
            "bill-of-materials",
            "--output",
            f"type=local,dest={arguments.folder}",
            ".",
        ]
    )
    total, beneath = size_bytes(tool, name), size_bytes(tool, base)
    return {
        "name": name,
        "base": base,
        "id": _inspect(tool, name, "{{.FromImageID}}" if tool == "buildah" else "{{.Id}}"),
        "bytes": total,
        "base_bytes": beneath,
        "added_bytes": total - beneath,
        "labels": labels,
    }


def size_bytes(tool: str, image: str) -> int:
    """Return the uncompressed size of an image, its base included."""
    if tool != "buildah":
        return int(_inspect(tool, image, "{{.Size}}"))
    listed = json.loads(_run([tool, "images", "--json", image], quiet=True))
    text = str(listed[0]["size"])
    number, unit = text.split()
    return int(float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit.upper()])


def _inspect(tool: str, image: str, template: str) -> str:
    kind = ["--type", "image"]
    return _run([tool, "inspect", *kind, "--format", template, image], quiet=True).strip()


def _revision() -> str:
    """Return the commit of the checkout; empty without git, as in an archive of the sources."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip()


def _run(command: Sequence[str], *, quiet: bool = False) -> str:
    """Run a command in the checkout; its output is shown unless it is wanted here."""
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, text=True, check=False, timeout=3_600
    )
    if done.returncode != 0:
        raise BuildError(
            f"`{shlex.join(command[:3])} ...` ended with {done.returncode}; its message stands above"
        )
    return done.stdout or ""


def _parser() -> argparse.ArgumentParser:
    version = re.findall(
        r'^appVersion: "?([^"\s]+)', (ROOT / "charts/fluxqueue/Chart.yaml").read_text(), re.MULTILINE
    )[0]
    parser = argparse.ArgumentParser(
        prog="make images", description="Build the images of the queue and of the webhook."
    )
    parser.add_argument(
        "--tool", choices=TOOLS, help="CONTAINER_TOOL=: what builds (default: the first that works)"
    )
    parser.add_argument(
        "--base", default="", help="BASE=: another base, by digest (default: that of images/bases.json)"
    )
    parser.add_argument("--repository", default="", help="REPOSITORY=: a prefix of the names, with its slash")
    parser.add_argument("--version", default=version, help="VERSION=: the tag (default: %(default)s)")
    parser.add_argument("--options", default="", help="BUILD_OPTIONS=: more options of the tool's build")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build", help="where records are written (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
