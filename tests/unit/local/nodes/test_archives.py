"""The layout of an image archive, as an importer reads it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from fluxqueue.local.nodes.archives import write_archive


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name))}


def test_every_blob_is_named_by_its_digest_and_leads_to_the_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    write_archive(tmp_path / "pause.tar", "localhost/pause:1", program)
    files = read(tmp_path / "pause.tar")
    blobs = {
        path.removeprefix("blobs/sha256/"): content
        for path, content in files.items()
        if path.startswith("blobs/")
    }
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": "localhost/pause:1"}
    manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    layer = gzip.decompress(blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        member = tar.getmember("pause")
        assert (member.mode, member.size) == (0o755, 4)
        assert tar.getmember("tmp").mode == 0o1777


def test_the_same_program_makes_the_same_archive(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    for name in ("first", "second"):
        write_archive(tmp_path / name, "localhost/pause:1", program)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
