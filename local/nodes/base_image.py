"""The base of all images on real nodes: a stand-in for Python's slim image, made without a registry.

It is Debian, made by debootstrap from the mirror that this computer's apt uses. Python is the version that
the Dockerfiles name, where this computer has one outside Debian's folders, else Debian's. Certificate
authorities and pip's settings of this computer are copied, because build steps need them; so images on it are
for tests only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from fluxqueue.local.nodes.buildah import Buildah, ImageError

__all__ = ["BASE", "SEARCH_PATH", "make_base", "pip_settings"]

BASE = "localhost/fluxqueue-stand-in"
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_PYTHON = "3.13"
_AUTHORITIES = Path("/usr/local/share/ca-certificates")
SEARCH_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_LEFT_OUT = [
    f"--exclude={pattern}"
    for pattern in (
        "*/test",
        "*/idlelib",
        "*/tkinter",
        "*/config-3*",
        "*/site-packages/*",
        "*.a",
        "__pycache__",
    )
]
_NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)
"""Folders that are emptied: every node unpacks the image, and they are half of it."""


def pip_settings() -> str:
    """Return this computer's settings of pip, as a configuration file;
    paths are left out, but for the certificate authorities'.
    """
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    for name, value in sorted(os.environ.items()):
        key = name.removeprefix("PIP_").lower().replace("_", "-")
        if name.startswith("PIP_") and key != "cert" and not value.startswith("/"):
            lines.append(f"{key} = {value}")
    return "\n".join([*lines, ""])


def make_base(buildah: Buildah) -> None:
    """Make the stand-in for ``python:3.13-slim`` as `BASE`."""
    container = buildah.run("from", "scratch")
    root = Path(buildah.run("mount", container))
    _debootstrap(root)
    root.chmod(0o755)
    authorities = sorted(_AUTHORITIES.glob("*.crt"))
    for authority in authorities:
        shutil.copy(authority, root / _AUTHORITIES.relative_to("/"))
    if authorities:
        _chroot(root, "update-ca-certificates")
    (root / "etc/pip.conf").write_text(pip_settings())
    for folder in _NOT_NEEDED:
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir()
    if prefix := _python_prefix():
        _copy_python(prefix, root)
    else:
        _chroot(root, "python3", "-m", "venv", "/usr/local")
    _chroot(root, "/usr/local/bin/python", "-c", "import ssl, ctypes, sqlite3, zlib, bz2, lzma")
    buildah.run("umount", container)
    buildah.run(
        "config", "--env", "LANG=C.UTF-8", "--env", f"PATH={SEARCH_PATH}", "--cmd", "python3", container
    )
    buildah.run("commit", "--rm", container, BASE)


def _debootstrap(root: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root), *_mirror()]
    _call(command, timeout_s=1_200)


def _mirror() -> list[str]:
    """Return the mirror of apt on this computer, if it has one for the suite; debootstrap has a default."""
    if shutil.which("apt-get") is None:
        return []
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(CODENAME) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]
    for line in _call(command).splitlines():
        suite, component, address = line.split(" ", 2)
        if (suite, component) == (_SUITE, "main"):
            return [address]
    return []


def _python_prefix() -> Path | None:
    """Return the prefix of a Python of the right version that is not Debian's own; None if there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [
        path / "bin" / f"python{_PYTHON}" for path in sorted(versions.glob(f"{_PYTHON}.*"), reverse=True)
    ]
    if on_path := shutil.which(f"python{_PYTHON}"):
        found.append(Path(on_path))
    for program in found:
        prefix = Path(_call([str(program), "-I", "-c", "import sys; print(sys.base_prefix)"]).strip())
        if prefix != Path("/usr"):
            return prefix
    return None


def _copy_python(prefix: Path, root: Path) -> None:
    parts = ["bin", "include", "lib"]
    packed = subprocess.Popen(["tar", "-C", prefix, *_LEFT_OUT, "-cf", "-", *parts], stdout=subprocess.PIPE)
    _call(["tar", "-C", str(root / "usr/local"), "--no-same-owner", "-xf", "-"], stdin=packed)
    (root / "etc/ld.so.conf.d/python.conf").write_text("/usr/local/lib\n")
    _chroot(root, "ldconfig")
    _chroot(root, f"/usr/local/bin/python{_PYTHON}", "-m", "ensurepip")
    folder = root / "usr/local/bin"
    for name in ("python", "python3"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(f"python{_PYTHON}")
    for pip in folder.glob("pip*"):
        pip.unlink()
    (folder / "pip").write_text(f'#!/bin/sh\nexec /usr/local/bin/python{_PYTHON} -m pip "$@"\n')
    (folder / "pip").chmod(0o755)


def _chroot(root: Path, *words: str) -> None:
    _call(["chroot", str(root), "env", "-i", f"PATH={SEARCH_PATH}", *words])


def _call(
    command: Iterable[str], *, stdin: subprocess.Popen[bytes] | None = None, timeout_s: float = 300
) -> str:
    words = list(command)
    source = stdin.stdout if stdin else subprocess.DEVNULL
    done = subprocess.run(words, stdin=source, capture_output=True, text=True, timeout=timeout_s, check=False)
    if stdin is not None and stdin.wait() != 0:
        raise ImageError(f"{stdin.args!r} ended with {stdin.returncode}")
    if done.returncode != 0:
        raise ImageError(
            f"{' '.join(words[:6])} ended with {done.returncode}: "
            f"{(done.stderr.strip() or done.stdout.strip())[-800:]}"
        )
    return done.stdout
