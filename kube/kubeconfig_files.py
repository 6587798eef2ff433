"""The files of a kubeconfig, merged as kubectl merges them: the first file that sets a value wins, and paths
are relative to the file that contains them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Entry", "InvalidKubeconfig", "Merged", "merge"]


class InvalidKubeconfig(Exception):
    """There is no usable configuration; the message names the file and the field."""


@dataclass(frozen=True)
class Entry:
    """A named cluster, user or context, and the file that contains it."""

    body: Mapping[str, Any]
    path: Path

    def bytes_of(self, key: str) -> bytes | None:
        """Return the PEM block of ``<key>-data``, or of the file that ``<key>`` names."""
        if inline := self.body.get(f"{key}-data"):
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise InvalidKubeconfig(f"{self.path}: {key}-data is not base64") from None
        named = self.body.get(key)
        return self.read(str(named), key) if named else None

    def read(self, named: str, key: str) -> bytes:
        """Return the content of a file, whose path is relative to the kubeconfig."""
        try:
            return (self.path.parent / Path(named).expanduser()).read_bytes()
        except OSError as error:
            raise InvalidKubeconfig(f"{self.path}: unable to read {key} {named}: {error.strerror}") from None

    def text(self, key: str) -> str | None:
        """Return a value as text; None if it is empty."""
        value = self.body.get(key)
        return str(value) if value else None


@dataclass(frozen=True)
class Merged:
    """What several kubeconfigs say together."""

    paths: list[Path]
    current: str
    contexts: dict[str, Entry]
    clusters: dict[str, Entry]
    users: dict[str, Entry]


def merge(paths: list[Path]) -> Merged:
    """Read kubeconfigs; the first file that sets a value wins."""
    current = ""
    found: dict[str, dict[str, Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    for path in paths:
        document = _document(path)
        current = current or str(document.get("current-context") or "")
        for section, entries in found.items():
            if not isinstance(document.get(section) or [], list):
                raise InvalidKubeconfig(f"{path}: {section} is no list")
            for entry in document.get(section) or ():
                if not isinstance(entry, dict) or "name" not in entry:
                    raise InvalidKubeconfig(f"{path}: every entry of {section} needs a name")
                body = entry.get(section.removesuffix("s")) or {}
                entries.setdefault(str(entry["name"]), Entry(body if isinstance(body, dict) else {}, path))
    return Merged(paths, current, **found)


def _document(path: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - it is the safe loader, in C where there is one
    except OSError as error:
        raise InvalidKubeconfig(f"unable to read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InvalidKubeconfig(f"error loading config file {path}: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidKubeconfig(f"error loading config file {path}: it is not a mapping")
    return document
