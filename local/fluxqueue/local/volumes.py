"""ConfigMaps and Secrets as folders, kept as the kubelet keeps them.

A program that runs as a process sees its configuration and certificates under a folder of ours instead of its mount path. The layout
is the kubelet's: the files lie in a folder named by its moment, ``..data`` is a symbolic link to that folder, and every visible file
is a link through ``..data``. A change makes a new folder and moves the one link, so a reader sees the old pair of certificate and key
or the new one, never one of each. Programs that watch for such changes are therefore exercised as in a cluster.
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
    """A ConfigMap or Secret that a program cannot do without does not exist."""


@dataclass(frozen=True)
class VolumeSource:
    """What a volume shows.

    Attributes
    ----------
    kind
        ``configmaps`` or ``secrets``, as in the API's paths.
    namespace, name
        Of the object.
    items
        Key to file name; empty shows every key under its own name.
    optional
        Whether the object may be missing, which shows an empty folder.
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
        """Path of the object in the API."""
        return f"/api/v1/namespaces/{self.namespace}/{self.kind}/{self.name}"


class MirroredVolume:
    """One volume of one program: a source and the folder that shows it.

    Parameters
    ----------
    source
        What to show.
    folder
        Where; made if missing.
    """

    def __init__(self, source: VolumeSource, folder: Path) -> None:
        self.source = source
        self.folder = folder
        self._version: str | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def refresh(self, client: ApiServerClient) -> bool:
        """Bring the folder up to date; returns whether it changed.

        Raises
        ------
        SourceMissing
            The object is not there and is not optional.
        """
        found = client.find(self.source.path)
        if found is None and not self.source.optional:
            kind = self.source.kind.removesuffix("s")
            raise SourceMissing(
                f"{kind} {self.source.namespace}/{self.source.name} does not exist, but {self.folder.name} is mounted from it"
            )
        version = found["metadata"]["resourceVersion"] if found else ""
        if version == self._version:
            return False
        write_atomically(self.folder, self._files(found) if found else {}, self.source.mode)
        self._version = version
        return True

    def _files(self, found: dict[str, dict[str, str]]) -> dict[str, bytes]:
        if self.source.kind == "secrets":
            content = {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}
        else:
            content = {key: text.encode() for key, text in (found.get("data") or {}).items()}
            content |= {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}
        if self.source.items:
            return {name: content[key] for key, name in self.source.items.items() if key in content}
        return content


def write_atomically(folder: Path, files: Mapping[str, bytes], mode: int = 0o644) -> None:
    """Make ``folder`` show exactly these files, in one step for whoever reads through it.

    Parameters
    ----------
    folder
        Made before; only links and folders of this function are in it.
    files
        Name to content; a name may contain slashes.
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
