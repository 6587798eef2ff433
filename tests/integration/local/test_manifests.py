"""The manifests for people without Helm, as a real API server takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fluxqueue.local.controlplane import ControlPlane

_FOLDER = Path(__file__).resolve().parents[3] / "deploy"
_NAMESPACE = "fluxqueue-system"
_DRY_RUN = ("apply", "--server-side", "--dry-run=server", "--validate=strict")


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane on which the manifests' namespace exists:
    a dry run creates none for the objects that follow it.
    """
    control_plane.kubectl("create", "namespace", _NAMESPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")


@pytest.mark.parametrize("name", ["crds.yaml", "fluxqueue.yaml", "fluxqueue-scheduler.yaml"])
def test_the_api_server_takes_every_object(cluster: ControlPlane, name: str) -> None:
    done = cluster.kubectl(*_DRY_RUN, "-f", str(_FOLDER / name), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied (server dry run)") == (_FOLDER / name).read_text().count(
        "\n---\n"
    )
    assert "Warning" not in done.stderr


def test_the_overlay_is_the_manifest_with_other_images(cluster: ControlPlane, tmp_path: Path) -> None:
    for name in ("fluxqueue.yaml", "kustomization.yaml"):
        text = (_FOLDER / name).read_text()
        (tmp_path / name).write_text(text.replace("newName: ", "newName: example.com/mirror/"))
    done = cluster.kubectl(*_DRY_RUN, "-o", "yaml", "-k", str(tmp_path), check=False)
    assert done.returncode == 0, done.stderr
    images = {
        line.strip()
        for line in done.stdout.splitlines()
        if line.strip().startswith(("image: ", "- image: ")) and " |" not in line
    }
    assert any("image: example.com/mirror/fluxqueue-webhook:" in line for line in images)
    assert [line for line in images if "mirror" not in line] == ["image: fluxqueue-queue:0.1.0"], (
        "the one in the ConfigMap"
    )
