from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.local.kubernetes_versions import (
    DEFAULT_MINOR,
    VERSIONS,
    StateIsNewer,
    chosen_minor,
    minor_of,
    remember_version,
)


def test_each_version_is_of_its_minor_version() -> None:
    assert {minor: minor_of(version) for minor, version in VERSIONS.items()} == {
        minor: minor for minor in VERSIONS
    }
    assert list(VERSIONS) == sorted(VERSIONS)


def test_the_environment_chooses_a_minor_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUXQUEUE_KUBERNETES", "1.37")
    assert chosen_minor() == "1.37"
    monkeypatch.setenv("FLUXQUEUE_KUBERNETES", "")
    assert chosen_minor() == DEFAULT_MINOR


def test_state_is_used_by_the_same_version_and_by_newer_ones(tmp_path: Path) -> None:
    for version in ("v1.9.0", "v1.35.4", "v1.35.9", "v1.37.2"):
        remember_version(tmp_path, version)
    with pytest.raises(
        StateIsNewer,
        match=r"Kubernetes 1\.37 used .*, and 1\.36 may not be able to read its state: choose that version",
    ):
        remember_version(tmp_path, "v1.36.3")
    remember_version(tmp_path, "v1.37.0")
