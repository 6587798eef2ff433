"""The rules of a MiniCluster's volumes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fluxqueue.api.miniclusters import ContainerVolume, MiniClusterSpec

__all__ = ["DNS_LABEL", "LONGEST_LABEL", "source_of", "volume_problems"]

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_LABEL = 63
_SHM = "/dev/shm"  # noqa: S108 where emptyDirs are mounted, as the operator does


def volume_problems(spec: MiniClusterSpec) -> Iterator[str]:
    """Return what is wrong with the volumes of containers."""
    for where, containers in (("containers", spec.containers), ("services", spec.services or [])):
        named: dict[str, ContainerVolume] = {}
        for index, container in enumerate(containers):
            mounted: dict[str, str] = {}
            for name, volume in (container.volumes or {}).items():
                path = f"spec.{where}[{index}].volumes.{name}"
                yield from _volume(name, volume, path)
                place = _SHM if volume.empty_dir and not volume.path else volume.path
                if place and place in mounted:
                    yield (
                        f"{path} is mounted at {place}, where {mounted[place]!r} is already: use another path"
                    )
                mounted[place] = name
                other = named.setdefault(name, volume)
                if source_of(other) != source_of(volume):
                    yield (
                        f"{path} is another volume than the one of that name in another container: "
                        "use another name"
                    )


def _volume(name: str, volume: ContainerVolume, path: str) -> Iterator[str]:
    if not (DNS_LABEL.fullmatch(name) and len(name) <= LONGEST_LABEL):
        yield (
            f"{path}: {name!r} cannot be the name of a volume: use lower case letters, "
            "digits and dashes, at most 63"
        )
    source = source_of(volume)
    if not source and not volume.only_path:
        yield (
            f"{path} names no volume: give one of claimName, hostPath, emptyDir, secretName, "
            "configMapName, csiDriver"
        )
    elif source and not volume.path and source[0] != "emptyDir":
        yield f"{path}.path is missing: say where {source[0]} {source[1]} is mounted"
    elif volume.path and not volume.path.startswith("/"):
        yield f"{path}.path {volume.path!r} is not absolute: begin it with a slash"


def source_of(volume: ContainerVolume) -> tuple[str, str] | None:
    """Return field and value of the volume's source, with the operator's precedence."""
    sources = (
        ("csiDriver", volume.csi_driver),
        ("secretName", volume.secret_name),
        ("emptyDir", "emptyDir" if volume.empty_dir else ""),
        ("hostPath", volume.host_path),
        ("configMapName", volume.config_map_name),
        ("claimName", volume.claim_name),
    )
    return next(((field, value) for field, value in sources if value), None)
