"""The files of a pod's volumes, computed from the objects that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fluxqueue.local.kubelet.environment import MissingSource, PodFacts, field_text, resource_text
from fluxqueue.local.kubelet.specs import Container, PodObject
from fluxqueue.local.kubelet.volume_specs import (
    DownwardSource,
    KeysSource,
    ProjectedSource,
    TokenSource,
    Volume,
)

__all__ = ["ObjectKey", "TokenKey", "file_modes", "named_objects", "tokens_of", "volume_files"]

_MODE = 0o644
ObjectKey = tuple[str, str]
"""``configmaps`` or ``secrets``, and a name."""


@dataclass(frozen=True)
class TokenKey:
    """A token that a volume has as a file."""

    audience: str
    expiration_s: int


def _sources(volume: Volume) -> list[ProjectedSource]:
    if volume.projected is not None:
        return list(volume.projected.sources or ())
    return [
        ProjectedSource(config_map=volume.config_map, secret=volume.secret, downward_api=volume.downward_api)
    ]


def _keys(source: ProjectedSource) -> Iterator[tuple[ObjectKey, KeysSource]]:
    if source.config_map is not None:
        yield ("configmaps", source.config_map.name), source.config_map
    if source.secret is not None:
        yield ("secrets", source.secret.secret_name or source.secret.name), source.secret


def named_objects(pod: PodObject) -> set[ObjectKey]:
    """Return the ConfigMaps and Secrets that volumes and variables of a pod name."""
    found = {
        key for volume in pod.spec.volumes or () for source in _sources(volume) for key, _ in _keys(source)
    }
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        found |= set(_of_variables(container))
    return found


def _of_variables(container: Container) -> Iterator[ObjectKey]:
    for each in container.env_from or ():
        if each.config_map_ref is not None:
            yield "configmaps", each.config_map_ref.name
        if each.secret_ref is not None:
            yield "secrets", each.secret_ref.name
    for variable in container.env or ():
        origin = variable.value_from
        if origin is not None and origin.config_map_key_ref is not None:
            yield "configmaps", origin.config_map_key_ref.name
        if origin is not None and origin.secret_key_ref is not None:
            yield "secrets", origin.secret_key_ref.name


def tokens_of(volumes: Iterable[Volume]) -> set[TokenKey]:
    """Return the tokens that volumes need."""
    tokens = [source.service_account_token for volume in volumes for source in _sources(volume)]
    return {_token_key(each) for each in tokens if each is not None}


def _token_key(source: TokenSource) -> TokenKey:
    return TokenKey(source.audience, source.expiration_seconds)


def volume_files(
    pod: PodObject,
    facts: PodFacts,
    volume: Volume,
    objects: Mapping[ObjectKey, Mapping[str, bytes] | None],
    tokens: Mapping[TokenKey, bytes],
) -> dict[str, bytes] | None:
    """Return name -> content of a volume's files; None if it is an empty folder.

    Raises
    ------
    MissingSource
        An object or a key that is not optional does not exist, or a name leads out of the volume.
    """
    if volume.empty_dir is not None:
        return None
    files: dict[str, bytes] = {}
    for source in _sources(volume):
        for key, keys in _keys(source):
            files |= _selected(key, keys, objects.get(key), volume.name)
        if source.downward_api is not None:
            files |= _downward(pod, facts, source.downward_api)
        if source.service_account_token is not None:
            files[source.service_account_token.path] = tokens[_token_key(source.service_account_token)]
    for name in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise MissingSource(f"volume {volume.name}: {name} is not a file below it")
    return files


def file_modes(volume: Volume) -> tuple[int, dict[str, int]]:
    """Return the permissions of a volume's files, and those of single files that have others."""
    whole = volume.projected or volume.config_map or volume.secret or volume.downward_api
    modes: dict[str, int] = {}
    for source in _sources(volume):
        for _, keys in _keys(source):
            modes |= {item.path: item.mode for item in keys.items or () if item.mode is not None}
        if source.downward_api is not None:
            modes |= {
                item.path: item.mode for item in source.downward_api.items or () if item.mode is not None
            }
    return _MODE if whole is None or whole.default_mode is None else whole.default_mode, modes


def _selected(
    key: ObjectKey, source: KeysSource, content: Mapping[str, bytes] | None, volume: str
) -> dict[str, bytes]:
    what = f"{key[0].removesuffix('s')} {key[1]}"
    if content is None:
        if source.optional:
            return {}
        raise MissingSource(f"{what} does not exist, but volume {volume} is mounted from it")
    if not source.items:
        return dict(content)
    files = {}
    for item in source.items:
        if item.key in content:
            files[item.path] = content[item.key]
        elif not source.optional:
            raise MissingSource(f"{what} has no key {item.key}, which volume {volume} names")
    return files


def _downward(pod: PodObject, facts: PodFacts, source: DownwardSource) -> dict[str, bytes]:
    files = {}
    for item in source.items or ():
        if item.field_ref is not None:
            files[item.path] = field_text(pod, facts, item.field_ref).encode()
        elif item.resource_field_ref is not None:
            files[item.path] = resource_text(
                pod, facts, pod.spec.containers[0], item.resource_field_ref
            ).encode()
    return files
