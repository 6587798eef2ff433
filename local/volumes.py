"""ConfigMaps and Secrets as folders, in the kubelet's layout.

A program that runs as a process reads its configuration and certificates from a local folder instead of its
mount path. The layout is the kubelet's: the files are in a versioned folder, ``..data`` is a symbolic link to
it, and every visible file is a link through ``..data``. A change creates a new folder and replaces that one
link. So a reader sees either the old certificate and key or the new ones, never one of each, and programs
that watch for changes work as in a cluster.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fluxqueue.local.apiserver_client import ApiServerClient

__all__ = ["MirroredVolume", "SourceMissing", "VolumeSource", "write_atomically"]


class SourceMissing(RuntimeError):
    """A required ConfigMap or Secret does not exist."""


@dataclass(frozen=True)
class VolumeSource:
    """The source of a volume.

    Attributes
    ----------
    kind
        ``configmaps`` or ``secrets``, as in API paths.
    namespace, name
        Of the object.
    items
        Key -> file name; if it is empty, every key is a file of that name.
    optional
        True if the object may be missing; then the folder is empty.
    mode
        File permissions.
    """

    kind: str
    namespace: str
    name: str
    items: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    mode: int = 0o644

    @property
    def path(self) -> str:
        """The API path of the object."""
        return f"/api/v1/namespaces/{self.namespace}/{self.kind}/{self.name}"


class MirroredVolume:
    """One volume of one program: a source and its folder."""

    def __init__(self, source: VolumeSource, folder: Path) -> None:
        self.source = source
        self.folder = folder
        self._version: str | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def refresh(self, client: ApiServerClient) -> bool:
        """Update the folder; return true if it changed.

        Raises
        ------
        SourceMissing
            The object does not exist and is not optional.
        """
        obj = client.find(self.source.path)
        if obj is None and not self.source.optional:
            kind = self.source.kind.removesuffix("s")
            raise SourceMissing(
                f"{kind} {self.source.namespace}/{self.source.name} does not exist, "
                f"but {self.folder.name} is mounted from it"
            )
        version = obj["metadata"]["resourceVersion"] if obj else ""
        if version == self._version:
            return False
        write_atomically(self.folder, self._files(obj) if obj else {}, self.source.mode)
        self._version = version
        return True

    def _files(self, obj: dict[str, dict[str, str]]) -> dict[str, bytes]:
        if self.source.kind == "secrets":
            content = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
        else:
            content = {key: text.encode() for key, text in (obj.get("data") or {}).items()}
            content |= {key: base64.b64decode(text) for key, text in (obj.get("binaryData") or {}).items()}
        if self.source.items:
            return {name: content[key] for key, name in self.source.items.items() if key in content}
        return content


def write_atomically(folder: Path, files: Mapping[str, bytes], mode: int = 0o644) -> None:
    """Replace all files of a folder in one atomic step.

    Parameters
    ----------
    folder
        An existing folder, which contains only links and folders of this function.
    files
        Name -> content; a name may contain slashes.
    mode
        Permissions of the files.
    """
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    fresh.chmod(0o755)
    for name, content in files.items():
        target = fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    current = folder / "..data"
    former = current.resolve() if current.is_symlink() else None
    link = folder / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.replace(current)
    shown = {name.split("/")[0] for name in files}
    for name in shown:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != "..data" and entry.name not in shown:
            entry.unlink()
    if former is not None and former != fresh:
        shutil.rmtree(former, ignore_errors=True)
