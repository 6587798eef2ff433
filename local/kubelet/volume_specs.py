"""Volumes of a pod as the agent reads them, and references to fields of the pod."""

from __future__ import annotations

from typing import Any

import msgspec

from fluxqueue.api.metadata import PartialObject

__all__ = [
    "DownwardSource",
    "FieldRef",
    "KeysSource",
    "ProjectedSource",
    "ResourceRef",
    "TokenSource",
    "Volume",
]


class FieldRef(PartialObject, frozen=True):
    """A field of the pod."""

    field_path: str = ""


class ResourceRef(PartialObject, frozen=True):
    """A resource of a container, as a number of ``divisor``."""

    resource: str = ""
    container_name: str = ""
    divisor: str = "1"


class KeyToPath(PartialObject, frozen=True):
    """A key and its file."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class KeysSource(PartialObject, frozen=True):
    """A ConfigMap or Secret as files; a Secret volume calls its name ``secretName``."""

    name: str = ""
    secret_name: str = ""
    items: list[KeyToPath] | None = None
    default_mode: int | None = None
    optional: bool = False


class DownwardFile(PartialObject, frozen=True):
    """A field of the pod as a file."""

    path: str = ""
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceRef | None = None
    mode: int | None = None


class DownwardSource(PartialObject, frozen=True):
    """Fields of the pod as files."""

    items: list[DownwardFile] | None = None
    default_mode: int | None = None


class TokenSource(PartialObject, frozen=True):
    """A token of the pod's ServiceAccount as a file."""

    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class ProjectedSource(PartialObject, frozen=True):
    """A part of a projected volume: one of these."""

    config_map: KeysSource | None = None
    secret: KeysSource | None = None
    downward_api: DownwardSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenSource | None = None


class Projected(PartialObject, frozen=True):
    """Several sources in one folder."""

    sources: list[ProjectedSource] | None = None
    default_mode: int | None = None


class EmptyDir(PartialObject, frozen=True):
    """An empty folder."""

    medium: str = ""
    size_limit: str | int | None = None


class Volume(PartialObject, frozen=True):
    """A volume; one without any of these sources has a source that this machine does not have."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    config_map: KeysSource | None = None
    secret: KeysSource | None = None
    projected: Projected | None = None
    downward_api: DownwardSource | None = msgspec.field(default=None, name="downwardAPI")
    host_path: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None

    @property
    def refusal(self) -> str:
        """Why a pod with this volume cannot run here; empty if it can."""
        if self.host_path is not None:
            return (
                f"volume {self.name} is a hostPath, and its pod would share the files of this machine: "
                "use an emptyDir or a ConfigMap"
            )
        if any(
            each is not None
            for each in (self.empty_dir, self.config_map, self.secret, self.projected, self.downward_api)
        ):
            return ""
        kinds = "emptyDir, configMap, secret, projected or downwardAPI"
        return f"volume {self.name} is of a kind that nodes of processes do not have: use {kinds}"
