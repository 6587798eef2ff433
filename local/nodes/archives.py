"""An image archive out of a few files, without a builder: for programs that need no base, such as CoreDNS.

The archive is an OCI image layout in a tar file, with one layer. ``ctr images import`` reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

__all__ = ["write_archive"]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_USER = "65535:65535"
_FOLDERS = {"etc": 0o755, "tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755}


def write_archive(target: Path, reference: str, program: Path) -> None:
    """Write an image whose only file is one program, which is also its entry point.

    Parameters
    ----------
    target
        The archive, written atomically.
    reference
        Name and tag of the image.
    program
        A program that needs no libraries.
    """
    layer = _layer(program)
    packed = gzip.compress(layer, 1, mtime=0)
    blobs: dict[str, bytes] = {}
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "WorkingDir": "/", "User": _USER},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(blobs, json.dumps(config).encode(), "config.v1+json"),
        "layers": [_blob(blobs, packed, "layer.v1.tar+gzip")],
    }
    named = {
        **_blob(blobs, json.dumps(manifest).encode(), "manifest.v1+json"),
        "annotations": {"io.containerd.image.name": reference},
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    unfinished = target.with_name(f".{target.name}")
    with tarfile.open(unfinished, mode="w") as archive:
        for path, content in {
            **files,
            **{f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()},
        }.items():
            _add(archive, path, content, 0o644)
    unfinished.rename(target)


def _layer(program: Path) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder, mode in _FOLDERS.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        _add(archive, program.name, program.read_bytes(), 0o755)
    return layer.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _blob(blobs: dict[str, bytes], content: bytes, kind: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {
        "mediaType": f"application/vnd.oci.image.{kind}",
        "digest": f"sha256:{digest}",
        "size": len(content),
    }
