from __future__ import annotations

import base64
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.local.apiserver_client import ApiServerClient
from fluxqueue.local.volumes import MirroredVolume, SourceMissing, VolumeSource, write_atomically


class ApiServer(ApiServerClient):
    """Holds one object."""

    def __init__(self, found: dict[str, Any] | None = None) -> None:
        self.found = found
        self.asked: list[str] = []

    def find(self, path: str) -> Any | None:
        self.asked.append(path)
        return self.found


def secret(version: str = "1", **data: bytes) -> dict[str, Any]:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    return {"metadata": {"resourceVersion": version}, "data": encoded}


def shown(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("..")}


def test_a_reader_never_sees_a_certificate_with_the_key_of_another(tmp_path: Path) -> None:
    """Through ``..data``, as the kubelet promises: what is read through one resolution of the link is one
    generation.
    """
    write_atomically(tmp_path, {"tls.crt": b"0", "tls.key": b"0"})
    mixed: list[tuple[bytes, bytes]] = []
    seen: set[bytes] = set()
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            generation = (tmp_path / "..data").resolve()
            try:
                pair = (generation / "tls.crt").read_bytes(), (generation / "tls.key").read_bytes()
            except FileNotFoundError:
                continue  # this generation was replaced and removed meanwhile
            seen.add(pair[0])
            if pair[0] != pair[1]:
                mixed.append(pair)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    number = 0
    while len(seen) < 20 and number < 20_000:
        number += 1
        write_atomically(tmp_path, {"tls.crt": b"%d" % number, "tls.key": b"%d" % number})
    ended.set()
    for reader in readers:
        reader.join(10)
    assert len(seen) >= 20
    assert mixed == []


def test_files_can_always_be_opened_while_they_are_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"config": b"0"})
    for number in range(50):
        with (tmp_path / "config").open("rb") as reader:
            write_atomically(tmp_path, {"config": b"%d" % (number + 1)})
            assert reader.read() == b"%d" % number
        assert (tmp_path / "config").read_bytes() == b"%d" % (number + 1)


def test_only_one_generation_is_kept(tmp_path: Path) -> None:
    for number in range(3):
        write_atomically(tmp_path, {f"file-{number}": b"x", "always": b"%d" % number})
    assert shown(tmp_path) == {"file-2": b"x", "always": b"2"}
    assert len([path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()]) == 1


def test_a_file_may_lie_in_a_folder(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"conf/a.yaml": b"a", "conf/b.yaml": b"b"})
    assert (tmp_path / "conf" / "a.yaml").read_bytes() == b"a"


def test_files_have_the_mode_of_the_volume(tmp_path: Path) -> None:
    write_atomically(tmp_path, {"key": b"x"}, 0o400)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o400


def test_a_secret_is_shown_and_written_again_only_when_it_changed(tmp_path: Path) -> None:
    api = ApiServer(secret("1", tls_crt=b"old"))
    volume = MirroredVolume(VolumeSource("secrets", "fluxqueue-system", "tls"), tmp_path / "tls")
    assert volume.refresh(api)
    assert api.asked == ["/api/v1/namespaces/fluxqueue-system/secrets/tls"]
    assert not volume.refresh(api)
    api.found = secret("2", tls_crt=b"new", tls_key=b"key")
    assert volume.refresh(api)
    assert shown(volume.folder) == {"tls.crt": b"new", "tls.key": b"key"}


def test_a_config_map_shows_chosen_keys_under_their_file_names_and_binary_data(tmp_path: Path) -> None:
    config = {
        "metadata": {"resourceVersion": "1"},
        "data": {"queue": "a: 1"},
        "binaryData": {"blob": base64.b64encode(b"\0").decode()},
    }
    everything = MirroredVolume(VolumeSource("configmaps", "ns", "c"), tmp_path / "all")
    chosen = MirroredVolume(
        VolumeSource("configmaps", "ns", "c", items={"queue": "queue.yaml", "none": "none"}),
        tmp_path / "some",
    )
    everything.refresh(ApiServer(config))
    chosen.refresh(ApiServer(config))
    assert shown(everything.folder) == {"queue": b"a: 1", "blob": b"\0"}
    assert shown(chosen.folder) == {"queue.yaml": b"a: 1"}


def test_an_optional_secret_may_come_later_and_go_again(tmp_path: Path) -> None:
    api = ApiServer(None)
    volume = MirroredVolume(VolumeSource("secrets", "ns", "tls", optional=True), tmp_path / "tls")
    volume.refresh(api)
    assert shown(volume.folder) == {}
    api.found = secret("7", tls_crt=b"x")
    assert volume.refresh(api)
    assert shown(volume.folder) == {"tls.crt": b"x"}
    api.found = None
    assert volume.refresh(api)
    assert shown(volume.folder) == {}


def test_a_secret_that_is_needed_and_missing_is_named(tmp_path: Path) -> None:
    volume = MirroredVolume(VolumeSource("secrets", "ns", "database"), tmp_path / "db")
    with pytest.raises(SourceMissing, match="secret ns/database does not exist, but db is mounted from it"):
        volume.refresh(ApiServer(None))
